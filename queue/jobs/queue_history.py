"""Past edits of the queue: in words (who, what, when), and taken back by their author.

The words are read from the event rows of a job, which stay when an undo is past. The last edit can be undone while
nothing else has changed what it changed.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounts.models import User
from accounts.refusals import Code, Refusal
from events.models import Event
from hosts.models import ResourcePool
from hosts.pool_windows import WINDOW_EDITS
from jobs.models import Job, QueueEdit
from jobs.queue_rules import refuse_strict, refuse_viewer, short
from jobs.queue_writes import (
    Change,
    Edit,
    State,
    change_pool,
    lock_attempts,
    lock_jobs,
    one_edit_at_a_time,
    put_back,
    put_off,
    save,
    state_of,
)
from jobs.states import JobState, Reason

_EDITS = [
    Reason.PRIORITY_SET, Reason.WEIGHT_SET, Reason.MAX_SLOTS_SET, Reason.DEADLINE_SET, Reason.MOVED,
    Reason.POOL_CHANGED,
]  # fmt: skip
#: what else changes when others start
_SWITCHES = [
    Reason.PAUSED_BY_USER, Reason.ACTIVATED_BY_USER, Reason.CANCELED_BY_USER, Reason.KILLED_BY_USER,
    Reason.DEADLINE_AHEAD,
]  # fmt: skip
_WORDS = {"pool": "resource pool", "max_slots": "max_slots", "deadline_at": "deadline"}
#: what an undo writes again besides the pool, and the reason of its event: the first that applies
_RESTORED = {
    "position": Reason.MOVED,
    "priority": Reason.PRIORITY_SET,
    "weight": Reason.WEIGHT_SET,
    "max_slots": Reason.MAX_SLOTS_SET,
    "deadline_at": Reason.DEADLINE_SET,
    "usual_position": Reason.DEADLINE_SET,
}
#: what follows from a move or a deadline and is none of the words
_SILENT = {"moved_at", "position", "usual_position", "late_told_at"}
_ACTOR = "user:"


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


def edits_since(pool_id: int, since: datetime) -> list[datetime]:
    """When users edited, paused, activated or ended or moved jobs of the pool, or edited its windows."""
    name = ResourcePool.with_removed.values_list("name", flat=True).get(pk=pool_id)
    events = Event.objects.filter(
        Q(job_id__in=Job.objects.filter(pool=pool_id).values("pk")) | Q(detail__pool__0=name),
        kind=Event.Kind.JOB,
        at__gt=since,
        reason__in=[*_EDITS, *_SWITCHES],
    )
    return [*events.values_list("at", flat=True), *window_edits_since(pool_id, since)]


def window_edits_since(pool_id: int, since: datetime) -> list[datetime]:
    """When windows of the pool were added, changed or removed."""
    events = Event.objects.filter(
        kind=Event.Kind.POOL, subject=str(pool_id), at__gt=since, reason__in=WINDOW_EDITS
    )
    return list(events.values_list("at", flat=True))


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


def changes_of(event: Event) -> list[tuple[str, str, str]]:
    """What an event row of an edit changed: (name, was, now)."""
    return [
        (_WORDS.get(name, name), _value(change[0]), _value(change[1]))
        for name, change in event.detail.items()
        if isinstance(change, list) and name not in _SILENT
    ]


def in_words(event: Event) -> str:
    """What an event row of an edit changed."""
    parts = [f"{name} {was} to {now}" for name, was, now in changes_of(event)]
    if "passes" in event.detail:
        parts.append(f"past {event.detail['passes']}")
    elif event.detail.get("usual_position", [None, 0])[1] is None and "moved_at" not in event.detail:
        parts.append("put back from where its deadline had moved it")
    elif "position" in event.detail:
        parts.append("moved")
    return ", ".join(parts)


def _value(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def remember(edit: Edit, changes: list[Change]) -> None:
    """Keep the edit for its author's undo; those that are too old for one go (their events stay)."""
    author = User.objects.filter(username=edit.actor.removeprefix(_ACTOR)).first()
    if author is None or not edit.actor.startswith(_ACTOR) or not changes:
        return
    after = {str(job.pk): state_of(job) for job in Job.objects.filter(pk__in=edit.before)}
    changed = [state for state in edit.before.values() if state != after[state["job"]]]
    QueueEdit.objects.filter(author=author, made_at__lt=_oldest()).delete()
    QueueEdit.objects.create(
        author=author,
        sentences=[change.by_name for change in changes],
        before=changed,
        after=[after[state["job"]] for state in changed],
    )


def last_undoable(user: User) -> QueueEdit | None:
    """The author's newest edit that was not undone and is not too old; `undo` may still refuse it."""
    return QueueEdit.objects.filter(author=user, undone_at=None, made_at__gte=_oldest()).first()


@transaction.atomic
def undo(user: User) -> list[Change]:
    """Take back the author's last edit, all of it; the change of each job. Raises Refusal and changes nothing.

    It is an edit like others: it has its events and the role must allow it. A place that is given back
    counts as a move at this moment, so that what started because of the edit may be stopped again.
    """
    actor = f"{_ACTOR}{user.username}"
    refuse_viewer(actor, user.role)
    one_edit_at_a_time()
    last = last_undoable(user)
    if last is None:
        minutes = round(settings.QUEUE_UNDO_SECONDS / 60)
        raise Refusal(
            f"you have made no edit that can be undone in the last {minutes} minutes", Code.CONFLICT
        )
    ids = [uuid.UUID(state["job"]) for state in last.before]
    lock_attempts(ids)
    jobs = lock_jobs(ids)
    edit = Edit(actor, user.role, detail={"undoes": last.pk})
    changes = []
    for job_id, before, after in zip(ids, last.before, last.after, strict=True):
        job = jobs.get(job_id)
        _refuse_if_changed(job, before, after, last.made_at, edit)
        assert job is not None
        changes.append(Change(job, _restore(job, before, after, edit)))
    QueueEdit.objects.filter(pk=last.pk).update(undone_at=timezone.now())
    edit.announce()
    return changes


def _oldest() -> datetime:
    return timezone.now() - timedelta(seconds=settings.QUEUE_UNDO_SECONDS)


def _refuse_if_changed(job: Job | None, before: State, after: State, since: datetime, edit: Edit) -> None:
    if job is None or job.state == JobState.ENDED:
        raise Refusal(f"job {before['job'][:8]} has ended since then; nothing was undone", Code.ENDED)
    refuse_strict(job, edit.actor, edit.role)
    now, left = _as_people_left(state_of(job)), _as_people_left(after)
    if any(now[name] != value for name, value in left.items()):  # an older server noted fewer fields
        other = Event.objects.filter(kind=Event.Kind.JOB, subject=str(job.pk), at__gt=since).last()
        by = f" by {other.actor.removeprefix(_ACTOR)}" if other else ""
        raise Refusal(
            f"job {short(job.pk)} has been changed{by} since then; nothing was undone", Code.CONFLICT
        )
    if not ResourcePool.objects.filter(pk=before["pool"]).exists():
        raise Refusal(
            f"the resource pool of job {short(job.pk)} no longer exists; nothing was undone", Code.CONFLICT
        )


def _as_people_left(state: State) -> State:
    """The state with the place from which its deadline moved the job, which is nobody's edit."""
    usual = state.get("usual_position")
    place = state["position"] if usual is None else usual
    return {name: value for name, value in state.items() if name != "usual_position"} | {"position": place}


def _restore(job: Job, before: State, after: State, edit: Edit) -> str:
    """Write what it was; what that is in words."""
    fields = {name: before[name] for name in _RESTORED if before.get(name) != after.get(name)}
    if before["moved_at"] != after["moved_at"]:
        # only what no user has moved goes ahead for its deadline
        is_its_deadlines = before["moved_at"] is None and before.get("deadline_at") is not None
        fields["moved_at"] = None if is_its_deadlines else timezone.now()
    words = [
        f"{_WORDS.get(name, name)} {_value(fields[name])} again"
        for name in _RESTORED
        if name in fields and name not in _SILENT
    ]
    if "deadline_at" in fields:
        at = before["deadline_at"]
        deadline = datetime.fromisoformat(at) if at else None
        fields = {**put_off(job, deadline), **fields, "deadline_at": deadline, "late_told_at": None}
    if "priority" in fields or before["pool"] != after["pool"]:
        fields = {**put_back(job), **fields}
    if "position" in fields:
        words.append("its former position")
    if before["pool"] != after["pool"]:
        pool = ResourcePool.objects.get(pk=before["pool"])
        change_pool(job, pool, edit, **fields)
        return f"it is back in resource pool {pool.name}" + (f", with {' and '.join(words)}" if words else "")
    save(job, edit, next(reason for name, reason in _RESTORED.items() if name in fields), **fields)
    return f"it has {' and '.join(words)}"
