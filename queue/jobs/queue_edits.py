"""Edits of the queue by people: priority, weight, max_slots, pool and place, all in one step or not at all.

decisions.md "Queue order" and "Manage Job": jobs of a priority pool stand by (priority, position). A move
gives a position between two neighbors; it survives a change of priority, a pause and a restart.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from accounts.refusals import Code, Refusal
from hosts.models import ResourcePool
from jobs import deadlines, queue_history
from jobs.capacity import refuse_job_that_never_fits
from jobs.models import Allocation, Job, Task
from jobs.queue_history import last_undoable, undo
from jobs.queue_order import beside, between, places, stands_between
from jobs.queue_rules import (
    floor_error,
    max_slots_error,
    need_knob,
    need_order,
    position_error,
    priority_error,
    refuse_strict,
    refuse_viewer,
    short,
    weight_error,
)
from jobs.queue_writes import (
    Change,
    Edit,
    change_pool,
    lock_attempts,
    lock_jobs,
    one_edit_at_a_time,
    put_back,
    put_off,
    renumber,
    save,
)
from jobs.states import AllocationState, JobState, Reason
from scheduling import giving_back
from scheduling.reasons import slots

__all__ = [
    "Change", "Update", "apply", "find", "last_undoable", "max_slots_error", "position_error", "priority_error",
    "short", "undo", "weight_error",
]  # fmt: skip

#: the value of max_slots that lifts the limit
NO_LIMIT = "none"

_DIGITS, _WHOLE = 32, 36  # of an id, without and with its dashes
_EXPERIMENT = re.compile(r"exp(?:eriment)?\s*(\d{1,18})", re.ASCII)


@dataclass(frozen=True)
class Update:
    """What to change of one job. Absent fields stay.

    Applied in the order pool, priority, weight, max_slots, deadline, place.
    One place at most: right ahead of a job, right behind one, to the top, or position 1…N (jobs ahead + 1).
    `max_slots`: at most so many slots at once for the job's tasks together, or NO_LIMIT. `deadline`: as in a config,
    or `deadlines.NO_DEADLINE`.
    """

    job_id: str
    priority: int | None = None
    weight: float | None = None
    max_slots: int | str | None = None
    deadline: int | str | None = None
    pool: str | None = None
    ahead_of: str | None = None
    behind_of: str | None = None
    to_top: bool = False
    position: int | None = None


Step = Callable[[Job, Edit], Change | None]


@transaction.atomic
def apply(updates: Sequence[Update], *, actor: str, role: str) -> list[Change]:
    """Make all edits, in order; each change that was made. Raises Refusal and changes nothing.

    `actor` is "user:<name>", who may take the edit back with `undo`; what a role may change is said by
    `queue_rules`. The rows of all jobs are locked first, their open allocations before them.
    """
    refuse_viewer(actor, role)
    one_edit_at_a_time()
    found = _ids([update.job_id for update in updates])
    lock_attempts([found[update.job_id] for update in updates if update.pool is not None])
    locked = _lock(found)
    edit = Edit(actor, role)
    changes: list[Change] = []
    for update in updates:
        job = locked[found[update.job_id]]
        if edit.renumbered:
            job.refresh_from_db(fields=["position", "usual_position"])
        changes += _edit(job, update, edit)
    queue_history.remember(edit, changes)
    edit.announce()
    return changes


def _edit(job: Job, update: Update, edit: Edit) -> list[Change]:
    """The changes of one update, checked against what the role may do before and after them."""
    _refuse_closed(job, edit.actor, edit.role)
    pool, priority = job.pool, job.priority
    changes = [change for step in _steps(update) if (change := step(job, edit))]
    if update.priority is not None and job.priority != update.priority:
        raise Refusal(
            f"its new position is among jobs of priority {job.priority}, so it cannot have priority {update.priority}; "
            "change one of the two",
            field="priority",
        )
    if job.pool != pool:
        refuse_strict(job, edit.actor, edit.role)
    if (job.pool != pool or job.priority < priority) and (
        error := floor_error(job.pool, edit.role, job.priority)
    ):
        raise Refusal(error, field="priority")
    return changes


def _refuse_closed(job: Job, actor: str, role: str) -> None:
    if job.state == JobState.ENDED:
        raise Refusal(f"job {short(job.pk)} has ended; only jobs in the queue can be changed", Code.ENDED)
    refuse_strict(job, actor, role)


def find(text: str) -> Job:
    """The job whose id starts with the text; of several, the one that has not ended. Raises Refusal otherwise.

    `exp 7` and the id of a command name the job of that work, as sentences about the queue call it.
    """
    jobs = Job.objects.select_related("owner", "pool").order_by("pk")
    digits = str(text).strip().lower().replace("-", "")
    if experiment := _EXPERIMENT.fullmatch(digits):
        jobs = jobs.filter(kind=Job.Kind.EXPERIMENT, entity_id=experiment[1])
    elif 0 < len(digits) <= _DIGITS and set(digits) <= set("0123456789abcdef"):
        bounds = uuid.UUID(digits.ljust(_DIGITS, "0")), uuid.UUID(digits.ljust(_DIGITS, "f"))
        named = jobs.filter(pk__range=bounds)
        command = str(text).strip().lower()
        others = jobs.exclude(kind=Job.Kind.EXPERIMENT)
        jobs = named if named.exists() else others.filter(entity_id__startswith=command)
    else:
        jobs = jobs.none()
    matches = jobs.exclude(state=JobState.ENDED)[:2] or jobs[:2]
    if not matches:
        raise Refusal(f"job {text} not found", Code.NOT_FOUND)
    if len(matches) > 1:
        raise Refusal(f"job {text} is ambiguous: several job ids start with it; give more characters")
    return matches[0]


def _ids(texts: Sequence[str]) -> dict[str, uuid.UUID]:
    """Id as given -> id of the job; whole ids in one query, however many. Raises Refusal."""
    whole = [text for text in texts if len(str(text)) == _WHOLE]
    with contextlib.suppress(ValidationError):
        known = {str(pk): pk for pk in Job.objects.filter(pk__in=whole).values_list("pk", flat=True)}
        return {text: known.get(text) or find(text).pk for text in texts}
    return {text: find(text).pk for text in texts}


def _lock(found: Mapping[str, uuid.UUID]) -> dict[uuid.UUID, Job]:
    """The jobs of ids as given. Raises Refusal for one that was deleted since it was found."""
    locked = lock_jobs(found.values())
    for text, pk in found.items():
        if pk not in locked:
            raise Refusal(f"job {text} not found", Code.NOT_FOUND)
    return locked


def _steps(update: Update) -> list[Step]:
    """The edits of one update in the order in which they make sense together."""
    steps: list[Step] = []
    if (pool := update.pool) is not None:
        steps.append(lambda job, edit: _set_pool(job, pool, edit))
    given = {name: value for name in _KNOBS if (value := getattr(update, name)) is not None}
    steps += [partial(_set_knob, name, value) for name, value in given.items()]
    if update.max_slots is not None:
        steps.append(partial(_set_max_slots, None if update.max_slots == NO_LIMIT else update.max_slots))
    if update.deadline is not None:
        steps.append(partial(_set_deadline, update.deadline))
    steps += _moves(update)
    if not steps:
        raise Refusal(f"no change was given for job {update.job_id}")
    return steps


def _moves(update: Update) -> list[Step]:
    moves: list[Step] = []
    if (ahead := update.ahead_of) is not None:
        moves.append(lambda job, edit: _place(job, _anchor(job, ahead), True, edit))
    if (behind := update.behind_of) is not None:
        moves.append(lambda job, edit: _place(job, _anchor(job, behind), False, edit))
    if update.to_top:
        moves.append(lambda job, edit: _to_position(job, 1, edit))
    if (position := update.position) is not None:
        moves.append(lambda job, edit: _to_position(job, position, edit))
    if len(moves) > 1:
        raise Refusal(
            "a job can be moved ahead of a job, behind a job, to the top or to a position: give only one of these"
        )
    return moves


#: what is wrong with a value, the reason of the event, and the type of the column
_KNOBS: dict[str, tuple[Callable[[Any], str | None], Reason, Callable[[Any], float]]] = {
    "priority": (priority_error, Reason.PRIORITY_SET, int),
    "weight": (weight_error, Reason.WEIGHT_SET, float),
}


def _set_knob(name: str, value: float, job: Job, edit: Edit) -> Change | None:
    error_of, reason, type_of = _KNOBS[name]
    if error := error_of(value):
        raise Refusal(error, field=name)
    need_knob(job, name)
    if getattr(job, name) == value:
        return None
    # its deadline had moved it ahead of others of its former priority alone
    back = put_back(job) if name == "priority" else {}
    save(job, edit, reason, **{name: type_of(value)}, **back)
    return Change(job, f"it gets {name} {value:g}")


def _set_max_slots(most: Any, job: Job, edit: Edit) -> Change | None:
    """The next pass asks the newest runs that must go to save and leave; the change says so."""
    if error := max_slots_error(most):
        raise Refusal(error, field="max_slots")
    if job.max_slots == most:
        return None
    save(job, edit, Reason.MAX_SLOTS_SET, max_slots=most)
    may = "any number of slots" if most is None else slots(most)
    return Change(job, f"it may hold {may}{giving_back.answer(_held(job), most)}")


def _set_deadline(value: Any, job: Job, edit: Edit) -> Change | None:
    """A job that its deadline had moved ahead is put back by a later one, or none; it goes ahead again if need be."""
    at = deadlines.given(value, timezone.now())
    if at == job.deadline_at:
        return None
    if at is not None and (why := deadlines.useless(job.pool, _largest(job))):
        raise Refusal(f"job {short(job.pk)} needs no deadline: {why}", field="deadline")
    save(job, edit, Reason.DEADLINE_SET, deadline_at=at, late_told_at=None, **put_off(job, at))
    return Change(job, f"its deadline is {at:%Y-%m-%d %H:%M} UTC" if at else "it has no deadline")


def _largest(job: Job) -> int:
    """Slots of its largest task."""
    return int(Task.objects.filter(job=job).aggregate(most=Max("slots"))["most"] or 0)


def _held(job: Job) -> list[giving_back.Held]:
    """The job's runs that nobody has asked to stop."""
    runs = Allocation.objects.filter(task__job=job, stop_kind="").exclude(state=AllocationState.TERMINATED)
    return [giving_back.Held(run.assigned_at.timestamp(), run.pk, run.slots, job.preemptible) for run in runs]


def _set_pool(job: Job, name: str, edit: Edit) -> Change | None:
    pool = ResourcePool.objects.filter(name=name).first()
    if pool is None:
        known = ", ".join(ResourcePool.objects.values_list("name", flat=True))
        raise Refusal(f"invalid resource pool name {name}; the pools are: {known}", field="pool")
    if job.kind != Job.Kind.EXPERIMENT:
        raise Refusal(
            f"setting resource pool for job type {job.kind} is not supported; "
            f"cancel job {short(job.pk)} and submit it again in resource pool {name}",
            field="pool",
        )
    if pool.pk == job.pool_id:
        raise Refusal(f"resource pool is unchanged ({job.pool.name} == {name})", field="pool")
    refuse_job_that_never_fits(job, pool)
    change_pool(job, pool, edit, **put_back(job))
    return Change(job, f"it moves to resource pool {name}")


def _anchor(job: Job, text: str) -> Job:
    anchor = find(text)
    if anchor.state == JobState.ENDED:
        raise Refusal(f"job {short(anchor.pk)} has ended and is not in a queue", Code.ENDED)
    if anchor.pool_id != job.pool_id:
        raise Refusal(
            f"job {short(anchor.pk)} is in resource pool {anchor.pool.name}, job {short(job.pk)} in {job.pool.name}"
        )
    return anchor


def _to_position(job: Job, position: int, edit: Edit) -> Change | None:
    """Ahead of the job that stands there now, or behind it when the way is down; jobs that rest do not count."""
    need_order(job)
    queue = places(job.pool)
    others = [pk for pk in queue if pk != job.pk]
    if error := position_error(position, len(others) + 1):
        raise Refusal(error, field="position")
    stands = queue.index(job.pk) + 1 if job.pk in queue else None
    if position == stands or not others:
        return None
    ahead = position <= len(others) and (stands is None or position < stands)
    anchor = others[position - 1 if ahead else position - 2]
    return _place(job, Job.objects.get(pk=anchor), ahead, edit)


def _place(job: Job, anchor: Job, ahead: bool, edit: Edit) -> Change | None:
    """Put the job right ahead of the anchor, or right behind it; it takes the anchor's priority."""
    need_order(job)
    if anchor.pk == job.pk:
        return None
    before, after = beside(job, anchor, ahead)
    if job.priority == anchor.priority and stands_between(job, before, after):
        return None
    position = between(before, after)
    if position is None:
        renumber(job.pool, anchor.priority, job.pk, edit)
        anchor.refresh_from_db(fields=["position"])
        position = between(*beside(job, anchor, ahead))
    assert position is not None
    old = job.priority
    save(
        job,
        edit,
        Reason.MOVED,
        priority=anchor.priority,
        position=position,
        moved_at=timezone.now(),
        usual_position=None,
    )
    side = "ahead of" if ahead else "behind"
    takes = f" and takes its priority {anchor.priority}" if old != anchor.priority else ""
    return Change(job, f"it goes {side} ", anchor, takes)
