"""Figures of the cluster over time: slots in use by pool, the queue and its waits, and slot-hours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jobs.queued_time import Day
from metrics.packing import Floats
from metrics.traces import AMBER, BLUE, GRAY, LEGEND, PATTERNS, Figure, Trace, amounts, band, bars, over_time
from metrics.units import of_span, time_axis

#: lengths of time that are drawn as one, and how many of them at most
_SPANS = (60, 300, 1800, 3600, 21_600, 86_400)
_MOST_SPANS = 340
#: of slot-hours: more stacks are drawn together
MOST_STACKS = len(PATTERNS)
_OTHERS = (GRAY, "+")
_TICKS = {"day": "%b %d", "month": "%b %Y"}

Stack = tuple[str, Sequence[float]]


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


class Start(NamedTuple):
    """A start that was promised: seconds from the promise to the ends of its range, and to the real start."""

    earliest: float
    latest: float
    real: float


def span_seconds(range_seconds: float) -> int:
    """The shortest span of which the range has not too many."""
    return next((size for size in _SPANS if range_seconds <= size * _MOST_SPANS), _SPANS[-1])


def by_pool(spans: Sequence[PoolSpan]) -> dict[str, list[PoolSpan]]:
    """The spans of each pool, by its name."""
    found: dict[str, list[PoolSpan]] = {}
    for each in spans:
        found.setdefault(each.pool, []).append(each)
    return found


def figures(
    pools: Sequence[PoolSpan], totals: Sequence[TotalSpan], first_time: float, last_time: float
) -> list[Figure]:
    """Slots in use by pool, and the queue; what was not counted is a gap. None where nothing was.

    Both have spans of `span_seconds` of the range, by time.
    """
    if not pools or not totals:
        return []
    size = span_seconds(last_time - first_time)
    stacks = [
        _stack(pool, found, size, *PATTERNS[index % len(PATTERNS)])
        for index, (pool, found) in enumerate(by_pool(pools).items())
    ]
    limit = _line(
        "usable slots", totals, size, "usable", "slots", {"color": GRAY, "width": 1.5, "dash": "dash"}
    )
    window = (first_time, last_time)
    newest = totals[-1]
    in_use = sum(each.used for each in pools if each.at == newest.at)
    said = f"{in_use:.3g} of {newest.usable:.3g} usable"
    return [
        _figure("Slots in use", said, [*stacks, limit], "slots", window),
        _figure("Queue", _queue_in_words(totals), _queue(totals, size), "tasks, slots", window),
    ]


def _queue_in_words(totals: Sequence[TotalSpan]) -> str:
    most = max(each.most_waiting for each in totals)
    return f"{totals[-1].waiting:.3g} tasks waiting for {totals[-1].wanted:.3g} slots, peak {most:g} tasks"


def _queue(totals: Sequence[TotalSpan], size: int) -> list[dict[str, Any]]:
    least, most = (_field(totals, name) for name in ("least_waiting", "most_waiting"))
    return [
        band("min to max", _middles(totals, size), least, most, AMBER, gap_seconds=2 * size),
        _line("waiting tasks", totals, size, "waiting", "tasks", {"color": AMBER, "width": 2}),
        _line(
            "slots they need", totals, size, "wanted", "slots", {"color": BLUE, "width": 1.5, "dash": "dot"}
        ),
    ]


def _figure(
    name: str, said: str, data: list[dict[str, Any]], unit: str, window: tuple[float, float]
) -> Figure:
    revision = f"{name} {round(window[1] - window[0])}"
    layout = amounts(revision, time_axis(*window), unit, bargap=0, legend=LEGEND)
    return {"name": name, "described": f"{name}: {said}", "data": data, "layout": layout}


def _stack(pool: str, found: Sequence[PoolSpan], size: int, color: str, pattern: str) -> Trace:
    trace = bars(
        pool,
        [round(each.at * 1000) for each in found],
        [round(each.used, 2) for each in found],
        color,
        pattern=pattern,
        width=size * 1000,
        offset=0,
        customdata=[round(each.most_used, 2) for each in found],
        hovertemplate="%{y:.4~g} slots, peak %{customdata:.4~g}",
    )
    trace["marker"]["line"] = {"width": 0}
    return trace


def _line(
    name: str, totals: Sequence[TotalSpan], size: int, of: str, unit: str, line: dict[str, Any]
) -> Trace:
    """One field of the spans; one that is missing may be a tick that came late."""
    return over_time(name, _middles(totals, size), _field(totals, of), unit, line, gap_seconds=2 * size)


def _field(totals: Sequence[TotalSpan], name: str) -> Floats:
    return np.array([getattr(each, name) for each in totals])


def _middles(totals: Sequence[TotalSpan], size: int) -> Floats:
    return np.array([each.at + size / 2 for each in totals])


def usage_figure(title: str, unit: str, periods: Sequence[str], stacks: Sequence[Stack]) -> Figure:
    """Slot-hours by period as stacked bars; `stacks` are (name, hours of each period), the largest first."""
    first, rest = list(stacks[:MOST_STACKS]), stacks[MOST_STACKS:]
    styles = dict(zip([name for name, _ in first], PATTERNS, strict=False))
    if rest:
        others = f"{len(rest)} others"
        first.append((others, [sum(hours) for hours in zip(*(hours for _, hours in rest), strict=True)]))
        styles[others] = _OTHERS
    total = sum(sum(hours) for _, hours in stacks)
    parts = ", ".join(f"{name} {sum(hours):.4g}" for name, hours in first)
    return {
        "name": title,
        "described": f"{title}, {len(periods)} {unit}s: {total:.4g} slot-hours"
        + (f": {parts}" if parts else ""),
        "data": [
            bars(
                name,
                periods,
                [round(value, 4) for value in hours],
                styles[name][0],
                pattern=styles[name][1],
                hovertemplate="%{y:,.4~g} slot-hours",
            )
            for name, hours in first
        ],
        "layout": amounts(
            title,
            {"type": "date", "tickformat": _TICKS[unit], "tickangle": 0},
            "slot-hours",
            bargap=0.25,
            showlegend=len(first) > 1,
            legend={"orientation": "h", "y": -0.12},
        ),
    }


def queued_time_figure(days: list[Day]) -> Figure:
    """The mean wait by day as bars; days on which nothing started stay empty."""
    longest = max((day.seconds or 0.0 for day in days), default=0.0)
    size, unit = of_span(longest)
    seconds = [day.seconds for day in days if day.seconds is not None]
    mean = f"{sum(seconds) / len(seconds) / size:.3g} {unit}" if seconds else "nothing started"
    waits = bars(
        f"{unit} in the queue",
        [day.day.isoformat() for day in days],
        [None if day.seconds is None else day.seconds / size for day in days],
        BLUE,
        customdata=[day.jobs for day in days],
        hovertemplate=f"%{{y:.3g}} {unit}, %{{customdata}} jobs<extra></extra>",
    )
    xaxis = {"type": "date", "tickformat": "%b %d", "title": {"text": "day of submission (UTC)"}}
    return {
        "name": "Average time in the queue",
        "described": f"Average time in the queue by day, {len(days)} days: {mean} on average",
        "data": [waits],
        "layout": amounts("queued time", xaxis, unit, bargap=0.35, showlegend=False),
    }


def forecasts_figure(starts: Sequence[Start]) -> Figure:
    """Promised starts against real ones: a range that crosses the diagonal was right."""
    size, unit = of_span(max((max(start.latest, start.real) for start in starts), default=0.0))
    x: list[float | None] = []
    y: list[float | None] = []
    for start in starts:
        x += [round(start.real / size, 3)] * 2 + [None]
        y += [round(start.earliest / size, 3), round(start.latest / size, 3), None]
    most = max((start.real for start in starts), default=0.0) / size
    inside = sum(start.earliest <= start.real <= start.latest for start in starts)
    promised: Trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "promised range",
        "x": x,
        "y": y,
        "connectgaps": False,
        "line": {"color": BLUE, "width": 2},
        "marker": {"color": BLUE, "size": 4, "symbol": "line-ew-open"},
        "hovertemplate": f"promised %{{y:.3g}} {unit}",
    }
    right: Trace = {
        "type": "scatter",
        "mode": "lines",
        "name": "real start",
        "x": [0, most],
        "y": [0, most],
        "line": {"color": AMBER, "width": 1.5, "dash": "dot"},
        "hoverinfo": "skip",
    }
    xaxis = {"title": {"text": f"real start, {unit} after the promise"}, "rangemode": "tozero"}
    return {
        "name": "Promised against real starts",
        "described": f"Promised against real starts: {inside} of {len(starts)} started within their range",
        "data": [promised, right],
        "layout": amounts("forecasts", xaxis, f"promised, {unit}", legend=LEGEND) | {"hovermode": "closest"},
    }
