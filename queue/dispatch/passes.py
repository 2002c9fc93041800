"""One scheduling pass of a pool: survey, decide, apply, and keep the plan for the pages."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from dispatch import survey
from dispatch.apply import apply
from hosts.models import PoolChange, ResourcePool
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


def run(pool_id: int) -> int:
    """Bring the pool's plan up to date; the number of passes made. Zero: nothing to do, or another tick is at it."""
    passes = 0
    while passes < MOST_PASSES_AT_ONCE and _pass(pool_id, timezone.now()):
        passes += 1
    return passes


def _due(pool: ResourcePool, now: datetime) -> bool:
    if pool.planned_at is None or now - pool.planned_at > timedelta(seconds=IDLE_PASS_SECONDS):
        return True
    return Task.objects.filter(
        job__pool=pool, state=TaskState.WAITING, not_before__gt=pool.planned_at, not_before__lte=now
    ).exists()


@transaction.atomic
def _pass(pool_id: int, now: datetime) -> bool:
    """One pass under the pool's lock; False when there is nothing new to see."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [ADVISORY_LOCK_CLASS, pool_id])
        if not cursor.fetchone()[0]:
            return False
    pool = ResourcePool.objects.get(pk=pool_id)
    # Read before the snapshot: what commits later stays, and the next pass sees it.
    seen = list(PoolChange.objects.filter(pool=pool).values_list("pk", flat=True))
    if not seen and not _due(pool, now):
        return False
    begun = time.perf_counter()
    snapshot = survey.take(pool, now)
    plan = decide(snapshot)
    apply(plan)
    took_ms = (time.perf_counter() - begun) * 1000
    ResourcePool.objects.filter(pk=pool_id).update(plan=_document(snapshot, plan, took_ms), planned_at=now)
    PoolChange.objects.filter(Q(pk__in=seen)).delete()
    return True


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
