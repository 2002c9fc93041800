"""Plotly figures of what one host measured: a line per GPU or direction, its envelope behind it, gaps left open.

The page gives them its colours of paper and ink, fonts and theme, as to metrics.charts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metrics.charts import Figure
from metrics.sample_chunks import Floats
from metrics.samples import SampleSeries
from metrics.units import scaled, time_axis

#: Lines differ by dash as well as by colour; each reads on light and dark paper.
_COLOURS = ("#2f6fd0", "#c98a06", "#7d858c", "#8a5fb8")
_DASHES = ("solid", "dot", "dash", "dashdot")
_GREY = "#7d858c"
#: of more lines than these, one envelope around all of them is drawn
_MOST_BANDS = 2


@dataclass(frozen=True)
class _Chart:
    """`lines`: name of a sample -> its line's name; None: named after the GPU."""

    title: str
    lines: Mapping[str, str | None]
    #: where the axis ends whatever was measured
    most: float | None = None


_CHARTS = (
    _Chart("GPU utilization", {"gpu_util": None}, 100),
    _Chart("GPU memory used", {"gpu_memory_used": None}),
    _Chart("GPU temperature", {"gpu_temperature": None}),
    _Chart("GPU power", {"gpu_power": None}),
    _Chart("CPU utilization", {"cpu_util_simple": "mean of all cores"}, 100),
    _Chart("Memory available", {"memory_free": "available"}),
    _Chart("Disk", {"disk_throughput_read": "read", "disk_throughput_write": "written"}),
    _Chart("Disk operations", {"disk_iops": "operations"}),
    _Chart("Network", {"net_throughput_sent": "sent", "net_throughput_recv": "received"}),
)
#: the names of samples that are drawn
NAMES = frozenset(name for chart in _CHARTS for name in chart.lines)


def figures(
    series: Sequence[SampleSeries],
    gpus: Mapping[str, str],
    *,
    first_time: float,
    last_time: float,
    gap_seconds: float,
) -> list[Figure]:
    """A figure per chart of which something was measured; `gpus` names GPUs by UUID.

    Times are epoch seconds, drawn in UTC. Where two points are further apart than `gap_seconds`, nothing is drawn.
    """
    window = (first_time, last_time)
    found = []
    for chart in _CHARTS:
        lines = [(name, each) for each in series if (name := line_name(each, chart.lines, gpus)) is not None]
        if lines:
            found.append(_figure(chart, _in_order(lines), window, gap_seconds))
    return found


def line_name(each: SampleSeries, lines: Mapping[str, str | None], gpus: Mapping[str, str]) -> str | None:
    """What the line of a series is called in a chart of these names; None where it is not drawn there."""
    if each.name not in lines:
        return None
    return lines[each.name] or gpus.get(each.part, each.part)


def _in_order(lines: list[tuple[str, SampleSeries]]) -> list[tuple[str, SampleSeries]]:
    """GPUs by number: `GPU 2` before `GPU 10`."""
    return sorted(lines, key=lambda line: (len(line[0]), line[0])) if lines[0][1].part else lines


def _figure(
    chart: _Chart,
    lines: list[tuple[str, SampleSeries]],
    window: tuple[float, float],
    gap_seconds: float,
) -> Figure:
    factor, unit = scaled(lines[0][1].metric.unit, max(float(each.high.max()) for _, each in lines))
    several = len(lines) > _MOST_BANDS
    data = _bands(
        [("all", *_around([each for _, each in lines]))]
        if several
        else [
            (name, each.times, each.low, each.high) for name, each in lines if (each.high > each.low).any()
        ],
        gap_seconds,
        factor,
        several,
    )
    data += [_line(name, each, index, factor, unit, gap_seconds) for index, (name, each) in enumerate(lines)]
    return {
        "name": chart.title,
        "described": _described(chart.title, lines, factor, unit),
        "data": data,
        "layout": {
            "showlegend": len(lines) > 1,
            "legend": {"orientation": "h", "y": 1, "yanchor": "bottom", "font": {"size": 11}},
            "hovermode": "x unified",
            "xaxis": time_axis(*window),
            "yaxis": {
                "automargin": True,
                "rangemode": "tozero",
                "title": {"text": unit},
                **({"range": [0, chart.most]} if chart.most is not None else {}),
            },
            "uirevision": f"{chart.title} {round((window[1] - window[0]) / 60)}",
        },
    }


def _described(title: str, lines: list[tuple[str, SampleSeries]], factor: float, unit: str) -> str:
    ends = [
        f"{name} {each.mean[-1] / factor:.3g} {unit}, between {each.low.min() / factor:.3g} and"
        f" {each.high.max() / factor:.3g}"
        for name, each in lines
    ]
    return f"{title}: {'; '.join(ends)}"


def _line(
    name: str, each: SampleSeries, index: int, factor: float, unit: str, gap_seconds: float
) -> dict[str, Any]:
    breaks = _breaks(each.times, gap_seconds)
    return {
        "type": "scatter",
        "mode": "lines" if len(each.times) > 1 else "markers",
        "name": name,
        "x": _split(each.times * 1000, breaks, 0),
        "y": _split(each.mean / factor, breaks, 3),
        "connectgaps": False,
        "line": {
            "color": _COLOURS[index % len(_COLOURS)],
            "width": 1.5,
            "dash": _DASHES[index // len(_COLOURS) % len(_DASHES)],
        },
        "hovertemplate": f"%{{y:.4~g}} {unit}",
    }


def _around(lines: Sequence[SampleSeries]) -> tuple[Floats, Floats, Floats]:
    """(times, lowest, highest) of all lines together, at the times that any of them has."""
    times, places = np.unique(np.concatenate([each.times for each in lines]), return_inverse=True)
    low, high = np.full(len(times), np.inf), np.full(len(times), -np.inf)
    np.minimum.at(low, places, np.concatenate([each.low for each in lines]))
    np.maximum.at(high, places, np.concatenate([each.high for each in lines]))
    return times, low, high


def _bands(
    envelopes: Sequence[tuple[str, Floats, Floats, Floats]],
    gap_seconds: float,
    factor: float,
    several: bool,
) -> list[dict[str, Any]]:
    """What lies between the lowest and the highest value of each span, as one closed shape per stretch."""
    found = []
    for index, (name, times, low, high) in enumerate(envelopes):
        x: list[float | None] = []
        y: list[float | None] = []
        breaks = _breaks(times, gap_seconds)
        for piece in zip(*(np.split(values, breaks) for values in (times, low, high)), strict=True):
            at = [_milliseconds(float(time)) for time in piece[0]]
            x += [*at, *reversed(at), None]
            y += [*_rounded(piece[1] / factor), *reversed(_rounded(piece[2] / factor)), None]
        colour = _GREY if several else _COLOURS[index % len(_COLOURS)]
        found.append(
            {
                "type": "scatter",
                "mode": "lines",
                "line": {"width": 0},
                "fill": "toself",
                "fillcolor": _pale(colour),
                "name": f"min to max, {name}",
                "showlegend": False,
                "hoverinfo": "skip",
                "x": x,
                "y": y,
            }
        )
    return found


def _breaks(times: Floats, gap_seconds: float) -> np.ndarray[Any, Any]:
    return np.flatnonzero(np.diff(times) > gap_seconds) + 1


def _pale(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"


def _split(values: Floats, breaks: np.ndarray[Any, Any], digits: int) -> list[float | int | None]:
    """With a None before each break, at which Plotly lifts its pen."""
    found: list[float | int | None] = []
    for piece in np.split(values, breaks):
        found += [None] if found else []
        found += [int(value) for value in piece] if digits == 0 else _rounded(piece)
    return found


def _rounded(values: Floats) -> list[float]:
    return list(np.round(values, 3).tolist())


def _milliseconds(at: float) -> int:
    return round(at * 1000)
