"""Keeps what a pass decided, for pages, API and command line: one document a pool, megabytes long where 10,000 wait.

The forecast follows after the pass has been committed, so that no start waits for it. Until then, and while it is not
due, the former forecast stays.
"""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection

from events.announce import announce
from scheduling.forecast import forecast
from scheduling.world import Plan, Snapshot

#: a forecast may take this part of the time, but is never older than FORECAST_SECONDS allows
FORECAST_PART = 0.05

_STORE = """
WITH told AS (UPDATE hosts_resourcepool SET planned_at = %(at)s WHERE id = %(pool)s)
INSERT INTO hosts_poolplan AS kept (pool_id, document) VALUES (%(pool)s, %(plan)s::jsonb)
ON CONFLICT (pool_id) DO UPDATE SET document = excluded.document || jsonb_build_object(
  'forecast', coalesce(kept.document->'forecast', '{}'), 'unknown', coalesce(kept.document->'unknown', '{}'),
  'forecast_at', kept.document->'forecast_at', 'forecast_ms', kept.document->'forecast_ms')
RETURNING (document->>'forecast_at')::float8, (document->>'forecast_ms')::float8
"""
# readers keep a document by its time, so a changed one has another
_ADD = """
WITH same AS (
  UPDATE hosts_resourcepool SET planned_at = planned_at + interval '1 microsecond'
  WHERE id = %(pool)s AND planned_at = %(at)s RETURNING id
)
UPDATE hosts_poolplan SET document = document || %(more)s::jsonb FROM same WHERE pool_id = same.id
"""


def store(pool_id: int, snapshot: Snapshot, plan: Plan, took_ms: float, now: datetime) -> bool:
    """Replace the pool's document, within the pass; whether it is time for a forecast."""
    with connection.cursor() as cursor:
        document = json.dumps(_document(snapshot, plan, took_ms))
        cursor.execute(_STORE, {"at": now, "plan": document, "pool": pool_id})
        made_at, took = cursor.fetchone()
    announce(f"plan:{pool_id}")
    if made_at is None:
        return True
    pause = min(settings.FORECAST_SECONDS, took / 1000 / FORECAST_PART)
    return bool(now.timestamp() - made_at >= pause)


def _document(snapshot: Snapshot, plan: Plan, took_ms: float) -> dict[str, Any]:
    """The plan as it is read. Keyed by task, except the order, which is of jobs."""
    job_of = {request.task_id: request.job_id for request in snapshot.requests}
    return {
        "order": list(dict.fromkeys(job_of[task_id] for task_id in plan.order)),
        "waits": {task_id: reason.record() for task_id, reason in plan.waits.items()},
        "shares": dict(plan.shares),
        "took_ms": round(took_ms, 1),
    }


def add_forecast(pool_id: int, snapshot: Snapshot, plan: Plan, planned_at: datetime) -> None:
    """Add when each will start, or why nobody knows, to the document of this pass; a newer one gets its own."""
    begun = time.perf_counter()
    found = forecast(snapshot, plan)
    more = {
        "forecast": {task_id: list(span) for task_id, span in found.spans.items()},
        "unknown": dict(found.unknown),
        "forecast_at": snapshot.now,
        "forecast_ms": round((time.perf_counter() - begun) * 1000, 1),
    }
    with connection.cursor() as cursor:
        cursor.execute(_ADD, {"more": json.dumps(more), "pool": pool_id, "at": planned_at})
    announce(f"plan:{pool_id}")
