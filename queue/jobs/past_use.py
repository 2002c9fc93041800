"""How many slots users have held in a pool lately: long ago counts less."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import connection

#: what was held longer ago than so many half-lives does not count any more
HALF_LIVES = 10
_AVERAGES = """
SELECT owner_id, sum(slots * (
         power(0.5, extract(epoch FROM %(now)s - least(ended_at, %(now)s))::float8 / %(half)s)
         - power(0.5, extract(epoch FROM %(now)s - greatest(started_at, %(after)s))::float8 / %(half)s)))
FROM (
  SELECT owner_id, slots, started_at, ended_at FROM jobs_usagerecord
  WHERE pool_id = %(pool)s AND ended_at > %(after)s AND started_at < %(now)s
  UNION ALL
  SELECT j.owner_id, m.slots, a.assigned_at, coalesce(m.ended_at, %(now)s)
  FROM jobs_allocation a JOIN jobs_member m ON m.allocation_id = a.id
  JOIN jobs_task t ON t.id = a.task_id JOIN jobs_job j ON j.id = t.job_id
  WHERE a.pool_id = %(pool)s AND a.state <> 'TERMINATED' AND a.assigned_at < %(now)s
    AND coalesce(m.ended_at, %(now)s) > %(after)s
) AS held WHERE slots > 0 GROUP BY 1
"""


def averages(pool_id: int, half_life: timedelta, now: datetime) -> dict[int, float]:
    """User -> slots that they have held in this pool on average, where a half-life ago counts half."""
    values: dict[str, Any] = {
        "pool": pool_id,
        "now": now,
        "after": now - HALF_LIVES * half_life,
        "half": half_life.total_seconds(),
    }
    with connection.cursor() as cursor:
        cursor.execute(_AVERAGES, values)
        return dict(cursor.fetchall())
