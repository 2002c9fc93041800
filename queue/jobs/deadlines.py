"""When a job must have ended: what its config and its users say, and how its deadline moves it ahead in the queue.

`scheduling.deadlines` decides that it goes ahead, and of what. Its new position is kept until it ends, until a user
moves it, or until its deadline is put off or removed, which puts it back (`queue_edits`).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from accounts.refusals import Refusal
from events.models import Event
from events.record import record
from hosts.models import ResourcePool
from jobs.models import Job, Task
from jobs.queue_order import beside, between, closer_to_the_front, everyone, stands_before
from jobs.queue_writes import Edit, lock_jobs, one_edit_at_a_time, renumber, save
from jobs.states import JobState, Reason
from scheduling.deadlines import Move
from scheduling.reasons import listed
from scheduling.written_times import DEADLINE_ALLOWED, deadline_in

#: the value that removes a deadline
NO_DEADLINE = "none"


def of(resources: Mapping[str, Any], now: datetime) -> datetime | None:
    """The deadline of a config's `resources`: the time that it names, or so many seconds after its submission."""
    given = resources.get("deadline")
    return None if given is None else _at(given, now)


def given(value: Any, now: datetime) -> datetime | None:
    """The deadline that an edit gives. Raises Refusal."""
    if isinstance(value, str) and value.strip().lower() == NO_DEADLINE:
        return None
    try:
        at = _at(deadline_in(value), now)
    except (ValueError, OverflowError):
        raise Refusal(
            f"deadline must be {DEADLINE_ALLOWED}, or {NO_DEADLINE} to remove it. Found: {value}.",
            field="deadline",
        ) from None
    if at <= now:
        raise Refusal(f"deadline must be in the future. Found: {at:%Y-%m-%d %H:%M} UTC.", field="deadline")
    return at


def _at(value: int | str, now: datetime) -> datetime:
    at = now + timedelta(seconds=value) if isinstance(value, int) else datetime.fromisoformat(value)
    return at.replace(microsecond=0)


def refuse(pool: ResourcePool, resources: Mapping[str, Any], slots: int, now: datetime) -> None:
    """Raise Refusal for a deadline in a config that could have no effect, or that nothing could meet."""
    at = of(resources, now)
    if at is None:
        return
    why = useless(pool, slots)
    if not why and at <= now:
        why = f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC is in the past"
    if why:
        raise Refusal(f"resources.deadline: {why}. Change it, or leave it out.", field="deadline")


def useless(pool: ResourcePool, slots: int) -> str:
    """Why a deadline would move nothing ahead here; empty if it can."""
    if not pool.policy.order:
        return f"resource pool {pool.name} shares slots by weight, so no job goes ahead of others there"
    return "" if slots else "work without slots does not wait for slots"


@transaction.atomic
def go_ahead(move: Move, deadline: float) -> bool:
    """Give the job its new position; False if it, or what it would pass, was edited since the pass looked."""
    one_edit_at_a_time()
    jobs = lock_jobs([uuid.UUID(move.job_id), uuid.UUID(move.ahead_of)])
    job, anchor = jobs.get(uuid.UUID(move.job_id)), jobs.get(uuid.UUID(move.ahead_of))
    if job is None or anchor is None or not _may_pass(job, anchor, deadline):
        return False
    edit = Edit("scheduler", "admin", detail={"passes": listed(move.passes)})
    position = between(*beside(job, anchor, ahead=True))
    if position is None:
        renumber(job.pool, job.priority, job.pk, edit)
        anchor.refresh_from_db(fields=["position"])
        position = between(*beside(job, anchor, ahead=True))
    assert position is not None
    usual = job.position if job.usual_position is None else job.usual_position
    save(job, edit, Reason.DEADLINE_AHEAD, position=position, usual_position=usual)
    edit.announce()
    return True


def _may_pass(job: Job, anchor: Job, deadline: float) -> bool:
    return (
        job.state == JobState.ACTIVE
        and job.moved_at is None
        and job.deadline_at is not None
        and job.deadline_at.timestamp() == deadline
        and (anchor.pool_id, anchor.priority) == (job.pool_id, job.priority)
        and Job.objects.filter(stands_before(job), pk=anchor.pk).exists()
        and not _stays_ahead(job, anchor)
    )


def _stays_ahead(job: Job, anchor: Job) -> bool:
    """Would it pass a job that it may not pass, from the anchor on? Paused ones count too: no pass sees them."""
    theirs = Q(deadline_at__lte=job.deadline_at) | Q(moved_at__isnull=False)
    if job.pool.group_shares:
        theirs &= Q(owner__group=job.owner.group_id)
    line = everyone(job.pool).filter(closer_to_the_front(job), theirs, priority=job.priority)
    needs_slots = Exists(Task.objects.filter(job=OuterRef("pk"), slots__gt=0))
    return line.exclude(closer_to_the_front(anchor)).filter(needs_slots).exists()


def not_told(job_ids: Collection[str], most: int) -> list[str]:
    """Those of which nobody has been told yet that their deadline cannot be met."""
    if not job_ids:
        return []
    found = Job.objects.filter(pk__in=job_ids, late_told_at=None, deadline_at__isnull=False)
    return [str(pk) for pk in found.order_by("deadline_at", "pk").values_list("pk", flat=True)[:most]]


@transaction.atomic
def tell_late(job_id: str, deadline: float, sentence: str) -> None:
    """Write that the deadline cannot be met, once for each deadline: rules of notifications tell it."""
    told = Job.objects.filter(pk=job_id, late_told_at=None, deadline_at=datetime.fromtimestamp(deadline, UTC))
    if not told.update(late_told_at=timezone.now()):
        return
    job = Job.objects.get(pk=job_id)
    record(
        Event.Kind.JOB,
        job.pk,
        from_state=job.state,
        to_state=job.state,
        reason=Reason.DEADLINE_LATE,
        actor="scheduler",
        detail={"sentence": sentence},
        job_id=job.pk,
        experiment_id=int(job.entity_id) if job.entity_id.isdigit() else None,
        pools=[job.pool_id],
    )
