"""Which logs have been kept long enough, and their removal (features.md 3.5).

Days count from the task's end. What somebody set for the task goes before its experiment's
`retention_policy.log_retention_days`, and that before the server's setting.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection
from django.db.models.expressions import RawSQL
from django.utils import timezone

from dispatch.going_on import going_on
from events import prepared
from jobs.states import TaskState
from logs import retention
from logs.retention import FOR_EVER, Held

log = logging.getLogger(__name__)

#: the name of the Celery task that removes what is due
REMOVE = "dispatch.tasks.clean_logs"
#: what decides -> how it is named in the log
_POLICIES = {"task": "set for this log", "config": "retention_policy", "server": "the server's setting"}


class Kept(NamedTuple):
    """How long a task's log is kept: days after its end (-1: for ever) and what says so, a key of `_POLICIES`."""

    days: int
    policy: str
    ended_at: datetime | None

    def remaining_days(self, now: datetime) -> int:
        """Whole days until it may be removed, -1 for ever; the whole span while the task goes on."""
        if self.days == FOR_EVER or self.ended_at is None:
            return self.days
        left = self.days - (now - self.ended_at).total_seconds() / 86_400
        return max(0, math.ceil(left))


class Due(NamedTuple):
    """A log that may be removed."""

    task_id: str
    kept: Kept
    trial_id: int | None
    experiment_id: int | None


class Removed(NamedTuple):
    """What one round has removed; `more` is left for the next."""

    logs: int
    held: Held
    more: bool


def kept(task_id: str) -> Kept:
    """Raises KeyError for a task that there is not."""
    return kept_of([task_id])[task_id]


def kept_of(task_ids: Collection[str]) -> dict[str, Kept]:
    """Return how long the logs of these tasks are kept, by one statement."""
    with prepared.cursor() as asks:
        values: dict[str, Any] = {"default": settings.LOG_RETENTION_DAYS, "tasks": list(task_ids)}
        asks.execute(f"{_KEPT} WHERE task.id = ANY(%(tasks)s)", values)
        return {
            task_id: Kept(days, policy, ended_at) for task_id, ended_at, days, policy, *_ in asks.fetchall()
        }


def days_of_trial() -> RawSQL:
    """An expression of queries of trials: the days of `kept`, where not the server's setting says them."""
    kept = _KEPT.replace("%(default)s", "NULL")
    return RawSQL(f"SELECT days FROM ({kept}) kept WHERE kept.trial_id = experiments_trial.id", [])


def due(now: datetime, default_days: int | None = None, limit: int | None = None) -> list[Due]:
    """Logs that may be removed, the longest ended first; with another default, those that would be."""
    values: dict[str, Any] = {
        "default": settings.LOG_RETENTION_DAYS if default_days is None else default_days,
        "ended": TaskState.ENDED,
        "now": now,
        "limit": limit,
    }
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM ({_KEPT} WHERE {_HAS_LINES}) kept WHERE {_OVER}", values)
        rows = cursor.fetchall()
    return [
        Due(task_id, Kept(days, policy, ended_at), trial, experiment)
        for task_id, ended_at, days, policy, trial, experiment in rows
    ]


_KEPT = """
SELECT task.id, task.ended_at,
  COALESCE(retention.days, config.days, %(default)s) AS days,
  CASE WHEN retention.days IS NOT NULL THEN 'task' WHEN config.days IS NOT NULL THEN 'config' ELSE 'server' END,
  trial.id AS trial_id, trial.experiment_id
FROM jobs_task task
LEFT JOIN logs_retention retention ON retention.task_id = task.id
LEFT JOIN experiments_trial trial ON trial.task_id = task.id
LEFT JOIN experiments_experiment experiment ON experiment.id = trial.experiment_id
LEFT JOIN LATERAL (
  SELECT (experiment.config #>> '{retention_policy,log_retention_days}')::int AS days) config ON true
"""
#: A log of which only the line is left that says so was removed before.
_HAS_LINES = """
task.state = %(ended)s AND EXISTS (
  SELECT FROM logs_chunk chunk WHERE chunk.task_id = task.id
    AND NOT (chunk.first_line = retention.removed_line + 1 AND chunk.last_line = chunk.first_line) IS TRUE)
"""
_OVER = """
days >= 0 AND ended_at + days * interval '1 day' <= %(now)s ORDER BY ended_at, id LIMIT %(limit)s
"""


def remove_due(seconds: float) -> Removed:
    """Remove what is due for at most about so many seconds. May be interrupted anywhere: the next round goes on."""
    deadline = time.monotonic() + seconds
    logs, removed = 0, Held()
    for each in due(timezone.now()):
        if time.monotonic() > deadline:
            return Removed(logs, removed, True)
        with going_on(f"the log of {each.task_id}"):
            held, finished = _remove(each, deadline)
            removed = removed.plus(held)
            if not finished:
                return Removed(logs, removed, True)
            logs += 1
    if logs:
        log.info(
            "removed %d logs: %d lines, %d bytes (stored size)", logs, removed.lines, removed.stored_bytes
        )
    return Removed(logs, removed, False)


def _remove(each: Due, deadline: float) -> tuple[Held, bool]:
    removed = Held()
    if not retention.begin(each.task_id, notice(each.kept)):
        return removed, True  # it goes on after all
    while (part := retention.step(each.task_id)).lines:
        removed = removed.plus(part)
        if time.monotonic() > deadline:
            return removed, False
    return removed, True


def notice(kept: Kept) -> str:
    """What stands in the log instead of its lines."""
    after = {0: "when its job ended", 1: "after 1 day"}.get(kept.days, f"after {kept.days} days")
    return f"The log was removed {after} ({_POLICIES[kept.policy]})."
