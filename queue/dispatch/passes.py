"""One scheduling pass of a pool: survey, decide, apply, and keep the plan for the pages."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from dispatch import survey
from dispatch.apply import apply
from hosts.models import PoolChange, ResourcePool
from hosts.pools import mark_dirty
from jobs.models import Task
from jobs.states import TaskState
from scheduling.plan import decide
from scheduling.world import Plan, Snapshot

#: first key of the advisory locks that guard ticks; the second is the pool's id
ADVISORY_LOCK_CLASS = 0x7261_696E
#: A pass is made after this time even if nothing was noted, so that forecasts stay fresh.
IDLE_PASS_SECONDS = 10.0
#: Passes in a row before the next tick takes over.
MOST_PASSES_AT_ONCE = 5

T = TypeVar("T")


@dataclass
class Made:
    """What one pass did. `milliseconds`: of its parts, by name."""

    started: int = 0
    milliseconds: dict[str, float] = field(default_factory=dict)

    def timed(self, part: str, work: Callable[[], T]) -> T:
        begun = time.perf_counter()
        result = work()
        self.milliseconds[part] = (time.perf_counter() - begun) * 1000
        return result


def run(pool_id: int) -> int:
    """Bring the pool's plan up to date; the number of passes made. Zero: nothing to do, or another tick is at it."""
    passes = 0
    while passes < MOST_PASSES_AT_ONCE and one(pool_id) is not None:
        passes += 1
    return passes


def _due(pool: ResourcePool, now: datetime) -> bool:
    if pool.planned_at is None or now - pool.planned_at > timedelta(seconds=IDLE_PASS_SECONDS):
        return True
    return Task.objects.filter(
        job__pool=pool, state=TaskState.WAITING, not_before__gt=pool.planned_at, not_before__lte=now
    ).exists()


@transaction.atomic
def one(pool_id: int) -> Made | None:
    """One pass under the pool's lock; None when there is nothing new to see or another tick is at it."""
    now = timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [ADVISORY_LOCK_CLASS, pool_id])
        if not cursor.fetchone()[0]:
            return None
    pool = ResourcePool.objects.get(pk=pool_id)
    # Read before the snapshot: what commits later stays, and the next pass sees it.
    seen = list(PoolChange.objects.filter(pool=pool).values_list("pk", flat=True))
    if not seen and not _due(pool, now):
        return None
    made = Made()
    with _no_garbage_collection():
        snapshot = made.timed("survey", lambda: survey.take(pool, now))
        plan = made.timed("decide", lambda: decide(snapshot))
    done = made.timed("apply", lambda: apply(plan))
    made.started = done.started
    if done.left:
        mark_dirty(pool_id)
    took_ms = sum(made.milliseconds.values())
    made.timed("store", lambda: _store(pool_id, _document(snapshot, plan, took_ms), now))
    PoolChange.objects.filter(Q(pk__in=seen)).delete()
    return made


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """So many values are made at once, all of them kept, that looking through them for garbage takes half the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _store(pool_id: int, document: dict[str, Any], now: datetime) -> None:
    ResourcePool.objects.filter(pk=pool_id).update(plan=document, planned_at=now)


def _document(snapshot: Snapshot, plan: Plan, took_ms: float) -> dict[str, Any]:
    """The plan as the pages read it. Keyed by task, except the order, which is of jobs."""
    job_of = {request.task_id: request.job_id for request in snapshot.requests}
    return {
        "order": list(dict.fromkeys(job_of[task_id] for task_id in plan.order)),
        "waits": {task_id: reason.record() for task_id, reason in plan.waits.items()},
        "forecast": {task_id: list(span) for task_id, span in plan.forecast.items() if span},
        "reservations": {task_id: list(hosts) for task_id, hosts in plan.reservations.items()},
        "shares": dict(plan.shares),
        "took_ms": round(took_ms, 1),
    }
