"""Which jobs stand in a pool's queue, where, and how many: one statement, however long the queue (features.md 2.6).

A job stands there while it wants or holds something; a paused one only while its slots are being freed. The
order is (priority, position) in a priority pool, so it is right even before the next pass, and that of the last
pass elsewhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.db import connection

from hosts.models import ResourcePool
from jobs import queue_order, run_words

#: rows of one answer; what is asked beyond comes with the next page
NO_LIMIT = 1_000_000


@dataclass(frozen=True)
class Line:
    """One job of a queue. `place` counts from 0. `leaving`: the word of each run that leaves."""

    job_id: uuid.UUID
    place: int
    #: queued, scheduled or backfilled
    state: str
    requested: int
    held: int
    runs: int
    leaving: tuple[str, ...]


_HOLDS = "holding.job_id IS NOT NULL"
_QUEUE = f"""
WITH live AS (
  SELECT t.job_id, sum(t.slots)::int AS requested FROM jobs_task t WHERE {queue_order.WANTS} GROUP BY t.job_id
), holding AS (
  SELECT t.job_id, sum(a.slots)::int AS held, count(*)::int AS runs, bool_and(a.on_sufferance) AS backfilled,
         coalesce(array_agg(ARRAY[a.stop_kind, a.stop_reason, coalesce(a.preempt_acked_at::text, '')] ORDER BY a.id)
                  FILTER (WHERE {queue_order.LEAVES}), '{{{{}}}}') AS stops
  FROM jobs_allocation a JOIN jobs_task t ON t.id = a.task_id WHERE {queue_order.HOLDS} GROUP BY t.job_id
), lined AS (
  SELECT j.id, j.owner_id, row_number() OVER (ORDER BY {{order}}) - 1 AS place,
         {queue_order.state(holds=_HOLDS, backfilled="holding.backfilled")} AS state,
         coalesce(live.requested, 0) AS requested, coalesce(holding.held, 0) AS held,
         coalesce(holding.runs, 0) AS runs, coalesce(holding.stops, '{{{{}}}}') AS stops
  FROM jobs_job j LEFT JOIN live ON live.job_id = j.id LEFT JOIN holding ON holding.job_id = j.id {{planned}}
  WHERE j.pool_id = %(pool)s AND {queue_order.stands(holds=_HOLDS, wants="live.job_id IS NOT NULL")}
)
"""
_BY_PRIORITY = {"order": queue_order.BY_PRIORITY, "planned": ""}
_AS_PLANNED = {"order": queue_order.AS_PLANNED, "planned": queue_order.PLANNED}
_PAGE = """
, wanted AS (
  SELECT * FROM lined WHERE (%(states)s::text[] IS NULL OR state = ANY(%(states)s))
    AND (%(ids)s::uuid[] IS NULL OR id = ANY(%(ids)s))
    AND (%(users)s::text[] IS NULL OR owner_id IN (SELECT id FROM accounts_user WHERE username = ANY(%(users)s)))
), shown AS (
  SELECT * FROM wanted ORDER BY place {direction} LIMIT %(limit)s OFFSET %(offset)s
)
SELECT counted.total, shown.id, place, state, requested, held, runs, stops
FROM (SELECT count(*) AS total FROM wanted) AS counted LEFT JOIN shown ON true ORDER BY shown.place {direction}
"""
_COUNTS = (
    "SELECT count(*) FILTER (WHERE state = 'queued'), count(*) FILTER (WHERE state <> 'queued') FROM lined"
)


def page(
    pool: ResourcePool,
    *,
    states: Collection[str] = (),
    users: Collection[str] = (),
    ids: Collection[uuid.UUID] | None = None,
    descending: bool = False,
    offset: int = 0,
    limit: int = NO_LIMIT,
) -> tuple[list[Line], int]:
    """The lines of one page, and how many there are: in one of the states, of one of the users, among the ids.

    Nothing given means any. The places are those in the whole queue.
    """
    asked = {
        "pool": pool.pk,
        "states": list(states) or None,
        "users": list(users) or None,
        "ids": None if ids is None else list(ids),
        "limit": limit,
        "offset": offset,
    }
    rows = _rows(pool, _PAGE.format(direction="DESC" if descending else "ASC"), asked)
    lines = [
        Line(job_id, place, state, requested, held, runs, _words(stops))
        for _, job_id, place, state, requested, held, runs, stops in rows
        if job_id is not None
    ]
    return lines, int(rows[0][0])


def _words(stops: list[list[str]]) -> tuple[str, ...]:
    return tuple(run_words.leaving(kind, reason, bool(acked)) for kind, reason, acked in stops)


def counts(pool: ResourcePool) -> tuple[int, int]:
    """How many jobs wait, and how many hold something."""
    ((queued, scheduled),) = _rows(pool, _COUNTS, {"pool": pool.pk})
    return int(queued), int(scheduled)


def _rows(pool: ResourcePool, question: str, asked: dict[str, Any]) -> list[Any]:
    ordered = pool.scheduler == ResourcePool.Scheduler.PRIORITY
    with connection.cursor() as cursor:
        cursor.execute(_QUEUE.format(**(_BY_PRIORITY if ordered else _AS_PLANNED)) + question, asked)
        return list(cursor.fetchall())
