"""Reads what hosts have measured as series that a chart can show, with every extreme.

Wide windows are read from minutes (lowest, highest, mean), narrow ones from the points themselves as long as those
are kept (settings.SAMPLE_POINTS_HOURS).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Coalesce

from metrics.models import SampleChunk
from metrics.names import METRICS, RANK, Metric, split
from metrics.packing import Floats
from metrics.sample_chunks import MINUTE, Samples, by_minute, chosen, joined, runs_of, unpack

DEFAULT_POINTS = 1000
FEWEST_POINTS = 2
#: Minutes do where a chart's points are so far apart: four of its points then share a minute.
_COARSE_SECONDS = MINUTE / 4
_NEWEST = 32
_Grain = SampleChunk.Grain
#: so that what belongs to no task equals its like
_OF_TASK = Coalesce("task_id", Value(""))


@dataclass(frozen=True)
class SampleSeries:
    """One column of one host. `total` counts what was read, before it was reduced; gaps have no points.

    `times` are epoch seconds of the host's clock and ascend; each point stands for what lies between `low` and `high`.
    """

    host: str
    name: str
    part: str  # a GPU's UUID or a rank, empty where the name has no parts
    times: Floats
    low: Floats
    high: Floats
    mean: Floats
    total: int

    @property
    def metric(self) -> Metric:
        return METRICS[self.name]


def of_task(
    task_id: str,
    names: Collection[str] | None = None,
    *,
    hosts: Collection[str] | None = None,
    first_time: float | None = None,
    last_time: float | None = None,
    points: int = DEFAULT_POINTS,
) -> list[SampleSeries]:
    """The series of a task by host, name and part; `names` and `hosts` None means all.

    Times are limited to first_time <= time <= last_time (epoch seconds), each series to `points` points. Raises
    ValueError for fewer points than 2.
    """
    rows = SampleChunk.objects.filter(task_id=task_id)
    if hosts is not None:
        rows = rows.filter(host__in=hosts)
    return _read(rows, _wanted(names), first_time, last_time, points)


def of_host(
    host_id: uuid.UUID,
    names: Collection[str] | None = None,
    *,
    first_time: float | None = None,
    last_time: float | None = None,
    points: int = DEFAULT_POINTS,
) -> list[SampleSeries]:
    """Return the series of a host, whatever ran there; coarse while idle. Samples of ranks belong to their tasks."""
    rows = SampleChunk.objects.filter(host_id=host_id)
    own = {name for name in _wanted(names) if METRICS[name].part_is != RANK}
    return _read(rows, own, first_time, last_time, points)


def newest_of_host(host_id: uuid.UUID) -> float | None:
    """When its last sample was taken (epoch seconds of its clock), None before the first."""
    rows = SampleChunk.objects.filter(host_id=host_id).order_by("-first_time")
    return rows.values_list("last_time", flat=True).first()


def last_seconds(seconds: float) -> tuple[float, float]:
    """(first_time, last_time) of the last so many seconds."""
    now = time.time()
    return now - seconds, now


def columns_of_task(task_id: str) -> list[tuple[str, str, str]]:
    """(host, name, part) of all series that there are, to choose from."""
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS, [task_id])
        rows = [(host, *split(column)) for host, column in cursor.fetchall()]
    return sorted((row for row in rows if row[1] in METRICS), key=lambda row: _order(*row))


#: Nearly all rows of a host have the same columns. By their hash the rows need no sort, which of 100 hosts and ten days
#: took four times as long, and spilled to disk.
_COLUMNS = """
SELECT DISTINCT host, unnest(columns) FROM metrics_samplechunk WHERE id IN (
  SELECT min(id) FROM metrics_samplechunk WHERE task_id = %s GROUP BY host, hash_array_extended(columns, 0))
"""


def _wanted(names: Collection[str] | None) -> set[str]:
    return set(METRICS) if names is None else {name for name in names if name in METRICS}


def _read(
    rows: QuerySet[SampleChunk],
    names: Collection[str],
    first_time: float | None,
    last_time: float | None,
    points: int,
) -> list[SampleSeries]:
    if points < FEWEST_POINTS:
        raise ValueError(f"A series cannot be reduced to {points} points; allowed: {FEWEST_POINTS} or more.")
    first, last = _window(rows, first_time, last_time)
    is_coarse = (last - first) / points >= _COARSE_SECONDS
    found: list[SampleSeries] = []
    for host, parts in groupby(_parts(_within(rows, first, last, is_coarse)), key=itemgetter(0)):
        kept = [part for _, each in parts if (part := _chosen(each, names, first, last)) is not None]
        if kept:
            samples = joined(kept) if len(kept) > 1 else kept[0]
            found += _series(host, by_minute(samples) if is_coarse else samples, points)
    return sorted(found, key=lambda series: _order(series.host, series.name, series.part))


def _order(host: str, name: str, part: str) -> tuple[str, int, int, str]:
    """By host, then as pages show the names, ranks by number."""
    return host, list(METRICS).index(name), int(part) if part.isdecimal() else 0, part


def _window(
    rows: QuerySet[SampleChunk], first_time: float | None, last_time: float | None
) -> tuple[float, float]:
    """Where the samples begin and end, as far as nobody has said."""
    if first_time is None:
        first_time = rows.order_by("first_time").values_list("first_time", flat=True).first() or 0.0
    if last_time is None:
        last_time = max(time.time(), first_time)
        # a chunk that begins last need not end last, but hardly ever do many others end after it
        newest = rows.order_by("-first_time").values_list("last_time", flat=True)[:_NEWEST]
        last_time = max(newest, default=last_time)
    return first_time, last_time


def _within(rows: QuerySet[SampleChunk], first: float, last: float, is_coarse: bool) -> QuerySet[SampleChunk]:
    """The chunks to be read: minutes where they do, or where the points of the same time are not kept any more."""
    rows = rows.filter(first_time__lte=last, last_time__gte=first)
    if is_coarse:
        return rows.exclude(grain=_Grain.POINTS)
    points = SampleChunk.objects.alias(of=_OF_TASK).filter(
        of=OuterRef("of"),
        host_id=OuterRef("host_id"),
        first_time=OuterRef("first_time"),
        grain=_Grain.POINTS,
    )
    return rows.alias(of=_OF_TASK).exclude(Q(grain=_Grain.MINUTES) & Exists(points))


def _parts(rows: QuerySet[SampleChunk]) -> Iterator[tuple[str, Samples]]:
    columns = ("host", "first_time", "points", "columns", "data")
    ordered = rows.order_by("host", "first_time").values_list(*columns)
    for host, first_time, points, names, data in ordered.iterator(chunk_size=500):
        yield host, unpack(bytes(data), first_time, points, names)


def _chosen(samples: Samples, names: Collection[str], first: float, last: float) -> Samples | None:
    columns = frozenset(column for column in samples.columns if split(column)[0] in names)
    return chosen(samples, columns, first, last)


def _series(host: str, samples: Samples, points: int) -> Iterator[SampleSeries]:
    for index, column in enumerate(samples.columns):
        known = ~np.isnan(samples.mean[index])
        if not known.any():
            continue
        times = samples.times[known]
        low, high, mean = (
            matrix[index][known].astype(np.float64) for matrix in (samples.low, samples.high, samples.mean)
        )
        reduced = _reduced(times, low, high, mean, points)
        yield SampleSeries(host, *split(column), *reduced, len(times))


def _reduced(
    times: Floats, low: Floats, high: Floats, mean: Floats, points: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """At most so many points: equal spans of time, of each its lowest, highest and mean."""
    if len(times) <= points:
        return times, low, high, mean
    span = (times[-1] - times[0]) or 1.0
    starts, counts = runs_of(np.minimum(np.floor((times - times[0]) / span * points), points - 1))
    return (
        np.add.reduceat(times, starts) / counts,
        np.minimum.reduceat(low, starts),
        np.maximum.reduceat(high, starts),
        np.add.reduceat(mean, starts) / counts,
    )
