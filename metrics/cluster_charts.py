"""Plotly figures of the cluster over time. The page gives them its colours of paper and ink, as to metrics.charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from metrics.charts import Figure
from metrics.units import time_axis

#: Pools differ by pattern, not by colour alone; each reads on light and dark paper.
_STYLES = (("#2f6fd0", ""), ("#c98a06", "/"), ("#7d858c", "."), ("#8a5fb8", "\\"), ("#2f6fd0", "x"))
#: lengths of time that are drawn as one, and how many of them at most
_SPANS = (60, 300, 1800, 3600, 21_600, 86_400)
_MOST_SPANS = 340


class PoolSpan(NamedTuple):
    """How a pool stood from `at` (epoch seconds) on: means of its usable and used slots, and of its queue."""

    pool: str
    at: float
    usable: float
    used: float
    most_used: float
    waiting: float
    most_waiting: float


class TotalSpan(NamedTuple):
    """What was counted in one span over all pools; `waiting` are tasks, `wanted` the slots that they request."""

    at: float
    usable: float
    waiting: float
    least_waiting: float
    most_waiting: float
    wanted: float


def span_seconds(range_seconds: float) -> int:
    """The shortest span of which the range has not too many."""
    return next((size for size in _SPANS if range_seconds <= size * _MOST_SPANS), _SPANS[-1])


def figures(
    pools: Sequence[PoolSpan], totals: Sequence[TotalSpan], first_time: float, last_time: float
) -> list[Figure]:
    """Slots in use by pool, and the queue; what was not counted is a gap. None where nothing was.

    Both have spans of `span_seconds` of the range, by time.
    """
    if not pools or not totals:
        return []
    size = span_seconds(last_time - first_time)
    by_pool: dict[str, list[PoolSpan]] = {}
    for each in pools:
        by_pool.setdefault(each.pool, []).append(each)
    bars = [
        _bars(pool, found, size, *_STYLES[index % len(_STYLES)])
        for index, (pool, found) in enumerate(by_pool.items())
    ]
    usable = [(each.at, each.usable) for each in totals]
    limit = _line("usable slots", usable, size, "slots", {"color": "#7d858c", "width": 1.5, "dash": "dash"})
    window = (first_time, last_time)
    newest = totals[-1]
    in_use = sum(each.used for each in pools if each.at == newest.at)
    said = f"{in_use:.3g} of {newest.usable:.3g} usable"
    return [
        _figure("Slots in use", said, [*bars, limit], "slots", window),
        _figure("Queue", _queue_in_words(totals), _queue(totals, size), "tasks, slots", window),
    ]


def _queue_in_words(totals: Sequence[TotalSpan]) -> str:
    most = max(each.most_waiting for each in totals)
    return f"{totals[-1].waiting:.3g} tasks waiting for {totals[-1].wanted:.3g} slots, peak {most:g} tasks"


def _queue(totals: Sequence[TotalSpan], size: int) -> list[dict[str, Any]]:
    waiting = [(each.at, each.waiting) for each in totals]
    wanted = [(each.at, each.wanted) for each in totals]
    return [
        _band(totals, size),
        _line("waiting tasks", waiting, size, "tasks", {"color": "#c98a06", "width": 2}),
        _line("slots they need", wanted, size, "slots", {"color": "#2f6fd0", "width": 1.5, "dash": "dot"}),
    ]


def _figure(
    name: str, said: str, data: list[dict[str, Any]], unit: str, window: tuple[float, float]
) -> Figure:
    return {
        "name": name,
        "described": f"{name}: {said}",
        "data": data,
        "layout": {
            "barmode": "stack",
            "bargap": 0,
            "legend": {"orientation": "h", "y": 1, "yanchor": "bottom", "font": {"size": 11}},
            "hovermode": "x unified",
            "xaxis": time_axis(*window),
            "yaxis": {"automargin": True, "rangemode": "tozero", "title": {"text": unit}},
            "uirevision": f"{name} {round(window[1] - window[0])}",
        },
    }


def _bars(pool: str, found: Sequence[PoolSpan], size: int, colour: str, pattern: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": pool,
        "x": [_milliseconds(each.at) for each in found],
        "y": [round(each.used, 2) for each in found],
        "width": size * 1000,
        "offset": 0,
        "customdata": [round(each.most_used, 2) for each in found],
        "hovertemplate": "%{y:.4~g} slots, peak %{customdata:.4~g}",
        "marker": {
            "color": colour,
            "line": {"width": 0},
            "pattern": {"shape": pattern, "fillmode": "overlay", "fgcolor": "#ffffff", "fgopacity": 0.55},
        },
    }


def _line(
    name: str, points: Sequence[tuple[float, float]], size: int, unit: str, line: Mapping[str, Any]
) -> dict[str, Any]:
    """Points (time, value) in the middle of their spans."""
    x: list[int | None] = []
    y: list[float | None] = []
    for first, last in _stretches([at for at, _ in points], size):
        x += [None] * bool(x) + [_milliseconds(at + size / 2) for at, _ in points[first:last]]
        y += [None] * bool(y) + [round(value, 2) for _, value in points[first:last]]
    return {
        "type": "scatter",
        "mode": "lines" if len(points) > 1 else "markers",
        "name": name,
        "x": x,
        "y": y,
        "connectgaps": False,
        "line": dict(line),
        "hovertemplate": f"%{{y:.4~g}} {unit}",
    }


def _band(totals: Sequence[TotalSpan], size: int) -> dict[str, Any]:
    """Between the least and the most tasks of each span."""
    x: list[int | None] = []
    y: list[float | None] = []
    for first, last in _stretches([each.at for each in totals], size):
        stretch = totals[first:last]
        at = [_milliseconds(each.at + size / 2) for each in stretch]
        x += [*at, *reversed(at), None]
        y += [
            *(each.least_waiting for each in stretch),
            *(each.most_waiting for each in reversed(stretch)),
            None,
        ]
    return {
        "type": "scatter",
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": "rgba(201,138,6,0.16)",
        "name": "min to max",
        "showlegend": False,
        "hoverinfo": "skip",
        "x": x,
        "y": y,
    }


def _stretches(times: Sequence[float], size: int) -> list[tuple[int, int]]:
    """(first, last + 1) of spans that follow each other; one that is missing may be a tick that came late."""
    cuts = [place for place in range(1, len(times)) if times[place] - times[place - 1] > 2 * size]
    return list(pairwise([0, *cuts, len(times)]))


def _milliseconds(at: float) -> int:
    return round(at * 1000)
