"""Several runs drawn as one line: their mean and the band around it, along one axis; places of labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from metrics.packing import Floats

#: points of the mean of a group, and of each of its runs
POINTS = 300


class Band(StrEnum):
    """What is shaded around the mean of a group."""

    RANGE = "range"  # from the lowest to the highest run
    DEVIATION = "std"  # one standard deviation of the runs to either side


@dataclass(frozen=True)
class Mean:
    """A group along its axis. `low` and `high`: its band."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats


def thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return the finite points of one run; more than POINTS are averaged in parts of equal length."""
    known = np.isfinite(y)
    x, y = x[known], y[known]
    if len(x) <= POINTS:
        return x, y
    starts = np.linspace(0, len(x), POINTS, endpoint=False).astype(np.intp)
    sizes = np.diff([*starts, len(x)])
    return np.add.reduceat(x, starts) / sizes, np.add.reduceat(y, starts) / sizes


def mean_of(runs: Sequence[tuple[Floats, Floats]], band: Band) -> Mean | None:
    """Return the mean of the runs (x ascends, sums of y are finite), or None if none has a point.

    Runs that were reported at the same places are averaged there. Others are interpolated between their points, each
    only from its first point to its last, so that the mean is of the runs that have values there.
    """
    runs = [run for run in runs if len(run[0])]
    if not runs:
        return None
    places = np.unique(np.concatenate([x for x, _ in runs]))
    if len(places) > POINTS:
        places = np.linspace(places[0], places[-1], POINTS)
    found = np.array([np.interp(places, x, y, np.nan, np.nan) for x, y in runs])
    reached = ~np.isnan(found).all(
        axis=0
    )  # between a run that ended and one that began later there is nothing
    places, found = places[reached], found[:, reached]
    mean = np.nanmean(found, axis=0)
    if band == Band.DEVIATION:
        _, size = np.frexp(np.nanmax(np.abs(found), axis=0))  # squares of large values overflow
        around = np.ldexp(np.nanstd(np.ldexp(found, -size), axis=0), size)
        return Mean(places, mean, mean - around, mean + around)
    return Mean(places, mean, np.nanmin(found, axis=0), np.nanmax(found, axis=0))


def apart(places: Sequence[float], gap: float, most: float) -> list[float]:
    """Return the places (from 0 to `most`), moved as little as needed to be `gap` apart, in the same order."""
    found = list(places)
    order = sorted(range(len(found)), key=found.__getitem__)
    low = 0.0
    for at in order:
        found[at] = max(found[at], low)
        low = found[at] + gap
    high = most
    for at in reversed(order):
        found[at] = min(found[at], high)
        high = found[at] - gap
    return found
