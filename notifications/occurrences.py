"""What happened, out of an event row: the facts a message may say, and whose job it concerns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet

from commands import burn_in
from commands.models import Command
from events.models import Event
from experiments.models import Experiment, Trial
from hosts import failed_starts
from hosts.models import Host
from jobs import quarantine
from jobs.models import Allocation, Job, Member
from jobs.states import MemberState, Reason
from logs import alerts, last_words, read
from logs.sentences import hang_sentence, label
from notifications.links import link
from notifications.triggers import COMMAND_STATES, EXPERIMENT_STATES, Trigger
from scheduling.reasons import listed
from trainmaster.quantities import duration

Json = dict[str, Any]
#: what is told of hosts, by the reason of the event
_OF_HOSTS = {
    "silent": Trigger.HOST_SILENT,
    failed_starts.REASON: Trigger.HOST_FAILS_STARTS,
    quarantine.REASON: Trigger.HOST_FAULT,
    quarantine.WITHHELD: Trigger.HOST_FAULT,
    burn_in.FOUND: Trigger.HOST_FAULT,
}
#: the event rows that some rule may be about
RELEVANT = (
    Q(kind=Event.Kind.EXPERIMENT, to_state__in=EXPERIMENT_STATES)
    | Q(kind=Event.Kind.COMMAND, to_state__in=COMMAND_STATES)
    | Q(kind=Event.Kind.ALLOCATION, to_state="TERMINATED", reason=Reason.PREEMPTED)
    | Q(kind=Event.Kind.ALLOCATION, reason=Reason.LOG_POLICY)
    | Q(kind=Event.Kind.ALLOCATION, reason__in=[Reason.HANG, Reason.HANG_OF_HOST], detail__has_key="hang")
    | Q(kind=Event.Kind.JOB, reason=Reason.DEADLINE_LATE)
    | Q(kind__in=[Event.Kind.TRIAL, Event.Kind.EXPERIMENT], reason=alerts.REASON)
    | Q(kind=Event.Kind.HOST, reason__in=_OF_HOSTS)
)
#: of what failed
LINES, LINES_CHARACTERS, LINES_SECONDS = 8, 2000, 1.0
_WORDS = {
    "COMPLETED": "completed",
    "CANCELED": "was canceled",
    "ERROR": "failed",
    "PAUSED": "was paused",
    "ACTIVE": "is active",
}
_HOST_STATES = {
    "silent": "silent",
    failed_starts.REASON: "draining",
    quarantine.REASON: "quarantined",
    quarantine.WITHHELD: "faulty",
    burn_in.FOUND: "slow",
}
_OF_ELEMENTS = {"COMPLETED": "completed", "CANCELED": "were canceled", "ERROR": "failed"}


@dataclass
class Occurrence:
    """Something to tell. `concerns`: (owner's id, project's, workspace's) of each job that it is about."""

    source: str
    trigger: Trigger
    facts: Json
    concerns: Sequence[tuple[int, int | None, int | None]] = ()
    #: the job as rules of Determined's mode SPECIFIC are named by it
    experiment: Experiment | None = None
    happened_at: datetime | None = None


def of_event(event: Event) -> Occurrence | None:
    """None where what it is about is gone, or where nobody need hear of it (an experiment that was just submitted)."""
    if event.kind == Event.Kind.HOST:
        return _host(event)
    if event.reason == alerts.REASON:
        return _alert(event)
    if hang := hang_sentence(event):
        return _hang(event, hang)
    if event.kind == Event.Kind.ALLOCATION:
        return _attempt(event)
    if event.kind == Event.Kind.JOB:
        return _deadline(event)
    if not event.from_state:  # the first state is the submission
        return None
    job = _job(event)
    if job and job.kind == Job.Kind.ARRAY and event.subject != job.entity_id:
        return None  # the end of one element: that of the whole array is told
    trigger = (
        Trigger.EXPERIMENT_STATE_CHANGE
        if event.kind == Event.Kind.EXPERIMENT
        else Trigger.COMMAND_STATE_CHANGE
    )
    found = about(job, f"event:{event.pk}", trigger) if job else None
    if found:
        reason = label(event.reason)
        found.facts |= {"state": event.to_state, "reason": reason, "time": _time(event)}
        if counts := event.detail.get("elements"):
            said = [f"{number:,} of its elements {_OF_ELEMENTS[state]}" for state, number in counts.items()]
            reason = listed(said, most=len(said))
        found.facts["sentence"] = _sentence(found.facts, _WORDS[event.to_state], reason)
        if found.experiment and found.experiment.ended_at:
            seconds = (found.experiment.ended_at - found.experiment.started_at).total_seconds()
            found.facts |= {"duration_seconds": round(seconds), "duration": duration(seconds)}
        if job and event.to_state == "ERROR":
            found.facts["lines"] = _last_lines(job)
    return found


def about(job: Job | None, source: str, trigger: Trigger) -> Occurrence | None:
    """What is known of a job, without what happened to it."""
    if job is None:
        return None
    facts: Json = {
        "user": job.owner.username,
        "name": job.name,
        "pool": job.pool.name,
        "trigger": trigger.value,
    }
    facts["cluster"] = settings.CLUSTER_NAME
    experiment = Experiment.objects.select_related("project__workspace").filter(job=job).first()
    if experiment:
        facts |= {
            "kind": "experiment", "id": str(experiment.pk), "name": experiment.name,
            "project": experiment.project.name, "workspace": experiment.project.workspace.name,
            "state": experiment.state, "slots": experiment.config.get("resources", {}).get("slots_per_trial"),
            "link": link(f"/experiments/{experiment.pk}"),
        }  # fmt: skip
        concerns = (job.owner_id, experiment.project_id, experiment.project.workspace_id)
        return Occurrence(source, trigger, facts, [concerns], experiment)
    command = Command.objects.filter(job=job).first()
    place = f"/commands/{job.entity_id}" if command else "/jobs"
    kind = "array" if job.kind == Job.Kind.ARRAY else "command" if command else "job"
    facts |= {"kind": kind, "link": link(place), "id": (job.entity_id if command else str(job.pk))[:8]}
    return Occurrence(
        source, trigger, facts, [(job.owner_id, None, getattr(command, "workspace_number", None))]
    )


def _job(event: Event) -> Job | None:
    return (
        Job.objects.select_related("owner", "pool").filter(pk=event.job_id).first() if event.job_id else None
    )


def _attempt(event: Event) -> Occurrence | None:
    preempted = event.reason == Reason.PREEMPTED
    trigger = Trigger.PREEMPTED if preempted else Trigger.TASK_LOG
    found = about(_job(event), f"event:{event.pk}", trigger)
    if found is None:
        return None
    found.facts["time"] = _time(event)
    if preempted:
        found.facts["reason"] = Reason.PREEMPTED.label
        found.facts["sentence"] = _sentence(found.facts, "was preempted", Reason.PREEMPTED.label)
        return found
    detail, trial = event.detail, Trial.objects.filter(task_id=event.task_id).first()
    found.facts |= {
        "task_id": event.task_id, "trial": str(trial.pk) if trial else "",
        "triggering_log": _line(event.task_id, detail.get("line")),
    }  # fmt: skip
    line, policy = detail.get("line"), str(detail.get("policy") or "")
    found.facts |= {"host": str(detail.get("host") or ""), "line": "" if line is None else str(line)}
    found.facts |= {"policy": policy, "pattern": str(detail.get("pattern") or "")}
    what = f"has a log line that matches {policy or found.facts['pattern']!r}"
    where = f"line {line}" + (f", on {detail['host']}" if detail.get("host") else "")
    found.facts["sentence"] = _sentence(found.facts, what, where)
    return found


def _hang(event: Event, hang: str) -> Occurrence | None:
    found = about(_job(event), f"event:{event.pk}", Trigger.HANG)
    trial = Trial.objects.filter(task_id=event.task_id).first()
    if found is not None and trial is not None:
        found.facts |= {"time": _time(event), "reason": hang, "trial": str(trial.pk)}
        found.facts |= {"host": str(event.detail.get("host") or ""), "link": link(f"/trials/{trial.pk}")}
        found.facts["sentence"] = f"{_subject(found.facts)}, trial {trial.pk}: {hang}"
    return found


def _deadline(event: Event) -> Occurrence | None:
    found = about(_job(event), f"event:{event.pk}", Trigger.DEADLINE)
    if found is not None:
        found.facts |= {"time": _time(event), "reason": str(event.detail.get("sentence") or "")}
        found.facts["sentence"] = f"{_subject(found.facts)} {found.facts['reason']}."
    return found


def _alert(event: Event) -> Occurrence | None:
    experiment = Experiment.objects.select_related("job").filter(pk=event.experiment_id or 0).first()
    found = about(experiment.job, f"event:{event.pk}", Trigger.CUSTOM) if experiment else None
    alert = alerts.alert_of(event)
    if found is None or alert is None:
        return None
    trial = event.subject if event.kind == Event.Kind.TRIAL else ""
    found.facts |= {
        "title": alert.title, "description": alert.description, "level": alert.level.name, "trial": trial,
        "time": _time(event),
    }  # fmt: skip
    words = ": ".join(filter(None, [alert.title, alert.description])) or "an alert without text"
    found.facts["sentence"] = f"{_subject(found.facts)} raised an alert: {words}"
    return found


def _host(event: Event) -> Occurrence | None:
    host = Host.objects.select_related("pool").filter(pk=event.subject).first()
    if host is None:
        return None
    members: QuerySet[Member] = Member.objects.filter(host=host).exclude(state=MemberState.ENDED)
    jobs = Job.objects.filter(tasks__allocations__members__in=members).distinct()
    concerns = list(
        jobs.values_list("owner_id", "experiment__project_id", "experiment__project__workspace_id")
    )
    why = str(event.detail.get("sentence") or "")
    trigger = _OF_HOSTS[event.reason]
    facts: Json = {
        "kind": "host", "id": host.name, "name": host.name, "host": host.name, "pool": host.pool.name,
        "state": _HOST_STATES[event.reason], "reason": why, "link": link(f"/hosts/{host.name}"),
        "time": _time(event), "trigger": trigger.value, "cluster": settings.CLUSTER_NAME,
    }  # fmt: skip
    facts["sentence"] = _of_host(event, host, why, len(concerns))
    return Occurrence(f"event:{event.pk}", trigger, facts, concerns)


def _of_host(event: Event, host: Host, why: str, jobs: int) -> str:
    if event.reason == failed_starts.REASON:
        return f"Host {host.name} cannot start jobs. {why}"
    if event.reason == quarantine.WITHHELD:
        return f"Host {host.name} has a fault and is still in use. {why}"
    if event.reason == burn_in.FOUND:
        return f"The burn-in of host {host.name} found something. {why.removeprefix('Burn-in: ')}"
    if event.reason == quarantine.REASON:
        slot = event.detail.get("slot")
        what = f"Host {host.name}" if slot is None else f"Slot {slot} of host {host.name}"
        return f"{what} is out of use because of a fault. {why}"
    seconds = event.detail.get("silent_seconds")
    since = f" for {duration(seconds)}" if seconds else ""
    held = f" {jobs} job{'s are' if jobs != 1 else ' is'} running there." if jobs else ""
    return f"Host {host.name} is silent{since}.{held}"


def _line(task_id: str, number: int | None) -> str:
    """The text of a log line; empty if it was removed."""
    lines = read.forward(task_id, after=number - 1, limit=1).lines if number else []
    return lines[0].text[:LINES_CHARACTERS] if lines and lines[0].number == number else ""


def _subject(facts: Json) -> str:
    return f"{str(facts['kind']).capitalize()} {facts['id']} ({facts['name']}) of {facts['user']}"


def _sentence(facts: Json, what: str, reason: str = "") -> str:
    return f"{_subject(facts)} {what}{f': {reason}' if reason else ''}."


def waits(facts: Json) -> str:
    return _sentence(facts, f"has waited for {facts['waited']} in pool {facts['pool']}")


def idles(facts: Json, gpus: int) -> str:
    what = f"{gpus} GPUs" if gpus != 1 else "a GPU"
    return _sentence(facts, f"has left {what} idle for {facts['waited']}")


def _time(event: Event) -> str:
    return event.at.strftime("%Y-%m-%d %H:%M:%S UTC")


def _last_lines(job: Job) -> str:
    """What the rank that failed first said last, of the newest attempt that failed."""
    failed = Allocation.objects.filter(task__job=job, exit_code__isnull=False).exclude(exit_code=0)
    attempt = failed.order_by("-ended_at").first()
    if attempt is None:
        return ""
    detail = attempt.exit_detail
    until = time.monotonic() + LINES_SECONDS
    said = last_words.of(attempt, detail.get("rank"), attempt.exit_code, detail.get("signal"), until=until)
    return "\n".join(line.text for line in said.lines[-LINES:])[-LINES_CHARACTERS:]
