"""Event rows in words, for the server's own lines in a task's log; and who or what told an attempt to end."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from events.models import Event
from hosts.models import Host
from jobs import cleaning, dialect_ends, exits
from jobs.models import Allocation, Member, Task
from jobs.states import NOT_THE_CODES_FAULT, AllocationState, MemberState, Reason, StopKind, TaskState
from logs.alerts import alert_of
from logs.levels import Level
from logs.log_labels import EXCLUDE_NODE, match_of
from trainmaster import dialect_words
from trainmaster.quantities import counted, duration

_SIGKILL = 9
_WISHES = {
    Reason.KILLED_BY_USER: "Killed",
    Reason.CANCELED_BY_USER: "Canceled",
    Reason.PAUSED_BY_USER: "Paused",
    Reason.POOL_CHANGED: "Moved to another resource pool",
    Reason.WINDOW: "Asked to save and stop, since its hosts are about to be taken for maintenance or a reservation",
    Reason.MAX_SLOTS_SET: "Asked to give back its slots, since the max_slots of its job was lowered",
    Reason.SEARCHER_STOPPED: "Stopped by the searcher",
    Reason.SEARCHER_PARKED: "Parked at a rung of its search, which may promote it later",
}

_BY_SEARCHER = frozenset({Reason.SEARCHER_STOPPED, Reason.SEARCHER_PARKED})


class Sentence(NamedTuple):
    level: Level
    text: str


#: Ends that need somebody's attention; the others are somebody's wish or the plain end.
_FAILURES = frozenset(
    {Reason.RANK_FAILED, Reason.COMMAND_FAILED, Reason.COMMAND_NOT_FOUND, Reason.INVALID_HP, Reason.LAUNCH_FAILED,
     Reason.PORT_IN_USE, Reason.STORAGE_FAILED, Reason.HOST_LOST, Reason.HOST_RESTARTED, Reason.RUN_VANISHED,
     Reason.NO_SIGN_OF_LIFE, Reason.REPORTED_FAILURE, Reason.METRIC_MISSING,
     Reason.STOP_TIMED_OUT, Reason.RESTARTS_EXHAUSTED, Reason.RETRIES_CANCELED, Reason.SAME_FAILURE,
     Reason.TIME_LIMIT, Reason.HANG, Reason.HANG_OF_HOST}
)  # fmt: skip
#: What ends all members of an attempt at once is said of the attempt alone.
_OF_ALL_MEMBERS = frozenset({Reason.NO_SIGN_OF_LIFE, Reason.REPORTED_FAILURE})
#: What is said of processes that have outlived the run.
_OF_REMAINS: dict[str, tuple[Level, str]] = {
    Reason.CLEANING: (
        Level.WARNING,
        "Some of its processes are still running on {host} ({pids}); they are being stopped.",
    ),
    Reason.STOP_TIMED_OUT: (Level.ERROR, "Its remaining processes on {host} survived SIGKILL ({pids})."),
    Reason.CLEANED: (Level.INFO, "None of its processes are left on {host}."),
}
_COUNTED = _FAILURES - NOT_THE_CODES_FAULT  # what is tried again at the cost of a restart


def task_of(task_id: str) -> Task | None:
    """The task as `sentence` needs it; None if it is gone."""
    return Task.objects.select_related("job").filter(pk=task_id).first()


def tasks_of(task_ids: Collection[str]) -> dict[str, Task]:
    """The tasks of many logs, as `sentence` needs them."""
    return Task.objects.select_related("job").in_bulk(task_ids) if task_ids else {}


def sentence(event: Event, task: Task | None = None) -> Sentence | None:
    """What the log says about an event of its task; None for one that the log need not name.

    The task is read if it is not given, so give it with many events of one.
    """
    match event.kind:
        case Event.Kind.ALLOCATION:
            return _of_allocation(event, task)
        case Event.Kind.MEMBER:
            return _of_member(event)
        case Event.Kind.TASK:
            return _of_task(event)
        case Event.Kind.TRIAL if alert := alert_of(event):
            return Sentence(alert.level, alert.sentence)
    return None


def _of_allocation(event: Event, task: Task | None) -> Sentence | None:
    run = f"Run {event.subject.rpartition('.')[2]}"
    detail = event.detail
    if "stop" in detail:
        return _of_stop(run, event)
    if event.reason == Reason.TIME_NEARLY_UP:
        left, limit = (duration(detail[name]) for name in ("seconds_left", "max_time_seconds"))
        return Sentence(
            Level.WARNING, f"{run} has {left} left of its time limit of {limit}; it will then be stopped."
        )
    if event.reason == Reason.LOG_POLICY:
        return _of_match(event)
    if hang := hang_sentence(event):
        return Sentence(Level.WARNING, f"{run}: {hang}")
    match event.to_state:
        case AllocationState.STARTING if event.reason == Reason.STARTED_BY_USER:
            names = ", ".join(str(name) for name in detail.get("hosts", []))
            return Sentence(Level.INFO, f"{run} was started{by(event.actor)} outside the queue, on {names}.")
        case AllocationState.RUNNING if event.reason == Reason.HEARD_AGAIN:
            return Sentence(Level.INFO, f"{run} responded again and continues.")
        case AllocationState.ASSIGNED:
            extra = " as backfill, ahead of its turn" if event.reason == Reason.BACKFILLED else ""
            ours = f"{run} was assigned to {_hosts(detail)}{extra}."
            return Sentence(Level.INFO, _beside(dialect_words.assigned, event, task, ours))
        case AllocationState.RUNNING:
            return _of_start(run, event, task)
        case AllocationState.TERMINATED:
            return _of_end(run, event, task)
    return None


def _hosts(detail: dict[str, Any]) -> str:
    hosts = [str(name) for name in detail.get("hosts", [])]
    slots = list(detail.get("slots", []))
    slots += [0] * (len(hosts) - len(slots))
    named = [f"{host} ({counted(number, 'slot')})" for host, number in zip(hosts, slots, strict=False)]
    return ", ".join(named) or "no host"


def _beside(theirs: Callable[[str], str], event: Event, task: Task | None, ours: str) -> str:
    """Determined's words of the event's task, and ours; ours alone if the task is gone."""
    task = task or task_of(event.task_id)
    return dialect_words.beside(theirs(dialect_ends.name_of(task)), ours) if task else ours


def _of_start(run: str, event: Event, task: Task | None) -> Sentence:
    task = task or task_of(event.task_id)
    ours = f"{run} has started."
    if task and task.kind == Task.Kind.TRIAL:
        members = Member.objects.filter(allocation=event.subject).select_related("host").order_by("index")
        parts = [(member.run_key, member.host.name) for member in members]
        ours = dialect_words.beside(dialect_words.trial_runners(parts), ours) if parts else ours
    return Sentence(Level.INFO, _beside(dialect_words.started, event, task, ours))


def _of_match(event: Event) -> Sentence:
    match = match_of(event)
    excludes = EXCLUDE_NODE in match.actions
    theirs = dialect_words.excludes(match.pattern, match.line, match.host) if excludes else ""
    return Sentence(Level.WARNING, dialect_words.beside(theirs, match.sentence))


def hang_sentence(event: Event) -> str:
    """What was found to keep an attempt that makes no progress, and what is done about it; empty for other events."""
    if event.reason not in (Reason.HANG, Reason.HANG_OF_HOST) or "hang" not in event.detail:
        return ""
    return f"No progress for {duration(event.detail['seconds'])}. {event.detail['sentence']} {event.detail['outcome']}"


def _of_stop(run: str, event: Event) -> Sentence:
    how = "was asked to save and exit" if event.detail["stop"] == "PREEMPT" else "is being stopped"
    return Sentence(Level.INFO, f"{run} {how}: {label(event.reason)}{by(event.actor)}.")


def _of_end(run: str, event: Event, task: Task | None) -> Sentence:
    level = Level.ERROR if event.reason in _FAILURES else Level.INFO
    if event.reason == Reason.COMPLETED:
        ours = f"{run} ended with exit code 0{known_late(event)}."
    elif silent := event.detail.get("silent_seconds"):
        ours = f"{run} was given up: no sign of life for {duration(silent)}."
    else:
        why = _told(event) or label(event.reason) + _failure(event.detail)
        ours = f"{run} ended: {why}{known_late(event)}."
    end = dialect_ends.of(event.reason, event.detail.get("code"))
    return Sentence(
        level, _beside(lambda name: dialect_words.terminated(name, end.exit_reason), event, task, ours)
    )


def known_late(event: Event) -> str:
    """That an attempt ended long before the server learned of it: one of the two was away, or had much to bring."""
    seconds = event.detail.get("known_after_seconds")
    return f"; it had ended {duration(seconds)} earlier" if seconds else ""


def _told(event: Event) -> str:
    """What kept the entrypoint from starting, in the host's words: a program that it lacks, or a hook that failed."""
    told = event.reason in (Reason.COMMAND_NOT_FOUND, Reason.RANK_FAILED)
    return str(event.detail.get("sentence") or "").rstrip(".") if told else ""


def _failure(detail: dict[str, Any]) -> str:
    """`(rank 2 on gpu1, exit code 137, killed by SIGKILL)`, as far as it is known."""
    where = [f"rank {detail['rank']}"] if detail.get("rank") is not None else []
    if detail.get("host"):
        where.append(f"on {detail['host']}")
    parts = [" ".join(where)] if where else []
    if detail.get("code") is not None or detail.get("signal"):
        parts.append(exits.words(detail.get("code"), detail.get("signal")))
    return f" ({', '.join(parts)})" if parts else ""


def _of_member(event: Event) -> Sentence | None:
    """A gang's part that ended badly; a good end and the way there are said once, by the allocation."""
    if event.to_state in _OF_REMAINS:
        return _of_remains(event)
    if (
        event.to_state != MemberState.ENDED
        or event.reason not in _FAILURES
        or event.reason in _OF_ALL_MEMBERS
    ):
        return None
    detail = {**event.detail, "host": None}
    if event.reason == Reason.COMMAND_NOT_FOUND:  # which says as much as its code
        detail["code"] = None
    host = event.detail.get("host") or f"member {event.detail.get('index', '?')}"
    code = event.detail.get("code")
    ours = f"The part on {host} ended: {_told(event) or label(event.reason) + _failure(detail)}."
    return Sentence(Level.ERROR, dialect_words.beside(dialect_words.crashed(code) if code else "", ours))


def _of_remains(event: Event) -> Sentence | None:
    """Processes that have outlived the run; nothing where none was seen."""
    pids = cleaning.in_words(event.detail.get("remains") or [])
    if not pids:
        return None
    level, text = _OF_REMAINS[event.to_state]
    return Sentence(level, text.format(host=event.detail.get("host"), pids=pids))


def _of_task(event: Event) -> Sentence | None:
    detail = event.detail
    if event.to_state == TaskState.WAITING and event.from_state == TaskState.RUNNING:
        if event.reason in _COUNTED and detail.get("restarts"):
            count = f"restart {detail['restarts']} of {detail.get('max_restarts', '?')}"
            return Sentence(Level.WARNING, f"Queued again ({count}): {label(event.reason)}.")
        return Sentence(Level.INFO, f"Queued again: {label(event.reason)}{by(event.actor)}.")
    if event.to_state == TaskState.WAITING and event.from_state:
        return Sentence(Level.INFO, f"Queued: {label(event.reason)}{by(event.actor)}.")
    if event.to_state == TaskState.PAUSED and event.from_state and event.reason != Reason.REPLACED:
        return Sentence(Level.INFO, f"Paused{by(event.actor)}.")
    if event.to_state == TaskState.ENDED:
        level = Level.ERROR if event.reason in _FAILURES else Level.INFO
        why = "" if event.reason == Reason.COMPLETED else f": {label(event.reason)}"
        theirs = dialect_words.RETRIES_CANCELED if event.reason == Reason.RETRIES_CANCELED else ""
        return Sentence(level, dialect_words.beside(theirs, f"The task has ended{why}."))
    return None


def stop_told(allocation: Allocation, reason: Reason) -> dict[str, str] | None:
    """{"user"?, "reason"} if the attempt ended because it was told to; None if it ended by itself."""
    if (
        not allocation.stop_kind
        or allocation.stop_reason == Reason.PEER_ENDED
        or reason != allocation.stop_reason
    ):
        return None
    user = user_of(allocation.stop_actor)
    return {"user": user, "reason": str(reason)} if user else {"reason": str(reason)}


def stop_sentences(allocation: Allocation, members: list[Member], reason: Reason) -> list[str]:
    """Why it was told to, and how it went."""
    return [_why_told(allocation, members, reason), *_how_it_left(allocation, members)]


def _why_told(allocation: Allocation, members: list[Member], reason: Reason) -> str:
    if reason == Reason.PREEMPTED:
        return f"Preempted by {_other_job(allocation.stop_for_task)}."
    if reason == Reason.TIME_LIMIT:
        limit = allocation.task.max_time_seconds
        return f"Its time limit{f' of {duration(limit)}' if limit else ''} was reached; its checkpoints are kept."
    if reason == Reason.HOST_DISABLED:
        off = [member.host.name for member in members if not member.host.enabled]
        return f"Stopped because {', '.join(off) or 'its host'} was disabled."
    if reason == Reason.HOST_FAULT and (fault := allocation.exit_detail.get("sentence")):
        return f"Stopped because of {reason.label}: {fault}"
    if reason in (Reason.HANG, Reason.HANG_OF_HOST):
        return f"Stopped by the rule for hangs: {reason.label}."
    wish = _WISHES.get(reason)
    if wish is None:
        return f"Stopped: {reason.label}{by(allocation.stop_actor)}."
    return f"{wish}{'' if reason in _BY_SEARCHER else by(allocation.stop_actor)}."


def _other_job(task_id: str) -> str:
    task = Task.objects.select_related("job__owner").filter(pk=task_id).first() if task_id else None
    if task is None:
        return "a job ahead of it in the queue"
    job = task.job
    number = f"{job.get_kind_display().lower()} {job.entity_id[:8]}"
    return f"{number} “{job.name}” of {job.owner.username}, which is ahead of it in the queue"


def _how_it_left(allocation: Allocation, members: list[Member]) -> list[str]:
    """Whether it left by itself, and how long that took."""
    if allocation.stop_requested_at is None or allocation.ended_at is None:
        return []
    took = duration(max(0.0, (allocation.ended_at - allocation.stop_requested_at).total_seconds()))
    if any(member.exit_signal == _SIGKILL or member.exit_code == 128 + _SIGKILL for member in members):
        grace = allocation.stop_grace_seconds
        within = f" within {duration(grace)}" if grace is not None else ""
        return [f"It did not exit{within} and was killed (SIGKILL) {took} after it was told to stop."]
    if allocation.stop_kind == StopKind.PREEMPT and allocation.preempt_acked_at:
        return [f"It saved and exited {took} after it was asked to."]
    return [f"It exited {took} after it was told to stop."]


def lost_host(name: str) -> str:
    """Who declared the host lost."""
    host = Host.objects.filter(name=name).first()
    event = (
        Event.objects.filter(kind=Event.Kind.HOST, subject=str(host.pk), reason="declared_lost").last()
        if host
        else None
    )
    if event is None:
        return f"{name or 'Its host'} was declared lost."
    who = by(event.actor) or " by the pool's rule, because it was silent for too long"
    return f"{name} was declared lost{who}."


def label(reason: str) -> str:
    return str(Reason(reason).label) if reason in Reason.values else reason.replace("_", " ")


def by(actor: str) -> str:
    """` by ada` for `user:ada`; empty for the server and its like."""
    user = user_of(actor)
    return f" by {user}" if user else ""


def user_of(actor: str) -> str:
    """The name in `user:ada`; empty for the server and its like."""
    kind, _, name = actor.partition(":")
    return name if kind == "user" else ""
