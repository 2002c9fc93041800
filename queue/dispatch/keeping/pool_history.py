"""How the pools stood over time: counted once a minute, thinned when it is old, read as it was kept.

What became of forecasts is forgotten with the run times that they are made from.

Any number of workers may count the same minute: the first row stays.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from dispatch.keeping import figures
from events.announce import announce
from hosts.models import ResourcePool
from jobs.models import ForecastOutcome, PoolCount
from metrics.cluster_charts import PoolSpan, TotalSpan

#: of a row as it is counted, and once it is old
SECONDS = 60
COARSE_SECONDS = 600

_THIN = """
WITH old AS (DELETE FROM jobs_poolcount WHERE seconds < %(coarse)s AND at < %(before)s RETURNING *)
INSERT INTO jobs_poolcount (pool_id, at, seconds, slots, usable_slots, used_slots, waiting_tasks, wanted_slots)
SELECT pool_id, to_timestamp(floor(extract(epoch FROM at) / %(coarse)s) * %(coarse)s) AS span, %(coarse)s,
  avg(slots), avg(usable_slots), avg(used_slots), avg(waiting_tasks), avg(wanted_slots)
FROM old GROUP BY pool_id, span
ON CONFLICT DO NOTHING
"""
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
    announce("cluster")


def thin(now: datetime) -> None:
    """Make one row of the ten minutes that are old enough, and forget what is older still."""
    minutes, rows = (
        timedelta(days=days) for days in (settings.POOL_MINUTES_DAYS, settings.POOL_HISTORY_DAYS)
    )
    whole = (now - minutes).replace(minute=0, second=0, microsecond=0)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_THIN, {"coarse": COARSE_SECONDS, "before": whole})
    PoolCount.objects.filter(at__lt=now - rows).delete()
    promised = timedelta(days=settings.FORECAST_HISTORY_DAYS)
    ForecastOutcome.objects.filter(promised_at__lt=now - promised).delete()


def by_pool(first: datetime, last: datetime, span_seconds: int) -> list[PoolSpan]:
    """What was counted between two times, by pool and span."""
    return [PoolSpan(*row) for row in _rows(_BY_POOL, first, last, span_seconds)]


def totals(first: datetime, last: datetime, span_seconds: int) -> list[TotalSpan]:
    """Return what was counted over all pools together between two times, by span."""
    return [TotalSpan(*row) for row in _rows(_TOTALS, first, last, span_seconds)]


def _rows(statement: str, first: datetime, last: datetime, span_seconds: int) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, {"first": first, "last": last, "size": span_seconds})
        return list(cursor.fetchall())


def counted_at() -> datetime | None:
    """When the pools were counted last."""
    return PoolCount.objects.order_by("-at").values_list("at", flat=True).first()
