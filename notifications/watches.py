"""What is no event but goes on too long: a job that waits, a GPU that is held and idle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import CharField, Exists, Max, OuterRef, Q, Subquery
from django.db.models.functions import Cast

from events.models import Event
from hosts.models import Slot
from jobs.models import Job, SlotHold, Task
from jobs.states import JobState, TaskState
from notifications import occurrences as known
from notifications.models import Delivery, Rule
from notifications.occurrences import Occurrence
from notifications.triggers import Trigger
from trainmaster.quantities import duration

#: jobs that one pass tells of; the others come with the next
PER_PASS = 200


def occurrences(rules: Sequence[Rule], now: datetime) -> Iterable[Occurrence]:
    """What the rules ask for, each named by when it began, so that it is told once."""
    minutes = [
        each["condition"]["minutes"]
        for rule in rules
        for each in rule.triggers
        if each["type"] == Trigger.LONG_WAIT
    ]
    if minutes:
        yield from _waiting(sorted(set(minutes)), now)
    if any(each["type"] == Trigger.IDLE_GPU for rule in rules for each in rule.triggers):
        yield from _idle(now)


def _waiting(minutes: Sequence[int], now: datetime) -> Iterable[Occurrence]:
    """Active jobs of which nothing runs and something waits: since they were submitted, activated or stopped."""
    tasks = Task.objects.filter(job=OuterRef("pk"))
    of_job = {
        "kind": Event.Kind.JOB,
        "subject": Cast(OuterRef("pk"), CharField()),
        "to_state": JobState.ACTIVE,
    }
    activated = Event.objects.filter(**of_job).order_by("-id")
    rows = (
        Job.objects.filter(state=JobState.ACTIVE, submitted_at__lt=now - timedelta(minutes=minutes[0]))
        .filter(Exists(tasks.filter(state=TaskState.WAITING)), ~Exists(tasks.filter(state=TaskState.RUNNING)))
        .select_related("owner", "pool")
        .annotate(
            stopped_at=Max("tasks__allocations__ended_at"), activated_at=Subquery(activated.values("at")[:1])
        )
        .order_by("submitted_at")
    )
    waits = [(job, _since(job)) for job in rows]
    due: dict[str, tuple[Job, datetime, int]] = {}
    for job, since in waits:
        waited = (now - since).total_seconds() / 60
        for limit in minutes:  # each limit that somebody named is a thing of its own to tell
            if waited >= limit:
                due[f"wait:{job.pk}:{since:%Y%m%dT%H%M%S}:{limit}"] = (job, since, limit)
    for source in _untold(list(due)):
        waiting, since, limit = due[source]
        found = known.about(waiting, source, Trigger.LONG_WAIT)
        if found:
            seconds = (now - since).total_seconds()
            found.facts |= {
                "waited": duration(seconds),
                "limit": limit,
                "time": f"{now:%Y-%m-%d %H:%M:%S} UTC",
            }
            found.facts["sentence"] = known.waits(found.facts)
            found.happened_at = now
            yield found


def _since(job: Any) -> datetime:
    """The latest of the times that _waiting asks for beside the job."""
    times: list[datetime | None] = [job.submitted_at, job.activated_at, job.stopped_at]
    return max(time for time in times if time is not None)


def _idle(now: datetime) -> Iterable[Occurrence]:
    """Attempts that hold GPUs which do nothing (dispatch.watching.idle_gpus marks them), each once."""
    holds = SlotHold.objects.filter(Q(released_at=None), ~Q(slot__idle_since=None)).select_related(
        "slot__host", "member__allocation__task__job__owner", "member__allocation__task__job__pool"
    )
    slots: dict[str, list[Slot]] = defaultdict(list)
    jobs: dict[str, Job] = {}
    for hold in holds:
        allocation = hold.member.allocation
        slots[f"idle:{allocation.pk}"].append(hold.slot)
        jobs[f"idle:{allocation.pk}"] = allocation.task.job
    for source in _untold(list(slots)):
        found = known.about(jobs[source], source, Trigger.IDLE_GPU)
        if found is None:
            continue
        idle = slots[source]
        since = min(slot.idle_since for slot in idle if slot.idle_since)
        hosts = ", ".join(sorted({slot.host.name for slot in idle}))
        waited = duration((now - since).total_seconds())
        found.facts |= {
            "host": hosts,
            "waited": waited,
            "gpus": len(idle),
            "time": f"{now:%Y-%m-%d %H:%M:%S} UTC",
        }
        found.facts["sentence"] = known.idles(found.facts, len(idle))
        found.happened_at = now
        yield found


def _untold(sources: list[str]) -> list[str]:
    told = set(Delivery.objects.filter(source__in=sources).values_list("source", flat=True))
    return [source for source in sources if source not in told][:PER_PASS]
