"""Reads reported metrics as series, reduced to what a chart can show without losing an extreme."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from metrics.models import Report
from metrics.values import number

Floats = npt.NDArray[np.float64]

DEFAULT_POINTS = 1000


@dataclass(frozen=True)
class Series:
    """One metric over steps. `total` counts the points before reduction; x ascends; y may hold NaN and inf."""

    name: str
    steps: Floats
    values: Floats
    times: Floats  # epoch seconds of the report
    total: int

    @property
    def is_reduced(self) -> bool:
        return len(self.steps) < self.total


def groups(trial_id: int) -> list[str]:
    """Groups with live reports."""
    rows = Report.objects.filter(trial_id=trial_id, archived=False).order_by("group")
    return list(rows.values_list("group", flat=True).distinct())


def read(
    trial_id: int,
    group: str,
    names: Sequence[str] | None = None,
    *,
    first_step: int | None = None,
    last_step: int | None = None,
    points: int = DEFAULT_POINTS,
) -> list[Series]:
    """The live series of a group, by name; `names` None means all that hold numbers.

    Steps are limited to first_step <= step <= last_step, and each series to about `points` points.
    """
    rows = Report.objects.filter(trial_id=trial_id, group=group, archived=False)
    if first_step is not None:
        rows = rows.filter(steps_completed__gte=first_step)
    if last_step is not None:
        rows = rows.filter(steps_completed__lte=last_step)
    ordered = rows.order_by("steps_completed").values_list("steps_completed", "reported_at", "values")
    columns = _columns(ordered.iterator(chunk_size=5000), None if names is None else frozenset(names))
    wanted = sorted(columns) if names is None else [name for name in names if name in columns]
    return [_series(name, columns[name], points) for name in wanted]


Point = tuple[int, float, float]


def _columns(
    rows: Iterable[tuple[int, datetime, dict[str, object]]], names: frozenset[str] | None
) -> dict[str, list[Point]]:
    columns: dict[str, list[Point]] = {}
    for step, at, values in rows:
        seconds = at.timestamp()
        for name, value in values.items():
            if names is not None and name not in names:
                continue
            if (y := number(value)) is not None:
                columns.setdefault(name, []).append((step, y, seconds))
    return columns


def _series(name: str, points: list[Point], limit: int) -> Series:
    steps, values, times = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    kept = envelope(values, limit)
    return Series(name, steps[kept], values[kept], times[kept], len(points))


def envelope(values: Floats, points: int) -> npt.NDArray[np.intp]:
    """Indices, ascending, of at most about `points` values that keep the picture.

    The values are cut into equal runs; of each its lowest and highest stay, and one that is no number, so that
    gaps stay gaps. The first and the last value always stay. Raises ValueError for fewer than 4 points.
    """
    if points < 4:
        raise ValueError(f"A series cannot be reduced to {points} points; allowed: 4 or more.")
    count = len(values)
    if count <= points:
        return np.arange(count)
    runs = max(1, (points - 2) // 3)
    width = -(-count // runs)
    padded = np.full(runs * width, np.nan)
    padded[:count] = values
    table = padded.reshape(runs, width)
    gap = np.isnan(table)
    start = np.arange(runs) * width
    lowest = start + np.where(gap, np.inf, table).argmin(axis=1)
    highest = start + np.where(gap, -np.inf, table).argmax(axis=1)
    first_gap = (start + gap.argmax(axis=1))[gap.any(axis=1)]
    kept: npt.NDArray[np.intp] = np.unique(np.concatenate([[0], lowest, highest, first_gap, [count - 1]]))
    return kept[kept < count].astype(np.intp)
