"""How the pools, and the groups in them, stood over time: counted once a minute, thinned when old, read as kept.

What became of forecasts is forgotten with the run times that they are made from.

Any number of workers may count the same minute: the first row stays.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from accounts.models import Group
from dispatch.keeping import figures
from events.announce import announce
from hosts.models import ResourcePool
from jobs import group_rows
from jobs.models import ForecastOutcome, GroupCount, PoolCount
from metrics.cluster_charts import PoolSpan, TotalSpan
from metrics.group_chart import GroupSpan

#: of a row as it is counted, and once it is old
SECONDS = 60
COARSE_SECONDS = 600

_THIN = """
WITH old AS (DELETE FROM {table} WHERE seconds < %(coarse)s AND at < %(before)s RETURNING *)
INSERT INTO {table} ({keys}, at, seconds, {values})
SELECT {keys}, to_timestamp(floor(extract(epoch FROM at) / %(coarse)s) * %(coarse)s) AS span, %(coarse)s, {means}
FROM old GROUP BY {keys}, span
ON CONFLICT DO NOTHING
"""
#: table, what is counted of, and the counts
_COUNTED = (
    (
        "jobs_poolcount",
        ("pool_id",),
        ("slots", "usable_slots", "used_slots", "waiting_tasks", "wanted_slots"),
    ),
    ("jobs_groupcount", ("pool_id", "group_id"), ("guaranteed", "held", "borrowed", "lent", "waiting")),
)
_BY_POOL = """
SELECT pool.name, floor(extract(epoch FROM at)::float8 / %(size)s) * %(size)s AS span, avg(usable_slots),
  avg(used_slots), max(used_slots), avg(waiting_tasks), max(waiting_tasks)
FROM jobs_poolcount JOIN hosts_resourcepool pool ON pool.id = pool_id
WHERE at BETWEEN %(first)s AND %(last)s AND NOT pool.removed GROUP BY 1, 2 ORDER BY 1, 2
"""
_TOTALS = """
SELECT floor(extract(epoch FROM at)::float8 / %(size)s) * %(size)s AS span,
  avg(usable), avg(waiting), min(waiting), max(waiting), avg(wanted)
FROM (
  SELECT at, sum(usable_slots) AS usable, sum(waiting_tasks) AS waiting, sum(wanted_slots) AS wanted
  FROM jobs_poolcount JOIN hosts_resourcepool pool ON pool.id = pool_id
  WHERE at BETWEEN %(first)s AND %(last)s AND NOT pool.removed GROUP BY at
) AS counted GROUP BY 1 ORDER BY 1
"""
_OF_GROUP = """
SELECT pool.name, floor(extract(epoch FROM at)::float8 / %(size)s) * %(size)s AS span,
  avg(guaranteed), avg(held), avg(borrowed), avg(lent), avg(waiting)
FROM jobs_groupcount JOIN hosts_resourcepool pool ON pool.id = pool_id
WHERE group_id = %(group)s AND at BETWEEN %(first)s AND %(last)s AND NOT pool.removed GROUP BY 1, 2 ORDER BY 1, 2
"""


def count(now: datetime) -> None:
    """Keep how every pool stands in the minute of `now`."""
    ids = dict(ResourcePool.objects.values_list("name", "pk"))
    at = now.replace(second=0, microsecond=0)
    rows = [
        PoolCount(
            pool_id=ids[pool.name],
            at=at,
            seconds=SECONDS,
            slots=pool.slots,
            usable_slots=pool.usable_slots,
            used_slots=pool.used_slots,
            waiting_tasks=pool.tasks["waiting"],
            wanted_slots=pool.wanted_slots,
        )
        for pool in figures.pools()
        if pool.name in ids
    ]
    PoolCount.objects.bulk_create(rows, ignore_conflicts=True)
    _count_groups(at)
    announce("cluster")


def _count_groups(at: datetime) -> None:
    ids = dict(Group.objects.values_list("name", "pk"))
    rows = [
        GroupCount(
            pool=pool,
            group_id=ids[row.group],
            at=at,
            seconds=SECONDS,
            guaranteed=row.guaranteed,
            held=row.held,
            borrowed=row.borrowed,
            lent=row.lent,
            waiting=row.waiting,
        )
        for pool in ResourcePool.objects.exclude(group_shares={})
        for row in group_rows.of_pool(pool)
        if row.group in ids
    ]
    GroupCount.objects.bulk_create(rows, ignore_conflicts=True)


def thin(now: datetime) -> None:
    """Make one row of the ten minutes that are old enough, and forget what is older still."""
    minutes, rows = (
        timedelta(days=days) for days in (settings.POOL_MINUTES_DAYS, settings.POOL_HISTORY_DAYS)
    )
    whole = (now - minutes).replace(minute=0, second=0, microsecond=0)
    with transaction.atomic(), connection.cursor() as cursor:
        for table, keys, values in _COUNTED:
            means = ", ".join(f"avg({value})" for value in values)
            names = {"table": table, "keys": ", ".join(keys), "values": ", ".join(values), "means": means}
            cursor.execute(_THIN.format(**names), {"coarse": COARSE_SECONDS, "before": whole})
    PoolCount.objects.filter(at__lt=now - rows).delete()
    GroupCount.objects.filter(at__lt=now - rows).delete()
    promised = timedelta(days=settings.FORECAST_HISTORY_DAYS)
    ForecastOutcome.objects.filter(promised_at__lt=now - promised).delete()


def by_pool(first: datetime, last: datetime, span_seconds: int) -> list[PoolSpan]:
    """What was counted between two times, by pool and span."""
    return [PoolSpan(*row) for row in _rows(_BY_POOL, first, last, span_seconds)]


def totals(first: datetime, last: datetime, span_seconds: int) -> list[TotalSpan]:
    """Return what was counted over all pools together between two times, by span."""
    return [TotalSpan(*row) for row in _rows(_TOTALS, first, last, span_seconds)]


def of_group(group: Group, first: datetime, last: datetime, span_seconds: int) -> list[GroupSpan]:
    """What was counted of a group between two times, by pool and span."""
    return [GroupSpan(*row) for row in _rows(_OF_GROUP, first, last, span_seconds, group=group.pk)]


def _rows(
    statement: str, first: datetime, last: datetime, span_seconds: int, **more: Any
) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, {"first": first, "last": last, "size": span_seconds, **more})
        return list(cursor.fetchall())


def counted_at() -> datetime | None:
    """When the pools were counted last."""
    return PoolCount.objects.order_by("-at").values_list("at", flat=True).first()
