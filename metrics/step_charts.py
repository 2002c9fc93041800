"""Charts of what ranks timed, over steps: where a step goes, each timing by itself, and what was counted. Pure.

All share their columns, intervals of steps; `edges` are the first step of each and, at the end, the one behind the
last. A timing that spans two columns counts in both by its steps.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from metrics.packing import Floats
from metrics.stragglers import edges_of, spread
from metrics.timings import STEP, WORK, CountSeries, TaskTimings, TimingSeries

COLUMNS = 120
#: timings of one step that are together so much longer than it ran beside each other
_OVERLAP = 1.02
REST = "not timed"


@dataclass(frozen=True)
class StepPart:
    """Mean seconds of a step that went into `name`; `of_rest`: without the parts of it that stand beside it."""

    name: str
    seconds: Floats
    of_rest: bool = False


@dataclass(frozen=True)
class Stack:
    """`parts`, the largest first, `REST` last; together they are the mean seconds of a step.

    `overlaps`: what was timed is longer than the steps, as where threads work at once.
    """

    parts: list[StepPart]
    overlaps: bool


@dataclass(frozen=True)
class Spread:
    """One timing in seconds, NaN where there was none: p50 is the mean of the ranks', the others their highest."""

    name: str
    p50: Floats
    p95: Floats
    high: Floats
    low: Floats
    total: int


@dataclass(frozen=True)
class Rate:
    """What was counted a second, all ranks together."""

    name: str
    per_second: Floats


def edges(found: TaskTimings, columns: int = COLUMNS) -> Floats | None:
    """The columns that suit all timings; None where nothing was timed."""
    return edges_of(found.timings, columns) if found.timings else None


def stack(timings: Sequence[TimingSeries], edges: Floats) -> Stack | None:
    """Where the steps of these ranks went, on average; None where no step is marked."""
    taken = _sums([one for one in timings if one.name == STEP], "count", edges)
    whole = _sums([one for one in timings if one.name == STEP], "total_seconds", edges)
    if not taken.any():
        return None
    names = {one.name for one in timings} - {STEP, WORK}
    seconds = {
        name: _sums([one for one in timings if one.name == name], "total_seconds", edges) for name in names
    }
    own = {name: _own(name, seconds) for name in names}
    timed = sum((seconds[name] for name in names if _parent(name, names) is None), np.zeros(len(taken)))
    whole_ones = {_parent(name, names) for name in names}
    parts = [StepPart(name, _per(own[name], taken), name in whole_ones) for name in names]
    parts.sort(key=lambda part: (-np.nansum(part.seconds * taken), part.name))
    rest = StepPart(REST, _per(np.maximum(whole - timed, 0.0), taken))
    return Stack([*parts, rest], bool(timed.sum() > whole.sum() * _OVERLAP))


def _own(name: str, seconds: dict[str, Floats]) -> Floats:
    inside = [seconds[other] for other in seconds if _parent(other, seconds) == name]
    found: Floats = np.maximum(seconds[name] - sum(inside, np.zeros(len(seconds[name]))), 0.0)
    return found


def _parent(name: str, names: Collection[str]) -> str | None:
    """The nearest timing that this one is a part of: `a` of `a.b.c`, if there is no `a.b`."""
    words = name.split(".")
    ahead = (".".join(words[:count]) for count in range(len(words) - 1, 0, -1))
    return next((each for each in ahead if each in names), None)


def _sums(series: Sequence[TimingSeries], field: str, edges: Floats) -> Floats:
    parts = (spread(one, getattr(one, field), edges) for one in series)
    return sum(parts, np.zeros(len(edges) - 1))


def _per(seconds: Floats, taken: Floats) -> Floats:
    return np.divide(seconds, taken, out=np.full_like(seconds, np.nan), where=taken > 1e-6)


def spreads(timings: Sequence[TimingSeries], edges: Floats) -> list[Spread]:
    """Each timing over its ranks, the one that takes most time first."""
    found = []
    for name in {one.name for one in timings}:
        same = [one for one in timings if one.name == name]
        column = np.concatenate([_column(one.steps, edges) for one in same])
        count, size = np.concatenate([one.count for one in same]), len(edges) - 1
        p50 = np.concatenate([one.p50 for one in same])
        weight = _per_column(column, count, size)
        low, p95, high = (np.full(size, start) for start in (np.inf, -np.inf, -np.inf))
        np.minimum.at(low, column, np.concatenate([one.low for one in same]))
        np.maximum.at(p95, column, np.concatenate([one.p95 for one in same]))
        np.maximum.at(high, column, np.concatenate([one.high for one in same]))
        for values in (low, p95, high):
            values[~np.isfinite(values)] = np.nan
        median = _per(_per_column(column, p50 * count, size), weight)
        seconds = sum(float(one.total_seconds.sum()) for one in same)
        total = sum(one.total for one in same)
        found.append((seconds, Spread(name, median, p95, high, low, total)))
    return [each for _, each in sorted(found, key=lambda pair: (-pair[0], pair[1].name))]


def rates(counts: Sequence[CountSeries], edges: Floats) -> list[Rate]:
    """What was counted a second in each column: the mean rate of a rank over its time there, summed over ranks."""
    found = []
    for name in sorted({one.name for one in counts}):
        same = [one for one in counts if one.name == name]
        total = np.full(len(edges) - 1, np.nan)
        for one in same:
            column = _column(one.steps, edges)
            seconds = _per_column(column, one.seconds, len(total))
            rate = _per(_per_column(column, one.per_second * one.seconds, len(total)), seconds)
            total = np.where(np.isnan(rate), total, np.nan_to_num(total) + rate)
        found.append(Rate(name, total))
    return found


def _per_column(column: npt.NDArray[np.intp], values: Floats, columns: int) -> Floats:
    return np.bincount(column, values, columns).astype(np.float64)


def _column(steps: Floats, edges: Floats) -> npt.NDArray[np.intp]:
    """The column in which each interval ends."""
    place = np.searchsorted(edges, steps, side="right") - 1
    return np.clip(place, 0, len(edges) - 2)
