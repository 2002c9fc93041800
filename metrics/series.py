"""Reads of reported metrics as series over steps, reduced to what a chart can show without losing an extreme."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from metrics.models import Report
from metrics.values import number

#: points of one curve in a chart
MOST_POINTS = 1000


@dataclass
class Series:
    """One metric of one trial. `steps` ascend; `times` are epoch seconds; `total` points before any reduction."""

    group: str
    name: str
    steps: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    total: int = 0

    @property
    def reduced(self) -> bool:
        return len(self.steps) < self.total


def of_trial(trial_id: int, most_points: int = MOST_POINTS) -> list[Series]:
    """Every numeric metric of a trial, live reports only, reduced to `most_points` each."""
    found: dict[tuple[str, str], Series] = defaultdict(lambda: Series("", ""))
    rows = Report.objects.filter(trial_id=trial_id, archived=False).order_by("steps_completed")
    for group, steps, at, values in rows.values_list("group", "steps_completed", "reported_at", "values"):
        for name, value in values.items():
            x = number(value)
            if x is None:
                continue
            series = found[group, name]
            series.group, series.name = group, name
            series.steps.append(steps)
            series.times.append(at.timestamp())
            series.values.append(x)
    return [reduced(series, most_points) for _, series in sorted(found.items())]


def reduced(series: Series, most_points: int) -> Series:
    """The minimum and maximum of each of `most_points` / 2 buckets, so that no spike is lost; ends are kept.

    A bucket without a finite value keeps its first point.
    """
    series.total = len(series.steps)
    if series.total <= most_points:
        return series
    values = np.asarray(series.values)
    kept = {0, series.total - 1}
    for bucket in np.array_split(np.arange(series.total), max(1, most_points // 2 - 1)):
        part = values[bucket]
        if np.isfinite(part).any():
            kept.add(int(bucket[np.nanargmin(np.where(np.isfinite(part), part, np.nan))]))
            kept.add(int(bucket[np.nanargmax(np.where(np.isfinite(part), part, np.nan))]))
        else:
            kept.add(int(bucket[0]))
    order = sorted(kept)
    return Series(
        series.group,
        series.name,
        [series.steps[i] for i in order],
        [series.times[i] for i in order],
        [series.values[i] for i in order],
        series.total,
    )
