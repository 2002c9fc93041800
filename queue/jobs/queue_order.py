"""What stands in the queue of a pool and in which order, who stands beside whom, and the positions between two jobs.

queue/README.md has the definition in words ("What stands in the queue"). `listed` states it for Django; the fragments
of SQL below state it for statements that read thousands of jobs at once, over jobs_job `j`, jobs_task `t` and
jobs_allocation `a`. A test holds both to each other. A position is a number: the submission's epoch seconds until a
move puts the job between two others.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from hosts.models import ResourcePool
from jobs.models import Allocation, Job, Task
from jobs.states import AllocationState, JobState, TaskState

#: an attempt that holds slots, or has members that have not gone yet
HOLDS = f"a.state <> '{AllocationState.TERMINATED}'"
#: such an attempt leaves: somebody asked it to, or it ends by itself
LEAVES = f"(a.stop_kind <> '' OR a.state = '{AllocationState.TERMINATING}')"
#: a task that wants slots, or has them
WANTS = f"t.state IN ('{TaskState.WAITING}', '{TaskState.RUNNING}')"
#: the order of the last pass, with `_PLANNED` joined: what it did not know comes last
_AS_PLANNED = (f"coalesce(planned.place, {2**31})", "j.position", "j.id")
#: the places that the last pass of %(pool)s gave
_PLANNED = """LEFT JOIN (
  SELECT each.id, each.place FROM hosts_poolplan, jsonb_array_elements_text(
           coalesce(changes->'set'->'order', document->'order', '[]')) WITH ORDINALITY AS each(id, place)
  WHERE pool_id = %(pool)s
) AS planned ON planned.id = j.id::text"""


def stands(*, holds: str, wants: str) -> str:
    """The condition on a job to stand in its pool's queue; `holds` and `wants` say so of its attempts and tasks."""
    return f"(j.state <> '{JobState.ENDED}' AND ({holds} OR j.state = '{JobState.ACTIVE}' AND {wants}))"


def state(*, holds: str, backfilled: str) -> str:
    """The state of a job that stands there: `queued`, `scheduled`, or `backfilled` if all of its attempts are."""
    return f"CASE WHEN NOT ({holds}) THEN 'queued' WHEN {backfilled} THEN 'backfilled' ELSE 'scheduled' END"


def sql(columns: Sequence[str]) -> dict[str, str]:
    """`order`: by these columns of a job, or without any as the last pass planned; `planned`: the join for that.

    `key`: the values by which it is ordered, without the id, which is the last of them.
    """
    order = [f"j.{column}" for column in columns] or _AS_PLANNED
    return {
        "order": ", ".join(order),
        "key": ", ".join(order[:-1]),
        "planned": "" if columns else _PLANNED,
    }


def listed(pool: ResourcePool) -> QuerySet[Job]:
    """The jobs that stand in a pool's queue, in its order; by age where only the last pass knows the order."""
    held = Allocation.objects.filter(task__job=OuterRef("pk")).exclude(state=AllocationState.TERMINATED)
    live = Task.objects.filter(job=OuterRef("pk"), state__in=[TaskState.WAITING, TaskState.RUNNING])
    return everyone(pool).filter(Q(Exists(live), state=JobState.ACTIVE) | Q(Exists(held)))


def places(pool: ResourcePool) -> list[uuid.UUID]:
    """The ids of those that are listed, in order: one value of the database, as a long queue is many rows."""
    return listed(pool).order_by().aggregate(ids=ArrayAgg("pk", order_by=_columns(pool)))["ids"] or []


def everyone(pool: ResourcePool) -> QuerySet[Job]:
    """Every job of the pool that has not ended, paused ones too: they come back to their place."""
    return Job.objects.filter(pool=pool).exclude(state=JobState.ENDED).order_by(*_columns(pool))


def stands_before(job: Job) -> Q:
    """Which jobs of the same pool stand before this one."""
    return _before(job, *_columns(job.pool))


def closer_to_the_front(job: Job) -> Q:
    """Which jobs of the same pool and priority stand before this one."""
    return _before(job, "position", "id")


def _before(job: Job, column: str, *ties: str) -> Q:
    value = getattr(job, column)
    lower = Q((f"{column}__lt", value))
    return lower | Q((column, value)) & _before(job, *ties) if ties else lower


def _columns(pool: ResourcePool) -> tuple[str, ...]:
    return pool.policy.order or ("position", "id")


def beside(job: Job, anchor: Job, ahead: bool) -> tuple[Job | None, Job | None]:
    """The two jobs of the anchor's priority between which `job` stands once it is moved right beside the anchor."""
    peers = everyone(anchor.pool).filter(priority=anchor.priority).exclude(pk__in=[job.pk, anchor.pk])
    if ahead:
        return peers.filter(closer_to_the_front(anchor)).last(), anchor
    return anchor, peers.exclude(closer_to_the_front(anchor)).first()


def stands_between(job: Job, before: Job | None, after: Job | None) -> bool:
    return (before is None or _key(before) < _key(job)) and (after is None or _key(job) < _key(after))


def between(before: Job | None, after: Job | None) -> float | None:
    """A position strictly between two neighbors; None when floats leave no room.

    Behind the last job it stays below the present moment, because a new job's position is its submission time.
    """
    if before is None:
        return after.position - 1.0 if after else timezone.now().timestamp()
    low = before.position
    high = after.position if after else max(timezone.now().timestamp(), low + 1e-3)
    middle = low + (high - low) / 2
    return middle if low < middle < high else None


def _key(job: Job) -> tuple[float, object]:
    return (job.position, job.pk)
