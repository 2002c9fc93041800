"""What the last pass told of some tasks, read from the pool's plan where it lies: a long queue has one of megabytes."""

from __future__ import annotations

import json
from collections.abc import Sequence

from django.db import connection

from webui.api.views import Json

_PLAN = """
WITH plan AS MATERIALIZED (
  SELECT document->'waits' AS waits, document->'forecast' AS forecast, document->'unknown' AS unknown
  FROM (SELECT 1) AS one LEFT JOIN hosts_poolplan ON pool_id = %s
)
SELECT id, plan.waits->id, plan.forecast->id, plan.unknown->>id FROM unnest(%s::text[]) AS task(id) CROSS JOIN plan
"""


def told(pool_id: int, task_ids: Sequence[str]) -> dict[str, Json]:
    """Task id -> {"reason": {…}, "forecast": [earliest, latest], "unknown": why there is no forecast}, each or None."""
    with connection.cursor() as cursor:
        cursor.execute(_PLAN, [pool_id, list(task_ids)])
        return {
            task_id: {
                "reason": json.loads(wait) if wait else None,
                "forecast": json.loads(span) if span else None,
                "unknown": unknown,
            }
            for task_id, wait, span, unknown in cursor.fetchall()
        }
