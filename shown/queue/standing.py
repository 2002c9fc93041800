"""The jobs of a queue in their order, kept in this process; what has changed of them is read again.

What stands there and in which order is the definition of `jobs.queue_order`; places count from 0.

To read 10,000 jobs with their tasks takes 80 ms, to see which of them have changed 5 ms: a row that is written gets
the number of its writer (xmin). Jobs are divided among BUCKETS by their ids. At a look, each bucket is marked with how
many rows it has, and with the sum of the hashes of the writers that are not older than the oldest transaction under
way. Unless the next look makes the same mark of it by what was the oldest transaction then, its jobs are read again, a
few of thousands (docs/decisions/0021 says why that can be trusted). A transaction that is kept open only has more
writers added up. Where PostgreSQL shows the same transactions as before, nobody has written anything, and even that is
not asked. No hint, no clock and no counter is trusted for that.
"""

from __future__ import annotations

import json
import threading
import uuid
from bisect import bisect
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from django.db import connection

from dispatch.passes import last_plan, pool_rows
from hosts.models import ResourcePool
from jobs import queue_order
from jobs.states import JobState, TaskState

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
    #: slots that would be given now if they were free (`jobs.shares`)
    waiting: Sequence[int] = ()
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
         coalesce(sum(t.slots) FILTER (WHERE t.state = '{TaskState.WAITING}'), 0)::int AS waiting,
         sum(t.slots)::int AS needed, count(t.id)::int AS tasks, max(t.slots) AS largest,
         coalesce(bool_and(t.id = ANY(%(never)s::text[])) FILTER (WHERE t.state = '{TaskState.WAITING}'), false)
           AS never
  FROM jobs_job j LEFT JOIN jobs_task t ON t.job_id = j.id AND {queue_order.WANTS} {{of_tasks}}
  WHERE j.pool_id = %(pool)s AND j.state <> '{JobState.ENDED}' {{of_jobs}} GROUP BY j.id
)
SELECT {{key}}, j.id::text, owner_id,
       {queue_order.state(holds=_HOLDS, backfilled="holding.backfilled")},
       j.never AND holding.job_id IS NULL, coalesce(holding.stopping, false),
       coalesce(holding.held, 0), greatest(j.needed, holding.held, 0),
       CASE j.state WHEN '{JobState.ACTIVE}' THEN j.waiting ELSE 0 END,
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

# A subquery of its own, since it would otherwise be computed for each row.
_OLDEST = "(SELECT age(pg_snapshot_xmin({})::xid))"
_NEW = "age <= " + _OLDEST.format("nullif(%(snapshot)s, '')::pg_snapshot")
_YOUNG = "age <= " + _OLDEST.format("pg_current_snapshot()")
# What this very transaction has written would have the same number each time. After 2^30 transactions, or by a server
# that was started again or has crashed, numbers of writers are not compared with earlier ones.
_LOOK = f"""
WITH now AS (
  SELECT pg_current_snapshot()::text AS snapshot, concat_ws(
    ' ', {pool_rows.STARTED}, pg_snapshot_xmin(pg_current_snapshot())::text::bigint >> 30) AS server
)
SELECT pg_current_xact_id_if_assigned() IS NULL, snapshot, server,
       CASE WHEN (snapshot, server) <> (%(snapshot)s, %(server)s) THEN (
  SELECT coalesce(json_object_agg(bucket, json_build_array(
           rows, new_writers, young_writers,
           CASE WHEN new_writers IS DISTINCT FROM (%(writers)s::jsonb ->> bucket::text)::numeric THEN new END)), '{{}}')
  FROM (
    SELECT bucket, count(*) AS rows,
           array_agg(job_id) FILTER (WHERE {_NEW}) AS new, sum(writer) FILTER (WHERE {_NEW}) AS new_writers,
           sum(writer) FILTER (WHERE {_YOUNG}) AS young_writers
    FROM (
      SELECT job_id, {_BUCKET.format("job_id")} AS bucket, age,
             hashint8extended(age('3'::xid)::bigint - age, 0) AS writer
      FROM (
        SELECT j.id AS job_id, age(j.xmin) AS age FROM jobs_job j
        WHERE j.pool_id = %(pool)s AND j.state <> '{JobState.ENDED}'
        UNION ALL SELECT t.job_id, age(t.xmin) FROM jobs_task t WHERE {queue_order.WANTS}
        UNION ALL SELECT t.job_id, age(a.xmin)
        FROM jobs_allocation a JOIN jobs_task t ON t.id = a.task_id WHERE {queue_order.HOLDS}
      ) AS written
    ) AS hashed GROUP BY bucket
  ) AS buckets
) END::text FROM now
"""

#: of a bucket: how many rows it has, and the sum of the writers of those that are not older than what was under way
_Mark = tuple[int, int | None]


@dataclass
class _Kept:
    """A queue as of a version. Who finds it outdated reads it for all others that wait for the lock."""

    lock: threading.Lock
    #: which transactions of which server it shows
    snapshot: str = ""
    server: str = ""
    #: the policy and what it took of the last pass
    basis: tuple[Any, ...] | None = None
    #: by bucket
    marks: Mapping[str, _Mark] = field(default_factory=dict)
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
        seen = _look(pool, kept)
        if not seen.only_reads:
            return _columns(_read(pool))
        # read after the look: it may be newer than that, and is then read again by the next, never older
        basis = _basis(pool)
        changed = _changed(kept, seen)
        if (seen.server, basis) != (kept.server, kept.basis) or len(changed) > MOST_AGAIN:
            kept.rows = _read(pool)
            kept.queue = _columns(kept.rows)
        elif changed:
            kept.rows, kept.queue = _replaced(kept, changed, pool, seen)
        if seen.buckets is not None:
            kept.marks = {bucket: found.now for bucket, found in seen.buckets.items()}
        kept.basis, kept.snapshot, kept.server = basis, seen.snapshot, seen.server
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


class _Bucket(NamedTuple):
    """What a look has found of one."""

    #: its mark by what was under way at the last look
    then: _Mark
    now: _Mark
    #: jobs of which rows are new since the last look, if their writers are others
    new: list[str] | None


class _Seen(NamedTuple):
    """What a look at the three tables has found."""

    #: whether this transaction has written nothing
    only_reads: bool
    snapshot: str
    #: within which numbers of writers may be compared
    server: str
    #: None if nobody has written
    buckets: Mapping[str, _Bucket] | None


def _look(pool: ResourcePool, kept: _Kept) -> _Seen:
    writers = {bucket: writers for bucket, (_, writers) in kept.marks.items() if writers is not None}
    about: Mapping[str, Any] = {
        "snapshot": kept.snapshot,
        "server": kept.server,
        "writers": json.dumps(writers),
        "pool": pool.pk,
    }
    with connection.cursor() as cursor:
        cursor.execute(_LOOK, about)
        only_reads, snapshot, server, found = cursor.fetchone()
    buckets = found and {
        bucket: _Bucket((rows, then), (rows, now), new)
        for bucket, (rows, then, now, new) in json.loads(found).items()
    }
    return _Seen(only_reads, snapshot, server, buckets)


def _changed(kept: _Kept, seen: _Seen) -> set[int]:
    """The buckets that have lost a row since the last look, or have another one."""
    if seen.buckets is None:
        return set()
    thens = {bucket: found.then for bucket, found in seen.buckets.items()}
    none = (0, None)
    buckets = kept.marks.keys() | thens.keys()
    return {int(each) for each in buckets if kept.marks.get(each, none) != thens.get(each, none)}


def _read(pool: ResourcePool, jobs: Collection[str] | None = None) -> list[tuple[Any, ...]]:
    """The rows of these jobs, or all; in no order."""
    only = "" if jobs is None else "AND {} = ANY(%(jobs)s::uuid[])"
    parts = {"of_jobs": only.format("j.id"), "of_tasks": only.format("t.job_id")}
    asked: Mapping[str, Any] = {
        "pool": pool.pk,
        "never": last_plan.of(pool).never,
        "jobs": list(jobs or ()),
    }
    with connection.cursor() as cursor:
        cursor.execute(_QUEUE.format(**queue_order.sql(pool.policy.order), **parts), asked)
        return list(cursor.fetchall())


def _replaced(
    kept: _Kept, buckets: Collection[int], pool: ResourcePool, seen: _Seen
) -> tuple[list[tuple[Any, ...]], Queue]:
    """The kept rows and their queue, with the jobs of these buckets read again.

    Most rows of a changed bucket are as they were, and to make the columns again takes 20 ms for 10,000 jobs, for which
    every viewer of the pool would wait.
    """
    before = [(spot, row) for spot, row in enumerate(kept.rows) if row[-1] in buckets]
    jobs = {kept.queue.ids[spot] for spot, _ in before}
    for found in (seen.buckets or {}).values():
        jobs.update(found.new or ())
    new = set(_read(pool, jobs))
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
