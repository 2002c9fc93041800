"""Figures of what one host measured: a line per GPU or direction, its envelope behind it, gaps left open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metrics.packing import Floats
from metrics.samples import SampleSeries
from metrics.traces import AMBER, BLUE, GRAY, LEGEND, PURPLE, Figure, amounts, band, over_time
from metrics.units import scaled, time_axis

_COLORS = (BLUE, AMBER, GRAY, PURPLE)
_DASHES = ("solid", "dot", "dash", "dashdot")
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
    envelopes = (
        [("all", GRAY, *_around([each for _, each in lines]))]
        if len(lines) > _MOST_BANDS
        else [
            (name, _COLORS[index], each.times, each.low, each.high)
            for index, (name, each) in enumerate(lines)
            if (each.high > each.low).any()
        ]
    )
    data = [
        band(f"min to max, {name}", times, low / factor, high / factor, color, gap_seconds=gap_seconds)
        for name, color, times, low, high in envelopes
    ]
    data += [
        over_time(name, each.times, each.mean / factor, unit, _look(index), gap_seconds=gap_seconds)
        for index, (name, each) in enumerate(lines)
    ]
    revision = f"{chart.title} {round((window[1] - window[0]) / 60)}"
    layout = amounts(revision, time_axis(*window), unit, showlegend=len(lines) > 1, legend=LEGEND)
    if chart.most is not None:
        layout["yaxis"]["range"] = [0, chart.most]
    described = _described(chart.title, lines, factor, unit)
    return {"name": chart.title, "described": described, "data": data, "layout": layout}


def _described(title: str, lines: list[tuple[str, SampleSeries]], factor: float, unit: str) -> str:
    ends = [
        f"{name} {each.mean[-1] / factor:.3g} {unit}, between {each.low.min() / factor:.3g} and"
        f" {each.high.max() / factor:.3g}"
        for name, each in lines
    ]
    return f"{title}: {'; '.join(ends)}"


def _look(index: int) -> dict[str, Any]:
    dash = _DASHES[index // len(_COLORS) % len(_DASHES)]
    return {"color": _COLORS[index % len(_COLORS)], "width": 1.5, "dash": dash}


def _around(lines: Sequence[SampleSeries]) -> tuple[Floats, Floats, Floats]:
    """(times, lowest, highest) of all lines together, at the times that any of them has."""
    times, places = np.unique(np.concatenate([each.times for each in lines]), return_inverse=True)
    low, high = np.full(len(times), np.inf), np.full(len(times), -np.inf)
    np.minimum.at(low, places, np.concatenate([each.low for each in lines]))
    np.maximum.at(high, places, np.concatenate([each.high for each in lines]))
    return times, low, high
