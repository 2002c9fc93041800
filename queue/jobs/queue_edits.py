"""Edits of the queue by people: priority, weight, pool and place, all in one step or not at all.

decisions.md "Queue order" and "Manage Job": jobs of a priority pool stand by (priority, position). A move
gives a position between two neighbours; it survives a change of priority, a pause and a restart.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models import TextField
from django.db.models.functions import Cast
from django.utils import timezone

from events.announce import announce
from events.models import Event
from events.record import record
from hosts.models import ResourcePool
from hosts.pools import mark_dirty
from jobs import transitions
from jobs.models import Allocation, Job
from jobs.states import AllocationState, JobState, Reason, StopKind

#: Edits of order are serialised by this advisory lock, so that two moves see each other's positions.
_LOCK_KEY = 0x7472_7175
_SHORT = 8


class Refused(Exception):
    """The edit cannot be made, and none of its batch was; the message is a sentence for the user."""


@dataclass(frozen=True)
class Update:
    """What to change of one job. Absent fields stay. Applied in the order pool, priority, weight, place."""

    job_id: str
    priority: int | None = None
    weight: float | None = None
    pool: str | None = None
    ahead_of: str | None = None
    behind_of: str | None = None
    to_top: bool = False


def priority_error(priority: object) -> str | None:
    """The one sentence about priorities, for page, CLI and API."""
    if isinstance(priority, int) and not isinstance(priority, bool) and 1 <= priority <= 99:
        return None
    return f"priority must be between 1 and 99; 1 is the highest. Found: {priority}."


def weight_error(weight: object) -> str | None:
    """The one sentence about weights."""
    if (
        isinstance(weight, (int, float))
        and not isinstance(weight, bool)
        and math.isfinite(weight)
        and weight > 0
    ):
        return None
    return f"weight must be greater than 0. Found: {weight}."


@transaction.atomic
def apply(updates: list[Update], *, actor: str, role: str) -> list[str]:
    """Make all edits, in order; a sentence for each change that was made. Raises Refused and changes nothing.

    `actor` is "user:<name>"; a role other than admin changes its own jobs alone.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_KEY])
    sentences: list[str] = []
    for update in updates:
        if update.pool is not None:
            _lock_attempts(update.job_id)
        job = _lock(update.job_id)
        _refuse_others(job, actor, role)
        for step in _steps(update):
            if sentence := step(job, actor):
                sentences.append(f"Job {short(job.pk)}: {sentence}.")
    return sentences


@transaction.atomic
def set_max_slots(job_id: str, max_slots: int | None, *, actor: str, role: str) -> str | None:
    """At most so many slots at once for the job's tasks together; None lifts the limit. Raises Refused."""
    if max_slots is not None and (isinstance(max_slots, bool) or max_slots < 0):
        raise Refused(f"max_slots must be 0 or more. Found: {max_slots}.")
    job = _lock(job_id)
    _refuse_others(job, actor, role)
    if job.max_slots == max_slots:
        return None
    _save(job, actor, Reason.WEIGHT_SET, max_slots=max_slots)
    return (
        f"Job {short(job.pk)}: it may now hold {'any number of' if max_slots is None else max_slots} slots."
    )


def short(job_id: uuid.UUID) -> str:
    """A job's id as people see it."""
    return str(job_id)[:_SHORT]


def find(text: str) -> Job:
    """The job whose id starts with the text. Raises Refused when none or several do."""
    wanted = str(text).strip().lower()
    try:
        exact = Job.objects.select_related("owner", "pool").filter(pk=uuid.UUID(wanted)).first()
        if exact:
            return exact
    except ValueError:
        pass
    if not wanted or any(character not in "0123456789abcdef-" for character in wanted):
        raise Refused(f"job {text} not found")
    matches = (
        Job.objects.select_related("owner", "pool")
        .annotate(text_id=Cast("id", TextField()))
        .filter(text_id__startswith=wanted)[:2]
    )
    if not matches:
        raise Refused(f"job {text} not found")
    if len(matches) > 1:
        raise Refused(f"job {text} is not unique: several jobs start so; give more characters")
    return matches[0]


def _lock_attempts(text: str) -> None:
    """Before the job itself: an attempt that ends locks its allocation first and its job last."""
    running = Allocation.objects.filter(task__job=find(text)).exclude(state=AllocationState.TERMINATED)
    list(running.select_for_update(of=("self",), no_key=True).order_by("pk").values_list("pk"))


def _lock(text: str) -> Job:
    found = find(text)
    job = (
        Job.objects.select_for_update(of=("self",), no_key=True)
        .select_related("owner", "pool")
        .get(pk=found.pk)
    )
    if job.state == JobState.ENDED:
        raise Refused(f"job {short(job.pk)} has ended; only jobs in the queue can be changed")
    return job


def _refuse_others(job: Job, actor: str, role: str) -> None:
    owner = job.owner.username
    if role != "admin" and actor != f"user:{owner}":
        raise Refused(f"job {short(job.pk)} belongs to {owner}; only {owner} or an admin may change it")


def _steps(update: Update) -> list[Callable[[Job, str], str | None]]:
    """The edits of one update in the order in which they make sense together."""
    places = [update.ahead_of is not None, update.behind_of is not None, update.to_top]
    if sum(places) > 1:
        raise Refused("a job is moved ahead of one job, behind one, or to the top: give one of them")
    steps: list[Callable[[Job, str], str | None]] = []
    if (pool := update.pool) is not None:
        steps.append(lambda job, actor: _set_pool(job, pool, actor))
    if (priority := update.priority) is not None:
        steps.append(lambda job, actor: _set_priority(job, priority, actor))
    if (weight := update.weight) is not None:
        steps.append(lambda job, actor: _set_weight(job, weight, actor))
    if (ahead := update.ahead_of) is not None:
        steps.append(lambda job, actor: _place(job, _anchor(job, ahead), True, actor))
    if (behind := update.behind_of) is not None:
        steps.append(lambda job, actor: _place(job, _anchor(job, behind), False, actor))
    if update.to_top:
        steps.append(_to_top)
    if not steps:
        raise Refused(f"nothing to change was given for job {update.job_id}")
    return steps


def _set_priority(job: Job, priority: int, actor: str) -> str | None:
    if error := priority_error(priority):
        raise Refused(error)
    _need_scheduler(job, ResourcePool.Scheduler.PRIORITY, "priority")
    if job.priority == priority:
        return None
    _save(job, actor, Reason.PRIORITY_SET, priority=priority)
    return f"it now has priority {priority}"


def _set_weight(job: Job, weight: float, actor: str) -> str | None:
    if error := weight_error(weight):
        raise Refused(error)
    _need_scheduler(job, ResourcePool.Scheduler.FAIR_SHARE, "weight")
    if job.weight == weight:
        return None
    _save(job, actor, Reason.WEIGHT_SET, weight=float(weight))
    return f"it now has weight {weight:g}"


def _need_scheduler(job: Job, scheduler: str, what: str) -> None:
    if job.pool.scheduler == scheduler:
        return
    has = ResourcePool.Scheduler(job.pool.scheduler).value
    other = "weight" if what == "priority" else "priority"
    raise Refused(
        f"{what} has no meaning in resource pool {job.pool.name}, whose scheduler is {has}; set {other}"
    )


def _set_pool(job: Job, name: str, actor: str) -> str | None:
    if job.kind != Job.Kind.EXPERIMENT:
        raise Refused(f"setting resource pool for job type {job.kind} is not supported")
    pool = ResourcePool.objects.filter(name=name).first()
    if pool is None:
        known = ", ".join(ResourcePool.objects.values_list("name", flat=True))
        raise Refused(f"invalid resource pool name {name}; the pools are: {known}")
    if pool.pk == job.pool_id:
        raise Refused(f"resource pool is unchanged ({job.pool.name} == {name})")
    mark_dirty(job.pool_id)
    _save(job, actor, Reason.POOL_CHANGED, pool=pool)
    running = Allocation.objects.filter(task__job=job).exclude(state=AllocationState.TERMINATED)
    for allocation_id in running.order_by("pk").values_list("pk", flat=True):
        transitions.request_stop(allocation_id, StopKind.PREEMPT, reason=Reason.POOL_CHANGED, actor=actor)
    return f"it now waits in resource pool {name}"


def _anchor(job: Job, text: str) -> Job:
    anchor = find(text)
    if anchor.state == JobState.ENDED:
        raise Refused(f"job {short(anchor.pk)} has ended and stands in no queue")
    if anchor.pool_id != job.pool_id:
        raise Refused(
            f"job {short(anchor.pk)} is in resource pool {anchor.pool.name}, job {short(job.pk)} in {job.pool.name}"
        )
    return anchor


def _to_top(job: Job, actor: str) -> str | None:
    _need_order(job)
    first = _queue(job).filter(state=JobState.ACTIVE).first() or _queue(job).first()
    if first is None or first.pk == job.pk:
        return None
    return _place(job, first, True, actor)


def _need_order(job: Job) -> None:
    if job.pool.scheduler != ResourcePool.Scheduler.PRIORITY:
        raise Refused(
            f"unable to perform operation on resource pool with {job.pool.scheduler}: it keeps no order"
        )


def _queue(job: Job) -> Any:
    """Every job of the pool that has not ended, paused ones too: they come back to their place."""
    return (
        Job.objects.filter(pool_id=job.pool_id)
        .exclude(state=JobState.ENDED)
        .order_by("priority", "position", "id")
    )


def _place(job: Job, anchor: Job, ahead: bool, actor: str) -> str | None:
    """Put the job right ahead of the anchor, or right behind it; it takes the anchor's priority."""
    _need_order(job)
    if anchor.pk == job.pk:
        return None
    side = "ahead of" if ahead else "behind"
    peers = list(_queue(job).filter(priority=anchor.priority).exclude(pk=job.pk))
    index = next(i for i, peer in enumerate(peers) if peer.pk == anchor.pk) + (0 if ahead else 1)
    before, after = (peers[index - 1] if index else None), (peers[index] if index < len(peers) else None)
    if job.priority == anchor.priority and _stands_between(job, before, after):
        return None
    position = _between(before, after)
    if position is None:
        _renumber(peers)
        position = _between(before, after)
    old = job.priority
    assert position is not None
    _save(job, actor, Reason.MOVED, priority=anchor.priority, position=position, moved_at=timezone.now())
    takes = f" and takes its priority {anchor.priority}" if old != anchor.priority else ""
    return f"it now stands {side} job {short(anchor.pk)}{takes}"


def _key(job: Job) -> tuple[float, uuid.UUID]:
    return (job.position, job.pk)


def _stands_between(job: Job, before: Job | None, after: Job | None) -> bool:
    return (before is None or _key(before) < _key(job)) and (after is None or _key(job) < _key(after))


def _between(before: Job | None, after: Job | None) -> float | None:
    """A position strictly between two neighbours; None when floats leave no room.

    Behind the last job it stays below the present moment, because a new job's position is its submission time.
    """
    if before is None:
        return after.position - 1.0 if after else timezone.now().timestamp()
    low = before.position
    high = after.position if after else max(timezone.now().timestamp(), low + 1e-3)
    middle = low + (high - low) / 2
    return middle if low < middle < high else None


def _renumber(peers: list[Job]) -> None:
    """Spread the jobs of one priority evenly, one second apart, without changing their order."""
    start = min(peers[0].position, timezone.now().timestamp() - len(peers) - 1)
    for index, peer in enumerate(peers):
        peer.position = start + index
        Job.objects.filter(pk=peer.pk).update(position=peer.position)


def _save(job: Job, actor: str, reason: Reason, **fields: Any) -> None:
    """Write the fields with their event row, and let the pool's next pass see them."""
    changed = {
        name: (getattr(job, name), value) for name, value in fields.items() if getattr(job, name) != value
    }
    Job.objects.filter(pk=job.pk).update(**fields)
    for name, value in fields.items():
        setattr(job, name, value)
    record(
        Event.Kind.JOB,
        job.pk,
        from_state=job.state,
        to_state=job.state,
        reason=reason,
        actor=actor,
        detail={name: [_plain(old), _plain(new)] for name, (old, new) in changed.items()},
        job_id=job.pk,
        experiment_id=int(job.entity_id) if job.entity_id.isdigit() else None,
    )
    mark_dirty(job.pool_id)
    announce(f"job:{job.pk}")


def _plain(value: Any) -> Any:
    if isinstance(value, ResourcePool):
        return value.name
    return value if isinstance(value, (int, float, str)) or value is None else str(value)
