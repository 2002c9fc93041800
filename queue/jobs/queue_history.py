"""The edits of a job in words: who, what, when. Read from its event rows, which stay when an undo is past."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from events.models import Event
from jobs.models import Job
from jobs.states import Reason

_EDITS = [Reason.PRIORITY_SET, Reason.WEIGHT_SET, Reason.MAX_SLOTS_SET, Reason.MOVED, Reason.POOL_CHANGED]
_WORDS = {"pool": "resource pool", "max_slots": "max_slots"}
#: what follows from a move and is none of the words
_SILENT = {"moved_at", "position"}


@dataclass(frozen=True)
class JobEdit:
    """`change`: `priority 42 to 7`, `moved`, `priority 42 to 5, moved`."""

    at: datetime
    user: str
    change: str
    undo: bool


def edits_of(job: Job, most: int) -> list[JobEdit]:
    """The newest edits of the job, at most so many."""
    events = Event.objects.filter(kind=Event.Kind.JOB, subject=str(job.pk), reason__in=_EDITS)
    return [
        JobEdit(event.at, _user(event), in_words(event), "undoes" in event.detail)
        for event in events.order_by("-id")[:most]
    ]


@dataclass(frozen=True)
class Changed:
    """A value that edits have changed since the submission: `was` then, `now`, and the last edit of it.

    `name`: priority, weight, pool (by its name) or max_slots.
    """

    name: str
    was: Any
    now: Any
    at: datetime
    user: str


def changed_of(job: Job) -> list[Changed]:
    """What is not as it was submitted, since people edited the queue; what was put back is not among it."""
    events = Event.objects.filter(kind=Event.Kind.JOB, subject=str(job.pk), reason__in=_EDITS)
    found: dict[str, Changed] = {}
    for event in events.order_by("id"):
        for name, change in event.detail.items():
            if isinstance(change, list) and name not in _SILENT:
                was = found[name].was if name in found else change[0]
                found[name] = Changed(name, was, change[1], event.at, _user(event))
    return [each for each in found.values() if each.was != each.now]


def _user(event: Event) -> str:
    return event.actor.partition(":")[2] or event.actor


def in_words(event: Event) -> str:
    """What an event row of an edit changed."""
    parts = [
        f"{_WORDS.get(name, name)} {_value(change[0])} to {_value(change[1])}"
        for name, change in event.detail.items()
        if isinstance(change, list) and name not in _SILENT
    ]
    return ", ".join([*parts, *(["moved"] if "position" in event.detail else [])])


def _value(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
