"""How long slots were held, by whom and in which pool: kept when an attempt ends, and read as it was or summed up.

A record per member is written in the transaction that ends the attempt, and no deletion touches it; what still holds
slots is read from its own rows. Times are clipped to what was asked for; the unit is the slot-second.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection
from django.utils import timezone

from dispatch.keeping.usage_periods import Periods
from experiments.models import Experiment
from jobs.models import Allocation, Member, Task, UsageRecord

#: everything that was held for a time between %(after)s and %(before)s, whether its job is still here or not
_HELD = """
SELECT run_key, kind, owner_id, pool_id, slots, started_at, ended_at, labels, experiment_number, workspace
FROM jobs_usagerecord WHERE ended_at > %(after)s AND started_at < %(before)s
UNION ALL
SELECT a.id || '.' || m.index, t.kind, j.owner_id, a.pool_id, m.slots, a.assigned_at, coalesce(m.ended_at, %(now)s),
       coalesce(e.labels, '[]'), e.id, coalesce(w.name, '')
FROM jobs_allocation a JOIN jobs_member m ON m.allocation_id = a.id
JOIN jobs_task t ON t.id = a.task_id JOIN jobs_job j ON j.id = t.job_id
LEFT JOIN experiments_experiment e ON e.job_id = j.id
LEFT JOIN experiments_project p ON p.id = e.project_id
LEFT JOIN experiments_workspace w ON w.id = p.workspace_id
WHERE a.state <> 'TERMINATED' AND a.assigned_at < %(before)s AND coalesce(m.ended_at, %(now)s) > %(after)s
  AND e.unmanaged IS NOT TRUE
"""
_SUMS = f"""
WITH sums AS (
  SELECT period, owner_id, pool_id, labels,
         sum(slots * extract(epoch FROM least(ended_at, %(before)s, period + %(step)s::interval)
                                        - greatest(started_at, %(after)s, period))::float8) AS seconds
  FROM ({_HELD}) AS held
  CROSS JOIN LATERAL generate_series(date_trunc(%(unit)s, greatest(started_at, %(after)s), 'UTC'),
    least(ended_at, %(before)s) - interval '1 microsecond', %(step)s::interval) AS period
  WHERE slots > 0 GROUP BY 1, 2, 3, 4
)
SELECT period, u.username, pool.name, labels, seconds
FROM sums JOIN accounts_user u ON u.id = owner_id JOIN hosts_resourcepool pool ON pool.id = pool_id ORDER BY 1
"""
_PAGE = f"""
SELECT run_key, kind, u.id, u.username, pool.name, labels, slots, started_at, ended_at, experiment_number, workspace,
       extract(epoch FROM least(ended_at, %(before)s) - greatest(started_at, %(after)s))::float8
FROM ({_HELD}) AS held
JOIN accounts_user u ON u.id = held.owner_id JOIN hosts_resourcepool pool ON pool.id = held.pool_id
WHERE (started_at, run_key) > (%(began)s, %(behind)s)
ORDER BY started_at, run_key LIMIT %(limit)s
"""
_BEFORE_ALL = datetime.fromisoformat("0001-01-01T00:00:00+00:00")


@dataclass
class UsageSum:
    """Slot-seconds of one day or month, in all and by who, where and what; a job counts for each of its labels."""

    period: str
    seconds: float = 0.0
    by_user: Counter[str] = field(default_factory=Counter)
    by_pool: Counter[str] = field(default_factory=Counter)
    by_label: Counter[str] = field(default_factory=Counter)
    #: of what has no label
    unlabeled: float = 0.0


@dataclass(frozen=True)
class Held:
    """What a member held. `seconds` lie within what was asked for; `ended_at` is now while it still holds them."""

    run_key: str
    kind: str
    user_id: int
    username: str
    pool: str
    labels: list[str]
    slots: int
    started_at: datetime
    ended_at: datetime
    experiment_id: int | None
    workspace: str
    seconds: float

    @property
    def allocation_id(self) -> str:
        return self.run_key.rpartition(".")[0]


def keep(allocation: Allocation, members: Sequence[Member]) -> None:
    """Record what an attempt held, in the transaction that ends it; all its members have ended.

    A detached run holds nothing of any pool.
    """
    about = _about(allocation.task)
    if about is None:
        return
    labels, number, workspace = about
    UsageRecord.objects.bulk_create(
        UsageRecord(
            run_key=member.run_key,
            kind=allocation.task.kind,
            owner_id=allocation.task.job.owner_id,
            pool_id=allocation.pool_id,
            slots=member.slots,
            started_at=allocation.assigned_at,
            ended_at=member.ended_at or allocation.assigned_at,
            labels=labels,
            experiment_number=number,
            workspace=workspace,
        )
        for member in members
    )


def _about(task: Task) -> tuple[list[str], int | None, str] | None:
    """Labels, experiment and workspace; None for a detached run."""
    if task.kind != Task.Kind.TRIAL:
        return [], None, ""
    found = Experiment.objects.select_related("project__workspace")
    experiment = found.only("labels", "unmanaged", "project__workspace__name").get(job_id=task.job_id)
    if experiment.unmanaged:
        return None
    return experiment.labels, experiment.pk, experiment.project.workspace.name


def sums(periods: Periods) -> list[UsageSum]:
    """Every period, those without any use too."""
    found = {name: UsageSum(name) for name in periods.names}
    values = {**_between(periods.after, periods.before), "unit": periods.unit, "step": f"1 {periods.unit}"}
    with connection.cursor() as cursor:
        cursor.execute(_SUMS, values)
        for start, username, pool, labels, seconds in cursor.fetchall():
            total = found[periods.name_of(start)]
            total.seconds += seconds
            total.by_user[username] += seconds
            total.by_pool[pool] += seconds
            for label in set(_list(labels)):
                total.by_label[label] += seconds
            if not _list(labels):
                total.unlabeled += seconds
    return list(found.values())


def held(after: datetime, before: datetime, *, behind: Held | None = None, limit: int) -> list[Held]:
    """The next `limit` of everything that was held between two times, the earliest start first."""
    began, key = (behind.started_at, behind.run_key) if behind else (_BEFORE_ALL, "")
    with connection.cursor() as cursor:
        cursor.execute(_PAGE, {**_between(after, before), "began": began, "behind": key, "limit": limit})
        return [_held(*row) for row in cursor.fetchall()]


def _held(run_key: str, *rest: Any) -> Held:
    kind, user_id, username, pool, labels, *more = rest
    return Held(run_key, kind, user_id, username, pool, _list(labels), *more)


def _between(after: datetime, before: datetime) -> dict[str, Any]:
    return {"after": after, "before": before, "now": timezone.now()}


def _list(labels: Any) -> list[str]:
    """As the driver gives JSON in a plain cursor: text, or values already."""
    return list(json.loads(labels) if isinstance(labels, str) else labels)
