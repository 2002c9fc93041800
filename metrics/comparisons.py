"""Plotly figures of many runs: a figure for each metric, and in it a line for each run or group of runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from metrics import run_groups, series
from metrics.curves import Axis, smoothed
from metrics.packing import Floats
from metrics.run_groups import Band
from metrics.series import Series
from metrics.traces import GRAY, Figure, Look, Trace, look, plain, shade, value_axis
from metrics.units import of_span

#: of all lines of one figure together
POINTS_PER_FIGURE = 6000
#: with more lines, the table beside the charts says which is which
MOST_LABELED = 8
#: a line of so few points has marks
_MARKED_UP_TO = 50
#: about how high the lines of a chart are in pixels, and a label
_HEIGHT, _LABEL = 230.0, 13.0
_LABEL_CHARACTERS = 18
_WHOLE = 10**12
#: a larger value is drawn like an infinity, as a gap: sums and spans of those that are left are floats
_LARGEST = 1e300
#: the page draws lines of this color in its own ink: `named` in static/js/charts/theme.js knows the word
INK = "black"


@dataclass(frozen=True, order=True)
class Metric:
    """One metric of a group. As text `group/name`, with the group's own slashes escaped: addresses hold it so."""

    group: str
    name: str

    def __str__(self) -> str:
        return f"{quote(self.group, safe='')}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> Metric | None:
        """The metric that `str` wrote so, or None for what is none."""
        group, _, name = text.partition("/")
        return cls(unquote(group), name) if group and name and "\x00" not in unquote(text) else None


@dataclass(frozen=True)
class Line:
    """One line of each chart. `runs`: the trials that it shows, and when each began (epoch seconds)."""

    key: str
    label: str
    runs: Mapping[int, float]
    is_baseline: bool = False


@dataclass(frozen=True)
class ChartView:
    """How lines are drawn. `smoothing`: as in metrics.curves."""

    axis: Axis = Axis.STEP
    smoothing: float = 0.0
    is_log: bool = False
    band: Band = Band.RANGE


@dataclass(frozen=True)
class _Drawn:
    """The points of a line; `band`: the lowest and highest values around the mean of several runs."""

    line: Line
    look: Look
    x: Floats
    y: Floats
    band: tuple[Floats, Floats] | None = None
    total: int = 0


def metrics_of(trial_ids: Sequence[int], first: Sequence[Metric] = ()) -> list[Metric]:
    """What any of the trials has reported: `first`, validation, training, then the user's own groups, by name."""
    found = [Metric(group, name) for group, names in series.names(*trial_ids).items() for name in names]

    def place(metric: Metric) -> tuple[bool, bool, bool, Metric]:
        return metric not in first, metric.group != "validation", metric.group != "training", metric

    return sorted(found, key=place)


def figures(lines: Sequence[Line], metrics: Sequence[Metric], view: ChartView) -> list[Figure]:
    """A figure for each metric that holds numbers. A line's place gives it its look, in every figure."""
    found = ((metric, _lines(lines, metric, view)) for metric in metrics)
    return [_figure(metric, drawn, view) for metric, drawn in found if drawn]


def _lines(lines: Sequence[Line], metric: Metric, view: ChartView) -> list[_Drawn]:
    place_of = {pk: place for place, line in enumerate(lines) for pk in line.runs}
    points = max(100, POINTS_PER_FIGURE // max(1, len(place_of)))
    found: dict[int, list[_Drawn]] = {}
    for pk, each in series.each_of_trials([*place_of], metric.group, metric.name, points=_WHOLE):
        line, style = lines[place_of[pk]], _look(lines, place_of[pk])
        x = _on_axis(each, view.axis, line.runs[pk])
        y = np.where(np.abs(each.values) <= _LARGEST, each.values, np.nan)
        if view.smoothing:
            y = smoothed(y, view.smoothing)
        if len(line.runs) > 1:
            x, y = run_groups.thinned(x, y)
        else:
            kept = series.envelope(y, points)
            x, y = x[kept], y[kept]
        if np.isfinite(y).any():
            found.setdefault(place_of[pk], []).append(_Drawn(line, style, x, y, total=each.total))
    return [
        joined
        for place, line in enumerate(lines)
        if place in found and (joined := _joined(line, found[place], view.band))
    ]


def _on_axis(each: Series, axis: Axis, begin: float) -> Floats:
    if axis == Axis.STEP:
        return each.steps
    # reports of several processes may overtake each other
    times = np.maximum.accumulate(each.times)
    return times * 1000 if axis == Axis.WALL else times - begin


def _look(lines: Sequence[Line], place: int) -> Look:
    return Look(INK, "solid", "") if lines[place].is_baseline else look(place)


def _joined(line: Line, runs: Sequence[_Drawn], shaded: Band) -> _Drawn | None:
    if len(line.runs) == 1:
        return runs[0]
    mean = run_groups.mean_of([(run.x, run.y) for run in runs], shaded)
    if mean is None:
        return None
    return _Drawn(line, runs[0].look, mean.x, mean.mean, (mean.low, mean.high))


def _figure(metric: Metric, drawn: Sequence[_Drawn], view: ChartView) -> Figure:
    name = f"{metric.group} {metric.name}"
    size, unit = 1, ""
    if view.axis == Axis.RELATIVE:
        size, unit = of_span(max(float(each.x[-1]) for each in drawn))
    xaxis = {
        Axis.STEP: {"title": {"text": "steps completed"}},
        Axis.WALL: {"title": {"text": "time (UTC)"}, "type": "date"},
    }.get(view.axis, {"title": {"text": f"time since the run's start ({unit})"}})
    values = np.concatenate([part for each in drawn for part in (each.y, *(each.band or ()))])
    values = values[np.isfinite(values) & ((values > 0) | (not view.is_log))]
    yaxis = value_axis("", is_log=view.is_log) | {"exponentformat": "power", "showexponent": "all"}
    if view.is_log and len(values) and values.max() >= 100 * values.min():
        yaxis["dtick"] = 1  # powers of ten alone
    labels = _labels(drawn, values, size, is_log=view.is_log) if 1 < len(drawn) <= MOST_LABELED else []
    ends = ", ".join(f"{each.line.label} {float(each.y[np.isfinite(each.y)][-1]):.4g}" for each in drawn[:20])
    more = f", and {len(drawn) - 20} more lines" if len(drawn) > 20 else ""
    return {
        "name": name,
        "described": f"{name}, last values: {ends}{more}",
        "data": [
            *(_shade(each, each.band, size) for each in drawn if each.band),
            *(_trace(each, size, is_one_of_many=len(drawn) > MOST_LABELED) for each in _baseline_last(drawn)),
        ],
        "layout": {
            "showlegend": False,
            "hovermode": "closest",
            "xaxis": xaxis,
            "yaxis": yaxis,
            "annotations": labels,
            "margin": {"r": 8 + max((7 * len(each["text"]) for each in labels), default=0)},
            # zoom stays when new points come, and goes with its axis
            "uirevision": f"{name} {view.axis} {size} {view.is_log}",
        },
    }  # fmt: skip


def _baseline_last(drawn: Sequence[_Drawn]) -> list[_Drawn]:
    """It lies over the others."""
    return sorted(drawn, key=lambda each: each.line.is_baseline)


def _trace(each: _Drawn, size: int, *, is_one_of_many: bool) -> Trace:
    mean = f", mean of {len(each.line.runs)} runs" if each.band else ""
    reduced = f" ({len(each.x):,} of {each.total:,} points)" if len(each.x) < each.total else ""
    is_short = len(each.x) <= _MARKED_UP_TO and not is_one_of_many
    width = 3 if each.line.is_baseline else 1.2 if is_one_of_many else 1.8
    return {
        "type": "scatter",
        "name": f"{each.line.label}{mean}{reduced}",
        "meta": each.line.key,
        "x": plain(each.x / size),
        "y": plain(each.y),
        "connectgaps": False,
        "mode": "lines+markers" if is_short else "lines",
        "line": each.look.line(width),
        **({"marker": {"size": 4}} if is_short else {}),
        "hovertemplate": "%{fullData.name}<br>%{y:.6~g} at %{x}<extra></extra>",
    }


def _shade(each: _Drawn, around: tuple[Floats, Floats], size: int) -> Trace:
    low, high = map(plain, around)
    x = plain(each.x / size)
    color = GRAY if each.line.is_baseline else each.look.color
    return shade("", [*x, *reversed(x)], [*low, *reversed(high)], color) | {"meta": each.line.key}


def _labels(drawn: Sequence[_Drawn], values: Floats, size: int, *, is_log: bool) -> list[dict[str, Any]]:
    """The label of each line at its end, moved up or down where it would cover another."""
    if not len(values):
        return []
    low, high = (math.log10(end) if is_log else float(end) for end in (values.min(), values.max()))
    ends = []
    for each in drawn:
        known = np.flatnonzero(np.isfinite(each.y) & ((each.y > 0) | (not is_log)))
        if len(known):
            y = float(each.y[known[-1]])
            ends.append((each, float(each.x[known[-1]]) / size, math.log10(y) if is_log else y))
    span = (high - low) or 1.0
    places = [(y - low) / span * _HEIGHT for _, _, y in ends]
    moved = run_groups.apart(places, _LABEL, _HEIGHT)
    return [
        {
            "x": x, "y": y, "yshift": round(there - here, 1), "xanchor": "left", "showarrow": False,
            "text": _short(each.line.label), "font": {"size": 11} | _ink_or(each.look.color),
        }
        for (each, x, y), here, there in zip(ends, places, moved, strict=True)
    ]  # fmt: skip


def _ink_or(color: str) -> dict[str, str]:
    return {} if color == INK else {"color": color}


def _short(label: str) -> str:
    return label if len(label) <= _LABEL_CHARACTERS else f"{label[: _LABEL_CHARACTERS - 1]}…"
