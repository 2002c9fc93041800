"""The jobs of a queue in their order, read by one statement and kept in this process until a row of them changes.

What stands there and in which order is the definition of `jobs.queue_order`; places count from 0.

To read 10,000 jobs with their tasks takes 80 ms, to see that none of them has changed 4 ms: a row that is written gets
the number of its writer (xmin), which no earlier version of any row has. So as long as there are as many rows with the
same sum of hashed numbers, they are the same rows (but for one chance in 2^64). No hint, no clock and no counter is
trusted for that.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

from django.db import connection

from dispatch.passes import last_plan
from hosts.models import ResourcePool
from jobs import queue_order
from jobs.states import JobState

#: queues that a process keeps; 10,000 jobs take about 5 MB
KEPT_QUEUES = 8
_HOLDS = "holding.job_id IS NOT NULL"


class StandingJob(NamedTuple):
    """One job of a queue."""

    job_id: uuid.UUID
    #: from 0
    place: int
    #: queued, scheduled or backfilled
    state: str
    #: slots; `needed` is at least `held`
    held: int
    needed: int


@dataclass(frozen=True)
class Queue:
    """The jobs of a queue by place: a column of values each, which is quicker than as many objects."""

    ids: Sequence[str] = ()
    owners: Sequence[int] = ()
    states: Sequence[str] = ()
    never: Sequence[bool] = ()
    stopping: Sequence[bool] = ()
    held: Sequence[int] = ()
    needed: Sequence[int] = ()
    #: a hash of what folding compares
    likeness: Sequence[int] = ()
    priorities: Sequence[int] = ()
    weights: Sequence[float] = ()
    kinds: Sequence[str] = ()
    names: Sequence[str] = ()
    #: number of an experiment, id of a command
    entities: Sequence[str] = ()
    submitted: Sequence[datetime] = ()

    @cached_property
    def alike(self) -> Mapping[tuple[int, str, bool, bool], int]:
        """(owner, state, never fits, being stopped) -> jobs."""
        return Counter(zip(self.owners, self.states, self.never, self.stopping, strict=True))

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Job id -> place."""
        return {job_id: place for place, job_id in enumerate(self.ids)}

    def line(self, place: int) -> StandingJob:
        """The job at a place."""
        job_id = uuid.UUID(self.ids[place])
        return StandingJob(job_id, place, self.states[place], self.held[place], self.needed[place])


#: the columns of `_QUEUE` are these fields; a priority pool's order begins with this one
_PRIORITY = [column.name for column in fields(Queue)].index("priorities")

# One aggregate over the join, since grouping the tasks first and joining afterwards takes twice as long.
_QUEUE = f"""
WITH holding AS (
  SELECT t.job_id, sum(a.slots)::int AS held, bool_and(a.on_sufferance) AS backfilled,
         bool_or({queue_order.LEAVES}) AS stopping
  FROM jobs_allocation a JOIN jobs_task t ON t.id = a.task_id WHERE {queue_order.HOLDS} GROUP BY t.job_id
), asked AS (
  SELECT j.id, j.owner_id, j.kind, j.name, j.entity_id, j.priority, j.weight, j.position, j.submitted_at, j.state,
         sum(t.slots)::int AS needed, count(t.id)::int AS tasks, max(t.slots) AS largest,
         coalesce(bool_or(t.id = ANY(%(never)s::text[])), false) AS never
  FROM jobs_job j LEFT JOIN jobs_task t ON t.job_id = j.id AND {queue_order.WANTS}
  WHERE j.pool_id = %(pool)s AND j.state <> '{JobState.ENDED}' GROUP BY j.id
)
SELECT j.id::text, owner_id, {queue_order.state(holds=_HOLDS, backfilled="holding.backfilled")},
       j.never AND holding.job_id IS NULL, coalesce(holding.stopping, false),
       coalesce(holding.held, 0), greatest(j.needed, holding.held, 0),
       hash_record_extended((j.owner_id, j.kind, j.name, j.priority, j.weight, j.needed, j.tasks, j.largest,
                             holding.job_id IS NULL, holding.backfilled, j.never), 0),
       j.priority, j.weight, j.kind, j.name, j.entity_id, j.submitted_at
FROM asked j LEFT JOIN holding ON holding.job_id = j.id {{planned}}
WHERE {queue_order.stands(holds=_HOLDS, wants="j.tasks > 0")}
ORDER BY {{order}}
"""

_COUNTS = f"""
SELECT pool_id, count(*) FILTER (WHERE holds), count(*) FILTER (WHERE NOT holds) FROM (
  SELECT j.pool_id, j.state,
         j.id IN (SELECT t.job_id FROM jobs_task t JOIN jobs_allocation a ON a.task_id = t.id
                  WHERE {queue_order.HOLDS}) AS holds,
         j.id IN (SELECT t.job_id FROM jobs_task t WHERE {queue_order.WANTS}) AS wants
  FROM jobs_job j WHERE j.state <> '{JobState.ENDED}' AND j.pool_id = ANY(%s)
) AS j WHERE {queue_order.stands(holds="holds", wants="wants")} GROUP BY pool_id
"""

# The last column: what this very transaction has written would have the same number each time.
_VERSION = """
SELECT jobs.n, jobs.sum, tasks.n, tasks.sum, allocations.n, allocations.sum, pg_current_xact_id_if_assigned() IS NULL
FROM (SELECT count(*) AS n, sum({writer}) FROM jobs_job WHERE pool_id = %s AND state <> '{ended}') jobs,
     (SELECT count(*) AS n, sum({writer}) FROM jobs_task t WHERE {wants}) tasks,
     (SELECT count(*) AS n, sum({writer}) FROM jobs_allocation a WHERE {holds}) allocations
""".format(
    writer="hashint8extended(xmin::text::bigint, 0)",
    ended=JobState.ENDED,
    wants=queue_order.WANTS,
    holds=queue_order.HOLDS,
)


@dataclass
class _Kept:
    """A queue as of a version. Who finds it outdated reads it for all others that wait for the lock."""

    lock: threading.Lock
    version: tuple[Any, ...] | None = None
    queue: Queue = Queue()


_kept: OrderedDict[int, _Kept] = OrderedDict()
_kept_guard = threading.Lock()


def of(pool: ResourcePool) -> Queue:
    """Every job of the pool's queue, as this transaction sees them."""
    with _kept_guard:
        kept = _kept.setdefault(pool.pk, _Kept(threading.Lock()))
        _kept.move_to_end(pool.pk)
        while len(_kept) > KEPT_QUEUES:
            _kept.popitem(last=False)
    with kept.lock:
        version = _version(pool)
        if version is None:
            return _read(pool)
        if version != kept.version:
            # read after the version: it may be newer than that, and is then read again by the next, never older
            kept.queue, kept.version = _read(pool), version
        return kept.queue


def counts(pools: Collection[int]) -> dict[int, tuple[int, int]]:
    """Pool id -> (jobs that hold something, jobs that wait), for the pools that have any."""
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS, [list(pools)])
        return {pool: (scheduled, queued) for pool, scheduled, queued in cursor.fetchall()}


def _version(pool: ResourcePool) -> tuple[Any, ...] | None:
    """What is equal as long as nothing has changed; None in a transaction that writes itself."""
    with connection.cursor() as cursor:
        cursor.execute(_VERSION, [pool.pk])
        *rows, only_reads = cursor.fetchone()
    return (*rows, pool.scheduler, last_plan.of(pool).planned_at) if only_reads else None


def _read(pool: ResourcePool) -> Queue:
    order = pool.policy.order
    by_priority = order[:1] == ("priority",)
    statement = _QUEUE.format(**queue_order.sql(order[1:] if by_priority else order))
    with connection.cursor() as cursor:
        cursor.execute(statement, {"pool": pool.pk, "never": last_plan.of(pool).never})
        rows = cursor.fetchall()
    if by_priority:  # few values: to sort by them here takes a tenth of what both take PostgreSQL
        rows.sort(key=itemgetter(_PRIORITY))
    return Queue(*zip(*rows, strict=True))
