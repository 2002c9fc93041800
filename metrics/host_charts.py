"""Figures of what one host measured: a line per GPU or direction, its envelope behind it, gaps left open.

A GPU has the color of its number in every chart. Many GPUs are drawn side by side, each in a small chart of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metrics.samples import SampleSeries
from metrics.traces import LEGEND, Figure, Trace, amounts, band, look, over_time
from metrics.units import scaled, time_axis

#: more lines than these are drawn side by side, so many in a row
_MOST_TOGETHER, _IN_A_ROW = 4, 4
#: of the width and the height of a figure: what is left between small charts
_BETWEEN, _ABOVE = 0.02, 0.1


@dataclass(frozen=True)
class _Chart:
    """`lines`: name of a sample -> its line's name; None: a line per GPU."""

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
    gpus: Mapping[str, int],
    *,
    first_time: float,
    last_time: float,
    gap_seconds: float,
) -> list[Figure]:
    """A figure per chart of which something was measured; `gpus` are the numbers of GPUs by UUID.

    Times are epoch seconds, drawn in UTC. Where two points are further apart than `gap_seconds`, nothing is drawn.
    """
    window = (first_time, last_time)
    found = []
    for chart in _CHARTS:
        lines = [_line(each, chart, gpus) for each in series if each.name in chart.lines]
        if lines:
            found.append(_figure(chart, sorted(lines, key=lambda line: line.place), window, gap_seconds))
    return found


def gpu_name(part: str, gpus: Mapping[str, int]) -> str:
    """`GPU 3` of a UUID; what has no number, such as a disk, is called as it is."""
    return f"GPU {gpus[part]}" if part in gpus else part


@dataclass(frozen=True)
class _Line:
    """`place`: of its color; a GPU's number."""

    name: str
    place: int
    series: SampleSeries


def _line(each: SampleSeries, chart: _Chart, gpus: Mapping[str, int]) -> _Line:
    name = chart.lines[each.name]
    if name is None:
        return _Line(gpu_name(each.part, gpus), gpus.get(each.part, len(gpus)), each)
    return _Line(name, list(chart.lines).index(each.name), each)


def _figure(chart: _Chart, lines: list[_Line], window: tuple[float, float], gap_seconds: float) -> Figure:
    most = max(float(line.series.high.max()) for line in lines)
    factor, unit = scaled(lines[0].series.metric.unit, most)
    revision = f"{chart.title} {round((window[1] - window[0]) / 60)}"
    is_apart = len(lines) > _MOST_TOGETHER
    layout = amounts(
        revision, time_axis(*window), unit, showlegend=len(lines) > 1 and not is_apart, legend=LEGEND
    )
    if chart.most is not None:
        layout["yaxis"]["range"] = [0, chart.most]
    data = []
    for number, line in enumerate(lines):
        data += [
            trace | (_axes(number) if is_apart else {}) for trace in _traces(line, factor, unit, gap_seconds)
        ]
    if is_apart:
        layout["yaxis"].setdefault(
            "range", [0, 1.05 * most / factor or 1]
        )  # Plotly finds none for axes that match
        _set_apart(layout, [line.name for line in lines])
    described = _described(chart.title, lines, factor, unit)
    return {"name": chart.title, "described": described, "data": data, "layout": layout}


def _traces(line: _Line, factor: float, unit: str, gap_seconds: float) -> list[Trace]:
    """The line, and behind it what lies between its lowest and highest values."""
    each, drawn = line.series, look(line.place)
    curve = over_time(
        line.name, each.times, each.mean / factor, unit, drawn.line(1.5), gap_seconds=gap_seconds
    )
    if not (each.high > each.low).any():
        return [curve]
    name, low, high = f"min to max, {line.name}", each.low / factor, each.high / factor
    return [band(name, each.times, low, high, drawn.color, gap_seconds=gap_seconds), curve]


def _axes(number: int) -> dict[str, str]:
    """The axes of a small chart, as its traces name them: those of the first have no number."""
    return {f"{axis}axis": axis + (str(number + 1) if number else "") for axis in "xy"}


def _set_apart(layout: dict[str, Any], names: list[str]) -> None:
    """Give each line axes of its own, which move together; times are under the last row, amounts at the left."""
    rows = -(-len(names) // _IN_A_ROW)
    x, y = layout["xaxis"], layout["yaxis"]
    title = x.pop("title")["text"]
    x |= {"nticks": 2, "tickfont": {"size": 10}}
    y |= {"nticks": 3, "tickfont": {"size": 10}}
    layout["annotations"] = [_words(title, 0.5, -0.09, xanchor="center", yanchor="top")]
    for number, name in enumerate(names):
        row, column = divmod(number, _IN_A_ROW)
        left, top = column / _IN_A_ROW, 1 - row / rows
        ends = [left + _BETWEEN * (column > 0), left + 1 / _IN_A_ROW]
        is_last = number + _IN_A_ROW >= len(names)
        axes, first = _axes(number), number == 0
        layout[f"xaxis{axes['xaxis'][1:]}"] = x | {
            "domain": ends, "anchor": axes["yaxis"], "showticklabels": is_last, **({} if first else {"matches": "x"}),
        }  # fmt: skip
        layout[f"yaxis{axes['yaxis'][1:]}"] = y | {
            "domain": [top - 1 / rows, top - _ABOVE], "anchor": axes["xaxis"], "showticklabels": column == 0,
            "title": {"text": y["title"]["text"] if column == 0 else ""}, **({} if first else {"matches": "y"}),
        }  # fmt: skip
        layout["annotations"].append(_words(name, ends[0], top, xanchor="left", yanchor="top"))


def _words(text: str, x: float, y: float, **where: str) -> dict[str, Any]:
    paper = {"xref": "paper", "yref": "paper", "showarrow": False, "font": {"size": 11}}
    return {"text": text, "x": x, "y": y, **paper, **where}


def _described(title: str, lines: list[_Line], factor: float, unit: str) -> str:
    ends = [
        f"{line.name} {line.series.mean[-1] / factor:.3g} {unit}, between {line.series.low.min() / factor:.3g} and"
        f" {line.series.high.max() / factor:.3g}"
        for line in lines
    ]
    return f"{title}: {'; '.join(ends)}"
