"""The jobs of a queue in their order, kept in this process; what has changed of them is read again.

What stands there and in which order is the definition of `jobs.queue_order`; places count from 0.

To read 10,000 jobs with their tasks takes 80 ms, to see which of them have changed 10 ms: a row that is written gets
the number of its writer (xmin), which no earlier version of any row has. Jobs are divided among BUCKETS by their ids.
As long as a bucket has as many rows with the same sum of hashed numbers, they are the same rows (but for one chance in
2^64); otherwise its jobs are read again, a few of thousands. Where PostgreSQL shows the same transactions as before,
nobody has written anything, and even that is not asked. No hint, no clock and no counter is trusted for that.
"""

from __future__ import annotations

import json
import threading
import uuid
from bisect import bisect
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from django.db import connection

from dispatch.passes import last_plan
from hosts.models import ResourcePool
from jobs import queue_order
from jobs.states import JobState

#: queues that a process keeps; 10,000 jobs take about 5 MB
KEPT_QUEUES = 8
#: a power of 2; above MOST_AGAIN changed ones, reading every job is quicker
BUCKETS, MOST_AGAIN = 256, 64
#: from this many on, similar jobs next to each other are one line
FOLD_FROM = 10
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
    #: epoch seconds
    submitted: Sequence[float] = ()

    @cached_property
    def alike(self) -> Mapping[tuple[int, str, bool, bool], int]:
        """(owner, state, never fits, being stopped) -> jobs."""
        return Counter(zip(self.owners, self.states, self.never, self.stopping, strict=True))

    @cached_property
    def places_of(self) -> Mapping[int, Sequence[int]]:
        """User id -> the places of the user's jobs, in order."""
        places: dict[int, list[int]] = defaultdict(list)
        for place, owner in enumerate(self.owners):
            places[owner].append(place)
        return dict(places)

    @cached_property
    def searched(self) -> Sequence[str]:
        """The names in lower case."""
        return [name.lower() for name in self.names]

    @cached_property
    def folded(self) -> Sequence[int]:
        """The places at which the lines of the whole queue begin."""
        return fold(self.likeness)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Job id -> place."""
        return {job_id: place for place, job_id in enumerate(self.ids)}

    def line(self, place: int) -> StandingJob:
        """The job at a place."""
        job_id = uuid.UUID(self.ids[place])
        return StandingJob(job_id, place, self.states[place], self.held[place], self.needed[place])


def fold(likeness: Sequence[int]) -> list[int]:
    """Where each line begins in a list of jobs: FOLD_FROM alike next to each other, or more, are one."""
    begins = [spot for spot, like in enumerate(likeness) if not spot or like != likeness[spot - 1]]
    lines: list[int] = []
    for begin, end in pairwise([*begins, len(likeness)]):
        lines += [begin] if end - begin >= FOLD_FROM else range(begin, end)
    return lines


_BUCKET = f"(uuid_hash({{}}) & {BUCKETS - 1})"
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
  FROM jobs_job j LEFT JOIN jobs_task t ON t.job_id = j.id AND {queue_order.WANTS} {{of_tasks}}
  WHERE j.pool_id = %(pool)s AND j.state <> '{JobState.ENDED}' {{of_jobs}} GROUP BY j.id
)
SELECT {{key}}, j.id::text, owner_id,
       {queue_order.state(holds=_HOLDS, backfilled="holding.backfilled")},
       j.never AND holding.job_id IS NULL, coalesce(holding.stopping, false),
       coalesce(holding.held, 0), greatest(j.needed, holding.held, 0),
       hash_record_extended((j.owner_id, j.kind, j.name, j.priority, j.weight, j.needed, j.tasks, j.largest,
                             holding.job_id IS NULL, holding.backfilled, j.never), 0),
       j.priority, j.weight, j.kind, j.name, j.entity_id, extract(epoch FROM j.submitted_at)::float8,
       {_BUCKET.format("j.id")}
FROM asked j LEFT JOIN holding ON holding.job_id = j.id {{planned}}
WHERE {queue_order.stands(holds=_HOLDS, wants="j.tasks > 0")}
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

# The hashes of the three tables have seeds of their own, so that their sum is one of all rows. What this very
# transaction has written would have the same number each time.
_VERSIONS = f"""
SELECT pg_current_xact_id_if_assigned() IS NULL, pg_current_snapshot()::text,
       CASE WHEN pg_current_snapshot()::text <> %s THEN (
  SELECT coalesce(jsonb_object_agg(bucket, version), '{{}}') FROM (
    SELECT bucket, count(*) || ' ' || sum(hashtextextended(writer::text, seed)) AS version FROM (
      SELECT {_BUCKET.format("j.id")} AS bucket, j.xmin AS writer, 1 AS seed
      FROM jobs_job j WHERE j.pool_id = %s AND j.state <> '{JobState.ENDED}'
      UNION ALL SELECT {_BUCKET.format("t.job_id")}, t.xmin, 2 FROM jobs_task t WHERE {queue_order.WANTS}
      UNION ALL SELECT {_BUCKET.format("t.job_id")}, a.xmin, 3
      FROM jobs_allocation a JOIN jobs_task t ON t.id = a.task_id WHERE {queue_order.HOLDS}
    ) AS written GROUP BY bucket
  ) AS buckets
) END
"""


@dataclass
class _Kept:
    """A queue as of a version. Who finds it outdated reads it for all others that wait for the lock."""

    lock: threading.Lock
    #: which transactions it shows
    snapshot: str = ""
    #: the policy and what it took of the last pass, and the version of each bucket
    basis: tuple[Any, ...] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    #: (what orders it …, a value for each field of `Queue` …, bucket), in order
    rows: list[tuple[Any, ...]] = field(default_factory=list)
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
        only_reads, snapshot, versions = _versions(pool, kept)
        if not only_reads:
            return _columns(_read(pool))
        # read after the versions: it may be newer than they are, and is then read again by the next, never older
        basis = _basis(pool)
        changed = {
            int(bucket)
            for bucket in kept.versions.keys() | versions.keys()
            if kept.versions.get(bucket) != versions.get(bucket)
        }
        if basis != kept.basis or len(changed) > MOST_AGAIN:
            kept.rows = _read(pool)
            kept.queue = _columns(kept.rows)
        elif changed:
            kept.rows, kept.queue = _replaced(kept, changed, _read(pool, changed))
        kept.basis, kept.snapshot, kept.versions = basis, snapshot, versions
        return kept.queue


def counts(pools: Collection[int]) -> dict[int, tuple[int, int]]:
    """Pool id -> (jobs that hold something, jobs that wait), for the pools that have any."""
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS, [list(pools)])
        return {pool: (scheduled, queued) for pool, scheduled, queued in cursor.fetchall()}


def _basis(pool: ResourcePool) -> tuple[Any, ...]:
    """What every row depends on besides its own job."""
    plan = last_plan.of(pool)
    return pool.scheduler, plan.never, None if pool.policy.order else plan.planned_at


def _versions(pool: ResourcePool, kept: _Kept) -> tuple[bool, str, Mapping[str, str]]:
    """Whether this transaction has written nothing, which others it sees, and a version of each bucket's rows."""
    with connection.cursor() as cursor:
        cursor.execute(_VERSIONS, [kept.snapshot, pool.pk])
        only_reads, snapshot, versions = cursor.fetchone()
    return only_reads, snapshot, kept.versions if versions is None else json.loads(versions)


def _read(pool: ResourcePool, buckets: Collection[int] | None = None) -> list[tuple[Any, ...]]:
    """The rows of these buckets, or all; in no order."""
    only = f"AND {_BUCKET} = ANY(%(buckets)s)" if buckets else ""
    parts = {"of_jobs": only.format("j.id"), "of_tasks": only.format("t.job_id")}
    asked: Mapping[str, Any] = {
        "pool": pool.pk,
        "never": last_plan.of(pool).never,
        "buckets": list(buckets or ()),
    }
    with connection.cursor() as cursor:
        cursor.execute(_QUEUE.format(**queue_order.sql(pool.policy.order), **parts), asked)
        return list(cursor.fetchall())


def _replaced(
    kept: _Kept, buckets: Collection[int], fresh: Iterable[tuple[Any, ...]]
) -> tuple[list[tuple[Any, ...]], Queue]:
    """The kept rows and their queue, with `fresh` as the rows of these buckets.

    Most rows of a changed bucket are as they were, and to make the columns again takes 20 ms for 10,000 jobs, for which
    every viewer of the pool would wait.
    """
    new = set(fresh)
    before = [(spot, row) for spot, row in enumerate(kept.rows) if row[-1] in buckets]
    gone = [spot for spot, row in before if row not in new]
    new.difference_update(row for _, row in before)
    rows = list(kept.rows)
    columns: list[list[Any]] = [list(getattr(kept.queue, each.name)) for each in fields(Queue)]
    for spot in reversed(gone):
        for column in (rows, *columns):
            del column[spot]
    for row in new:
        spot = bisect(rows, row)
        for column, value in zip((rows, *columns), (row, *_values(row)), strict=True):
            column.insert(spot, value)
    return rows, Queue(*map(tuple, columns))


def _columns(rows: list[tuple[Any, ...]]) -> Queue:
    """Sort the rows, which takes a tenth of what it takes PostgreSQL, and turn them into columns."""
    rows.sort()
    return Queue(*_values([*zip(*rows, strict=True)]))


def _values(row: Sequence[Any]) -> Sequence[Any]:
    """Those for the fields of `Queue`, of a row or of as many columns."""
    return row[-1 - len(fields(Queue)) : -1]
