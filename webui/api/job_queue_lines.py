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
from jobs import run_words

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


_QUEUE = """
WITH live AS (
  SELECT job_id, sum(slots)::int AS requested
  FROM jobs_task WHERE state IN ('WAITING', 'RUNNING') GROUP BY job_id
), holding AS (
  SELECT t.job_id, sum(a.slots)::int AS held, count(*)::int AS runs, bool_and(a.on_sufferance) AS backfilled,
         coalesce(array_agg(ARRAY[a.stop_kind, a.stop_reason, coalesce(a.preempt_acked_at::text, '')] ORDER BY a.id)
                  FILTER (WHERE a.stop_kind <> '' OR a.state = 'TERMINATING'), '{{}}') AS stops
  FROM jobs_allocation a JOIN jobs_task t ON t.id = a.task_id WHERE a.state <> 'TERMINATED' GROUP BY t.job_id
), lined AS (
  SELECT j.id, j.owner_id, row_number() OVER (ORDER BY {order}) - 1 AS place,
         CASE WHEN holding.job_id IS NULL THEN 'queued' WHEN holding.backfilled THEN 'backfilled' ELSE 'scheduled' END
           AS state,
         coalesce(live.requested, 0) AS requested, coalesce(holding.held, 0) AS held,
         coalesce(holding.runs, 0) AS runs, coalesce(holding.stops, '{{}}') AS stops
  FROM jobs_job j LEFT JOIN live ON live.job_id = j.id LEFT JOIN holding ON holding.job_id = j.id {planned}
  WHERE j.pool_id = %(pool)s AND j.state <> 'ENDED'
    AND (holding.job_id IS NOT NULL OR j.state = 'ACTIVE' AND live.job_id IS NOT NULL)
)
"""
_BY_PRIORITY = {"order": "j.priority, j.position, j.id", "planned": ""}
_AS_PLANNED = {
    "order": "planned.place, j.priority, j.position, j.id",
    "planned": """LEFT JOIN (
      SELECT each.id, each.place FROM hosts_poolplan p
      CROSS JOIN jsonb_array_elements_text(p.document->'order') WITH ORDINALITY AS each(id, place)
      WHERE p.pool_id = %(pool)s
    ) planned ON planned.id = j.id::text""",
}
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
