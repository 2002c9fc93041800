"""Curves of a trial's charts: metrics over steps, time or epochs, cut to a window, smoothed, and reduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from metrics import series
from metrics.packing import Floats
from metrics.series import Series
from metrics.traces import plain

#: The metric that says how far a run is in epochs (features.md 4.6).
EPOCH = "epoch"
#: Smoothed by more, a curve would hardly move within any number of points that a chart shows.
MOST_SMOOTHING = 0.999
_WHOLE = 10**12
#: significant digits of what is drawn, and between which sizes; larger fractions have more digits before the point
_DIGITS, _ROUNDED_ABOVE, _ROUNDED_BELOW = 7, 1e-15, 1e7
#: values that are averaged by one multiplication of matrices
_BLOCK = 128


class Axis(StrEnum):
    STEP = "step"
    RELATIVE = "relative"  # seconds since `View.begin`
    WALL = "wall"  # epoch seconds
    EPOCH = "epoch"


@dataclass(frozen=True)
class CurveView:
    """What a chart shows. `first` and `last` are both inclusive and in the axis' own unit."""

    axis: Axis = Axis.STEP
    first: float | None = None
    last: float | None = None
    smoothing: float = 0.0
    points: int = series.DEFAULT_POINTS
    begin: float = 0.0  # epoch seconds

    @property
    def needs_all(self) -> bool:
        """Whether points outside the window have a say: in an average, or because only steps can be looked up."""
        has_window = self.first is not None or self.last is not None
        return self.smoothing > 0 or (has_window and self.axis != Axis.STEP)


@dataclass(frozen=True)
class Curve:
    """One metric inside a window. `total` counts its points there before reduction, to the envelope of the extremes.

    x ascends; y may hold NaN and inf. The smoothed line is reduced by itself, goes on across what is no number, and is
    empty without smoothing.
    """

    group: str
    name: str
    x: Floats
    y: Floats
    smooth_x: Floats
    smooth_y: Floats
    total: int
    last_step: int

    def record(self) -> dict[str, object]:
        """As JSON has it; if reduced, with as many digits as a chart shows: all come by zooming, and as CSV."""
        digits = drawn if len(self.x) < self.total else plain
        smooth = {"x": plain(self.smooth_x), "y": digits(self.smooth_y)} if len(self.smooth_x) else None
        return {
            "group": self.group, "name": self.name, "x": plain(self.x), "y": digits(self.y), "smooth": smooth,
            "total": self.total, "last": self.last_step,
        }  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """A metric of a group; `after` the last step that the asker has, or None for all of it."""

    group: str
    name: str
    after: int | None


@dataclass(frozen=True)
class Clock:
    """Which epoch it was at a step."""

    steps: Floats
    epochs: Floats

    def at(self, steps: Floats) -> Floats:
        """Epochs of these steps; between two reports on a straight line."""
        return np.interp(steps, self.steps, self.epochs)


def clock(trial_id: int, groups: Sequence[str]) -> Clock | None:
    """From the first of the groups that reports a metric `epoch`."""
    for group in groups:
        for each in series.read(trial_id, group, [EPOCH], points=_WHOLE):
            known = np.isfinite(each.values)
            if known.any():
                return Clock(each.steps[known], each.values[known])
    return None


def read(
    trial_id: int,
    group: str,
    names: Sequence[str],
    view: CurveView,
    *,
    clock: Clock | None = None,
    after_step: int | None = None,
) -> list[Curve]:
    """The curves of a group's metrics, those that have points; `after_step` leaves out that step and all before it.

    Raises ValueError for the axis of epochs without a clock.
    """
    if view.axis == Axis.EPOCH and clock is None:
        raise ValueError(f"The trial has not reported the metric {EPOCH!r}.")
    first = last = None
    if not view.needs_all:
        first = None if view.first is None else int(np.ceil(view.first))
        last = None if view.last is None else int(np.floor(view.last))
        if after_step is not None:
            first = max(after_step + 1, first if first is not None else after_step + 1)
    points = _WHOLE if view.needs_all else view.points
    found = series.read(trial_id, group, names, first_step=first, last_step=last, points=points)
    return [_curve(group, each, view, clock) for each in found]


def _curve(group: str, each: Series, view: CurveView, clock: Clock | None) -> Curve:
    x = _on_axis(each, view, clock)
    last_step = int(each.steps[-1])
    nothing = np.empty(0)
    if not view.needs_all:
        return Curve(group, each.name, x, each.values, nothing, nothing, each.total, last_step)
    inside = np.ones(len(x), np.bool_)
    if view.first is not None:
        inside &= x >= view.first
    if view.last is not None:
        inside &= x <= view.last
    shown, values = x[inside], each.values[inside]
    kept = series.envelope(values, view.points)
    smooth_x = smooth_y = nothing
    if view.smoothing:
        line = smoothed(each.values, view.smoothing)[inside]
        known = np.isfinite(
            line
        )  # a gap per NaN would show dashes, and a lone value between two of them nothing
        smooth_x, smooth_y = shown[known], line[known]
        chosen = series.envelope(smooth_y, view.points)
        smooth_x, smooth_y = smooth_x[chosen], smooth_y[chosen]
    return Curve(group, each.name, shown[kept], values[kept], smooth_x, smooth_y, len(values), last_step)


def drawn(values: Floats) -> list[float | int | None]:
    """For JSON: with 7 significant digits, or more where values differ by less than that; whole numbers with all."""
    sizes, finite = np.abs(values), np.isfinite(values)
    with np.errstate(over="ignore"):
        spread = float(np.ptp(values[finite])) if finite.any() else 0.0
    if not spread:
        return plain(values)
    sizes = np.minimum(sizes, spread)
    chosen = np.flatnonzero(
        finite & (values != np.floor(values)) & (sizes > _ROUNDED_ABOVE) & (sizes < _ROUNDED_BELOW)
    )
    scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(sizes[chosen])))
    found = values.copy()
    found[chosen] = np.round(values[chosen] * scale) / scale
    return plain(found)


def smoothed(values: Floats, weight: float) -> Floats:
    """The exponential moving average of `values`, freed of its bias to zero at the beginning.

    Each point is `weight` parts of what came before and 1 - weight of itself, so 0 leaves all as it is. What is no
    finite number stays a gap (NaN) and is no part of the average. Raises ValueError outside 0 <= weight <=
    MOST_SMOOTHING.
    """
    if not 0 <= weight <= MOST_SMOOTHING:
        raise ValueError(f"The smoothing is {weight}; it must be between 0 and {MOST_SMOOTHING}.")
    found = np.full(len(values), np.nan)
    finite = np.isfinite(values)
    found[finite] = _averaged(values[finite], weight)
    return found


def _averaged(values: Floats, weight: float) -> Floats:
    """The average of finite values, a block of them at a time: long curves of many runs are smoothed at once."""
    count = len(values)
    ages = np.subtract.outer(np.arange(_BLOCK), np.arange(_BLOCK))
    shares = np.where(ages >= 0, (1 - weight) * weight ** np.maximum(ages, 0), 0.0)
    blocks = np.concatenate([values, np.zeros(-count % _BLOCK)]).reshape(-1, _BLOCK) @ shares.T
    fading, before = weight ** np.arange(1, _BLOCK + 1), 0.0
    for block in blocks:
        block += fading * before
        before = block[-1]
    found: Floats = blocks.ravel()[:count] / (1 - weight ** np.arange(1, count + 1))
    return found


def _on_axis(each: Series, view: CurveView, clock: Clock | None) -> Floats:
    if view.axis == Axis.RELATIVE:
        return each.times - view.begin
    if view.axis == Axis.WALL:
        return each.times
    if view.axis == Axis.EPOCH and clock is not None:
        return clock.at(each.steps)
    return each.steps


def read_each(
    trial_id: int, wanted: Sequence[Wanted], view: CurveView, clock: Clock | None, *, is_tail: bool
) -> list[Curve]:
    """The curves that have points; metrics of a group that begin at one step are read together."""
    together: dict[tuple[str, int | None], list[str]] = {}
    for each in wanted:
        together.setdefault((each.group, each.after if is_tail else None), []).append(each.name)
    return [
        curve
        for (group, after), names in together.items()
        for curve in read(trial_id, group, names, view, clock=clock, after_step=after)
    ]
