"""Plotly figures of the cluster over time. The page gives them its colours of paper and ink, as to metrics.charts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from metrics.charts import Figure
from metrics.units import time_axis

#: Pools differ by pattern, not by colour alone; each reads on light and dark paper.
_STYLES = (("#2f6fd0", ""), ("#c98a06", "/"), ("#7d858c", "."), ("#8a5fb8", "\\"), ("#2f6fd0", "x"))
#: lengths of time that are drawn as one, and how many of them at most
_SPANS = (60, 300, 1800, 3600, 21_600, 86_400)
_MOST_SPANS = 340


class Count(NamedTuple):
    """How a pool stood from `at` (epoch seconds) on for `seconds`: its slots, the tasks that waited and their slots."""

    pool: str
    at: float
    seconds: int
    usable: float
    used: float
    waiting: float
    wanted: float


class Span(NamedTuple):
    """The mean of a value from `at` on, and its least and most."""

    at: float
    mean: float
    least: float
    most: float


def figures(counts: Sequence[Count], first_time: float, last_time: float) -> list[Figure]:
    """Slots in use by pool, and the queue, in spans of equal length; what was not counted is a gap."""
    size = span_seconds(last_time - first_time)
    usable = spans(_added((each.at, each.usable) for each in counts), size)
    waiting = spans(_added((each.at, each.waiting) for each in counts), size)
    wanted = spans(_added((each.at, each.wanted) for each in counts), size)
    pools = list(dict.fromkeys(each.pool for each in counts))
    used = {pool: spans({each.at: each.used for each in counts if each.pool == pool}, size) for pool in pools}
    in_use = sum(each[-1].mean for each in used.values())
    bars = [_bars(pool, used[pool], size, *_STYLES[index % len(_STYLES)]) for index, pool in enumerate(pools)]
    limit = _line("usable slots", usable, size, "slots", {"color": "#7d858c", "width": 1.5, "dash": "dash"})
    queue = [
        _band(waiting, size),
        _line("tasks that wait", waiting, size, "tasks", {"color": "#c98a06", "width": 2}),
        _line("slots they ask for", wanted, size, "slots", {"color": "#2f6fd0", "width": 1.5, "dash": "dot"}),
    ]
    said = (
        f"{waiting[-1].mean:.3g} tasks wait for {wanted[-1].mean:.3g} slots, at most {_most(waiting):g} tasks"
    )
    window = (first_time, last_time)
    return [
        _figure(
            "Slots in use", f"{in_use:.3g} of {usable[-1].mean:.3g} usable", [*bars, limit], "slots", window
        ),
        _figure("Queue", said, queue, "tasks, slots", window),
    ]


def span_seconds(range_seconds: float) -> int:
    """The shortest span of which the range has not too many."""
    return next((size for size in _SPANS if range_seconds <= size * _MOST_SPANS), _SPANS[-1])


def spans(values: Mapping[float, float], size: int) -> list[Span]:
    """Values by time as spans of `size` seconds, those without any left out."""
    found: dict[float, list[float]] = defaultdict(list)
    for at, value in sorted(values.items()):
        found[at // size * size].append(value)
    return [Span(at, sum(each) / len(each), min(each), max(each)) for at, each in found.items()]


def _added(values: Iterable[tuple[float, float]]) -> dict[float, float]:
    """The sum of all pools at each time."""
    found: dict[float, float] = defaultdict(float)
    for at, value in values:
        found[at] += value
    return found


def _most(found: Sequence[Span]) -> float:
    return max(each.most for each in found)


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


def _bars(pool: str, found: Sequence[Span], size: int, colour: str, pattern: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": pool,
        "x": [_milliseconds(each.at) for each in found],
        "y": [round(each.mean, 2) for each in found],
        "width": size * 1000,
        "offset": 0,
        "customdata": [round(each.most, 2) for each in found],
        "hovertemplate": "%{y:.4~g} slots, at most %{customdata:.4~g}",
        "marker": {
            "color": colour,
            "line": {"width": 0},
            "pattern": {"shape": pattern, "fillmode": "overlay", "fgcolor": "#ffffff", "fgopacity": 0.55},
        },
    }


def _line(name: str, found: Sequence[Span], size: int, unit: str, line: Mapping[str, Any]) -> dict[str, Any]:
    x: list[int | None] = []
    y: list[float | None] = []
    for stretch in _stretches(found, size):
        x += [None] * bool(x) + [_milliseconds(each.at + size / 2) for each in stretch]
        y += [None] * bool(y) + [round(each.mean, 2) for each in stretch]
    return {
        "type": "scatter",
        "mode": "lines" if len(found) > 1 else "markers",
        "name": name,
        "x": x,
        "y": y,
        "connectgaps": False,
        "line": dict(line),
        "hovertemplate": f"%{{y:.4~g}} {unit}",
    }


def _band(found: Sequence[Span], size: int) -> dict[str, Any]:
    """Between the least and the most of each span."""
    x: list[int | None] = []
    y: list[float | None] = []
    for stretch in _stretches(found, size):
        at = [_milliseconds(each.at + size / 2) for each in stretch]
        x += [*at, *reversed(at), None]
        y += [*(each.least for each in stretch), *(each.most for each in reversed(stretch)), None]
    return {
        "type": "scatter",
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": "rgba(201,138,6,0.16)",
        "name": "least to most",
        "showlegend": False,
        "hoverinfo": "skip",
        "x": x,
        "y": y,
    }


def _stretches(found: Sequence[Span], size: int) -> list[list[Span]]:
    """Spans that follow each other; one that is missing may be a tick that came late."""
    stretches: list[list[Span]] = []
    for each in found:
        if stretches and each.at - stretches[-1][-1].at <= 2 * size:
            stretches[-1].append(each)
        else:
            stretches.append([each])
    return stretches


def _milliseconds(at: float) -> int:
    return round(at * 1000)
