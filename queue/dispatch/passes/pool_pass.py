"""One scheduling pass of a pool: survey, decide, apply, and keep the plan for the pages."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from django.db import connection, transaction
from django.utils import timezone

from dispatch.engines import chosen
from dispatch.passes import last_plan, survey
from dispatch.passes.apply import apply
from dispatch.passes.pace import Pace
from dispatch.passes.survey import no_garbage_collection
from events.prepared import Prepared, cursor
from hosts import pool_windows
from hosts.models import PoolChange, ResourcePool
from hosts.pools import mark_dirty
from jobs.states import TaskState
from scheduling import windows
from scheduling.forecast import Forecast
from scheduling.plan import decide
from scheduling.world import Plan, Snapshot

#: first key of the advisory locks that guard ticks; the second is the pool's id
ADVISORY_LOCK_CLASS = 0x7261_696E
#: A pass is made after this time even if nothing was noted, so that forecasts stay fresh.
IDLE_PASS_SECONDS = 10.0
#: Passes in a row before the next tick takes over.
MOST_PASSES_AT_ONCE = 5

#: Each beat asks for this every second: Django takes longer to write such a query than PostgreSQL to answer it.
_DUE = """
SELECT pool.id FROM hosts_resourcepool AS pool
WHERE NOT pool.removed AND (pool.planned_at IS NULL
  OR abs(extract(epoch FROM pool.planned_at - %(now)s)) > %(idle)s
  OR EXISTS (SELECT FROM hosts_poolchange AS change WHERE change.pool_id = pool.id)
  OR EXISTS (SELECT FROM jobs_task AS task JOIN jobs_job AS job ON job.id = task.job_id
    WHERE job.pool_id = pool.id AND task.state = %(waiting)s
      AND task.not_before > pool.planned_at AND task.not_before <= %(now)s))
ORDER BY pool.name
"""

T = TypeVar("T")

_pool = Prepared(lambda: ResourcePool.objects.all())


@dataclass(frozen=True)
class Made:
    """What one pass did. `left`: some starts are left for the next one. `milliseconds`: of its parts, by name."""

    started: int
    left: bool
    milliseconds: dict[str, float]


def timed(times: dict[str, float], part: str, work: Callable[[], T]) -> T:
    """What `work` returns; its milliseconds are noted under `part`."""
    begun = time.perf_counter()
    result = work()
    times[part] = (time.perf_counter() - begun) * 1000
    return result


def run(pool_id: int, pace: Pace | None = None) -> int:
    """Bring the pool's plan up to date; the number of passes made. Zero: nothing to do, or another tick is at it.

    With a `pace`, what others change is left for when its rest is over. A pass that has left some starts is no part of
    the pace: the next one follows at once.
    """
    passes, made = 0, None
    while passes < MOST_PASSES_AT_ONCE and (pace is None or (made and made.left) or pace.may_pass(pool_id)):
        begun = time.monotonic()
        made = one(pool_id)
        if made is None:
            break
        passes += 1
        if pace is not None and not made.left:
            pace.took(pool_id, time.monotonic() - begun)
        # a pass that finds nothing takes six statements to see that
        with cursor() as asks:
            asks.execute("SELECT FROM hosts_poolchange WHERE pool_id = %s LIMIT 1", [pool_id])
            if asks.fetchone() is None:
                break
    return passes


def due_pools(now: datetime) -> list[int]:
    """The pools that a pass may change: something was noted, a task's time has come, or the plan has grown old.

    A plan from the future was stored by a worker whose clock is ahead, and says nothing of what happened since.
    """
    with connection.cursor() as asks:
        asks.execute(_DUE, {"now": now, "idle": IDLE_PASS_SECONDS, "waiting": TaskState.WAITING.value})
        return [pk for (pk,) in asks.fetchall()]


@no_garbage_collection()
def one(pool_id: int) -> Made | None:
    """One pass under the pool's lock; None when there is nothing new to see or another tick is at it.

    What it read and decided is gone when it returns: garbage is collected again then, which looks at all that is there.
    """
    now = timezone.now()
    done = _pass(pool_id, now)
    if done is None:
        return None
    made, basis = done
    if basis is not None:
        timed(made.milliseconds, "forecast", lambda: last_plan.add_forecast(pool_id, *basis, now))
    return made


@transaction.atomic
def _pass(pool_id: int, now: datetime) -> tuple[Made, tuple[Snapshot, Plan, Forecast | None] | None] | None:
    """What was done, and of what to make a forecast if one is due, or the engine's."""
    with connection.cursor() as asks:
        asks.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [ADVISORY_LOCK_CLASS, pool_id])
        if not asks.fetchone()[0]:
            return None
    pool = _pool.find(pool_id)
    if pool is None:  # removed since it was marked, or never seen (jobs.detached)
        PoolChange.objects.filter(pool_id=pool_id).delete()
        return None
    # Read before the snapshot: what commits later stays, and the next pass sees it.
    with cursor() as asks:
        asks.execute("SELECT id FROM hosts_poolchange WHERE pool_id = %s", [pool_id])
        seen = [pk for (pk,) in asks.fetchall()]
    if not seen and pool_id not in due_pools(now):
        return None
    times: dict[str, float] = {}
    snapshot = timed(times, "survey", lambda: survey.take(pool, now, keep=True))
    if choices := windows.unsettled(snapshot):
        pool_windows.settle(pool, choices)
    plan = timed(times, "decide", lambda: chosen.of_pool(pool).place(pool, snapshot, decide(snapshot)))
    done = timed(times, "apply", lambda: apply(plan))
    if done.left:
        mark_dirty(pool_id)
    took_ms = sum(times.values())
    due = timed(times, "store", lambda: last_plan.store(pool_id, snapshot, plan, took_ms, now))
    with cursor() as writes:
        writes.execute("DELETE FROM hosts_poolchange WHERE id = ANY(%s)", [seen])
    theirs = chosen.of_pool(pool).expect(pool, plan, snapshot.now)
    if (
        not due and theirs is None
    ):  # what another scheduler says costs little, and is never older than the reasons
        return Made(done.started, done.left, times), None
    return Made(done.started, done.left, times), (snapshot, plan, theirs)
