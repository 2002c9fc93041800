"""The lines of one page of a queue, or of some of its jobs, and how many there are: one statement, whatever its length.

REST and the command line ask for few lines of a queue that may have changed since. `standing` takes three times as
long to read it, but keeps all of it for the board.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection

from events import prepared
from hosts.models import ResourcePool
from jobs import queue_order
from shown.queue.standing import StandingJob

#: rows of one answer; what is asked beyond comes with the next page
NO_LIMIT = 1_000_000

_HOLDS = "holding.job_id IS NOT NULL"
_QUEUE = f"""
WITH live AS (
  SELECT t.job_id, sum(t.slots)::int AS needed FROM jobs_task t WHERE {queue_order.WANTS} GROUP BY t.job_id
), holding AS (
  SELECT t.job_id, sum(a.slots)::int AS held, bool_and(a.on_sufferance) AS backfilled
  FROM jobs_allocation a JOIN jobs_task t ON t.id = a.task_id WHERE {queue_order.HOLDS} GROUP BY t.job_id
), lined AS (
  SELECT j.id, j.owner_id, row_number() OVER (ORDER BY {{order}}) - 1 AS place,
         {queue_order.state(holds=_HOLDS, backfilled="holding.backfilled")} AS state,
         coalesce(holding.held, 0) AS held, greatest(live.needed, holding.held, 0) AS needed
  FROM jobs_job j LEFT JOIN live ON live.job_id = j.id LEFT JOIN holding ON holding.job_id = j.id {{planned}}
  WHERE j.pool_id = %(pool)s AND {queue_order.stands(holds=_HOLDS, wants="live.job_id IS NOT NULL")}
)
"""
_PAGE = """
, wanted AS (
  SELECT * FROM lined WHERE (%(states)s::text[] IS NULL OR state = ANY(%(states)s))
    AND (%(ids)s::uuid[] IS NULL OR id = ANY(%(ids)s))
    AND (%(users)s::text[] IS NULL OR owner_id IN (SELECT id FROM accounts_user WHERE username = ANY(%(users)s)))
), shown AS (
  SELECT * FROM wanted ORDER BY place {direction} LIMIT %(limit)s OFFSET %(offset)s
)
SELECT counted.total, shown.id, place, state, held, needed
FROM (SELECT count(*) AS total FROM wanted) AS counted LEFT JOIN shown ON true ORDER BY shown.place {direction}
"""


def page(
    pool: ResourcePool,
    *,
    states: Collection[str] = (),
    users: Collection[str] = (),
    ids: Collection[uuid.UUID] | None = None,
    descending: bool = False,
    offset: int = 0,
    limit: int = NO_LIMIT,
) -> tuple[list[StandingJob], int]:
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
    question = _PAGE.format(direction="DESC" if descending else "ASC")
    with prepared.cursor() as asks:
        asks.execute(_QUEUE.format(**queue_order.sql(pool.policy.order)) + question, asked)
        rows = asks.fetchall()
    return [StandingJob(*line) for _, *line in rows if line[0] is not None], int(rows[0][0])
