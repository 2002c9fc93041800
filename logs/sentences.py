"""Event rows in words, for the server's own lines in a task's log."""

from __future__ import annotations

from typing import Any, NamedTuple

from events.models import Event
from jobs import cleaning, exits
from jobs.states import NOT_THE_CODES_FAULT, AllocationState, MemberState, Reason, TaskState
from logs.alerts import alert_of
from logs.levels import Level
from logs.log_labels import match_of
from logs.stops import by, label
from trainmaster.quantities import duration


class Sentence(NamedTuple):
    level: Level
    text: str


#: Ends that need somebody's attention; the others are somebody's wish or the plain end.
_FAILURES = frozenset(
    {Reason.RANK_FAILED, Reason.COMMAND_FAILED, Reason.COMMAND_NOT_FOUND, Reason.INVALID_HP, Reason.LAUNCH_FAILED,
     Reason.PORT_IN_USE, Reason.STORAGE_FAILED, Reason.HOST_LOST, Reason.HOST_RESTARTED, Reason.RUN_VANISHED,
     Reason.NO_SIGN_OF_LIFE, Reason.REPORTED_FAILURE, Reason.METRIC_MISSING,
     Reason.STOP_TIMED_OUT, Reason.RESTARTS_EXHAUSTED, Reason.RETRIES_CANCELED, Reason.TIME_LIMIT}
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


def sentence(event: Event) -> Sentence | None:
    """What the log says about an event of its task; None for one that the log need not name."""
    match event.kind:
        case Event.Kind.ALLOCATION:
            return _of_allocation(event)
        case Event.Kind.MEMBER:
            return _of_member(event)
        case Event.Kind.TASK:
            return _of_task(event)
        case Event.Kind.TRIAL if alert := alert_of(event):
            return Sentence(alert.level, alert.sentence)
    return None


def _of_allocation(event: Event) -> Sentence | None:
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
        return Sentence(Level.WARNING, match_of(event).sentence)
    match event.to_state:
        case AllocationState.STARTING if event.reason == Reason.STARTED_BY_USER:
            names = ", ".join(str(name) for name in detail.get("hosts", []))
            return Sentence(Level.INFO, f"{run} was started{by(event.actor)} outside the queue, on {names}.")
        case AllocationState.RUNNING if event.reason == Reason.HEARD_AGAIN:
            return Sentence(Level.INFO, f"{run} responded again and continues.")
        case AllocationState.ASSIGNED:
            extra = " as backfill, ahead of its turn" if event.reason == Reason.BACKFILLED else ""
            return Sentence(Level.INFO, f"{run} was assigned to {_hosts(detail)}{extra}.")
        case AllocationState.RUNNING:
            return Sentence(Level.INFO, f"{run} has started.")
        case AllocationState.TERMINATED:
            return _of_end(run, event)
    return None


def _hosts(detail: dict[str, Any]) -> str:
    hosts = [str(name) for name in detail.get("hosts", [])]
    slots = list(detail.get("slots", []))
    slots += [0] * (len(hosts) - len(slots))
    named = [f"{host} ({_count(number, 'slot')})" for host, number in zip(hosts, slots, strict=False)]
    return ", ".join(named) or "no host"


def _of_stop(run: str, event: Event) -> Sentence:
    how = "was asked to save and exit" if event.detail["stop"] == "PREEMPT" else "is being stopped"
    return Sentence(Level.INFO, f"{run} {how}: {label(event.reason)}{by(event.actor)}.")


def _of_end(run: str, event: Event) -> Sentence:
    if event.reason == Reason.COMPLETED:
        return Sentence(Level.INFO, f"{run} ended with exit code 0{known_late(event)}.")
    level = Level.ERROR if event.reason in _FAILURES else Level.INFO
    if silent := event.detail.get("silent_seconds"):
        return Sentence(level, f"{run} was given up: no sign of life for {duration(silent)}.")
    why = _lacking(event) or label(event.reason) + _failure(event.detail)
    return Sentence(level, f"{run} ended: {why}{known_late(event)}.")


def known_late(event: Event) -> str:
    """That an attempt ended long before the server learned of it: one of the two was away, or had much to bring."""
    seconds = event.detail.get("known_after_seconds")
    return f"; it had ended {duration(seconds)} earlier" if seconds else ""


def _lacking(event: Event) -> str:
    """What the host lacks to run the task's program, where that program said so."""
    return str(event.detail.get("sentence") or "") if event.reason == Reason.COMMAND_NOT_FOUND else ""


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
    return Sentence(Level.ERROR, f"The part on {host} ended: {label(event.reason)}{_failure(detail)}.")


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
        return Sentence(level, f"The task has ended{why}.")
    return None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
