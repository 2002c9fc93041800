"""Charts of what the hosts of a task measured: which there are, their lines, and those as compact columns.

What a host has many of (GPUs, ranks) has charts for each host, with a line for each part; all else has one chart,
with a line for each host. A chart's id is `<name>` or `<name>@<host>`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hosts.models import Slot
from metrics import samples
from metrics.names import GPU, METRICS, RANK, Metric
from metrics.packing import Floats
from metrics.samples import SampleSeries
from metrics.traces import plain

#: of each line, over the window that is drawn
POINTS = 400
#: no samples for so many times the usual distance are a gap, and so are as many seconds
_GAP_STEPS, _GAP_SECONDS = 3.0, 5.0
_DIGITS = 6
Column = tuple[str, str, str]  # host, name, part


@dataclass(frozen=True)
class SampleChart:
    """One name, of all hosts or of `host` alone; `lines` are the (host, part) that it shows, in their order."""

    metric: Metric
    host: str
    lines: list[tuple[str, str]]

    @property
    def id(self) -> str:
        return f"{self.metric.name}@{self.host}" if self.host else self.metric.name


@dataclass(frozen=True)
class SampleLine:
    """One series as points of a chart; `mean` is NaN where a gap is, `gap` the seconds from which on there is one.

    `low` and `high` are None where every point stands for itself.
    """

    key: str
    times: Floats  # epoch seconds
    mean: Floats
    low: Floats | None
    high: Floats | None
    total: int
    gap: float
    last: float


def charts(columns: Iterable[Column], gpus: Collection[str] = ()) -> list[SampleChart]:
    """The charts for these columns, hosts as they come there; of GPUs only `gpus` (UUIDs), where any are named."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for host, name, part in columns:
        metric = METRICS[name]
        if metric.part_is == GPU and gpus and part not in gpus:
            continue
        found.setdefault((name, host if metric.part_is else ""), []).append((host, part))
    order = list(METRICS)
    ids = sorted(found, key=lambda each: order.index(each[0]))
    return [SampleChart(METRICS[name], host, found[name, host]) for name, host in ids]


def parse(chart_id: str) -> tuple[str, str]:
    """(name, host) of a chart's id. Raises ValueError, with a sentence, for a name that nobody measures."""
    name, _, host = chart_id.partition("@")
    if name not in METRICS or bool(METRICS[name].part_is) != bool(host):
        raise ValueError(f"There is no sample chart {chart_id[:60]!r}.")
    return name, host


def read(
    task_id: str,
    chart_ids: Sequence[str],
    hosts: Collection[str],
    *,
    first_time: float | None = None,
    last_time: float | None = None,
) -> Iterator[tuple[str, list[SampleLine]]]:
    """The lines of these charts, of the charts without a host those of `hosts`. Raises ValueError as `parse` does."""
    wanted = [(chart_id, *parse(chart_id)) for chart_id in chart_ids]
    names = {name for _, name, _ in wanted}
    of_hosts = {host for _, _, host in wanted if host}
    if any(not host for _, _, host in wanted):
        of_hosts.update(hosts)
    found = samples.of_task(
        task_id, names, hosts=of_hosts, first_time=first_time, last_time=last_time, points=POINTS
    )
    for chart_id, name, host in wanted:
        of_chart = [
            one for one in found if one.name == name and (one.host == host if host else one.host in hosts)
        ]
        yield chart_id, [line(one) for one in of_chart]


def line(series: SampleSeries) -> SampleLine:
    """The series with its gaps in the open."""
    steps = np.diff(series.times)
    gap = max(_GAP_SECONDS, _GAP_STEPS * float(np.median(steps)) if len(steps) else 0.0)
    places = np.flatnonzero(steps > gap) + 1
    middles = (series.times[places - 1] + series.times[places]) / 2

    def broken(values: Floats) -> Floats:
        return _rounded(np.insert(values, places, np.nan))

    own = np.array_equal(series.low, series.high)
    return SampleLine(
        key=f"{series.host}/{series.part}",
        times=np.insert(series.times, places, middles),
        mean=broken(series.mean),
        low=None if own else broken(series.low),
        high=None if own else broken(series.high),
        total=series.total,
        gap=gap,
        last=float(series.times[-1]),
    )


def _rounded(values: Floats) -> Floats:
    """To six digits, which are more than a meter has: float32 of bytes would have nine."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.floor(np.log10(np.abs(values)))
    scale = 10.0 ** np.where(np.isfinite(exponent), _DIGITS - 1 - exponent, 0.0)
    found: npt.NDArray[np.float64] = np.round(values * scale) / scale
    return found


def natural(host: str) -> list[tuple[bool, int, str]]:
    """`gpu2` before `gpu10`."""
    words = re.findall(r"\d+|\D+", host)
    return [(not word.isdecimal(), int(word) if word.isdecimal() else 0, word) for word in words]


def gpu_indices(columns: list[Column]) -> dict[tuple[str, str], int]:
    """(host, UUID) -> the GPU's number on its host, of those that are still known."""
    hosts = {host for host, _, _ in columns}
    rows = Slot.objects.filter(host__name__in=hosts).exclude(uuid="")
    return {(host, uuid): index for host, uuid, index in rows.values_list("host__name", "uuid", "index")}


def gpu_chips(
    columns: list[Column], chosen: Collection[str], indices: dict[tuple[str, str], int]
) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """Return the GPUs of each host: UUID, label, and whether it is chosen."""
    found: dict[str, dict[str, None]] = {}
    for host, name, part in columns:
        if name.startswith(GPU):
            found.setdefault(host, {})[part] = None
    return [
        (host, sorted(((uuid, _gpu(host, uuid, indices), uuid in chosen) for uuid in uuids), key=_order))
        for host, uuids in found.items()
    ]


def _order(chip: tuple[str, str, bool]) -> tuple[bool, int, str]:
    number = chip[1].rpartition(" ")[2]
    return not number.isdigit(), int(number) if number.isdigit() else 0, chip[1]


def _gpu(host: str, uuid: str, indices: dict[tuple[str, str], int]) -> str:
    index = indices.get((host, uuid))
    return f"GPU {index}" if index is not None else f"GPU {uuid.removeprefix('GPU-')[:8]}"


def described(chart: SampleChart, indices: dict[tuple[str, str], int], *, several: bool) -> dict[str, Any]:
    """A chart without its points. `each`: the host, where every host has its own; `lines` are {key, label, place}: a
    GPU has the place of its number, and so the color that it has everywhere; others have none."""

    def label(host: str, part: str) -> str:
        if chart.metric.part_is == GPU:
            return _gpu(host, part, indices)
        return f"rank {part}" if chart.metric.part_is == RANK else host

    lines: list[dict[str, Any]] = [
        {"key": f"{host}/{part}", "label": label(host, part)}
        | ({"place": indices[host, part]} if (host, part) in indices else {})
        for host, part in chart.lines
    ]
    if chart.metric.part_is == GPU:
        lines.sort(key=lambda line: _order((line["key"], line["label"], False)))
    name = f"{chart.metric.title}, {chart.host}" if chart.host and several else chart.metric.title
    return {
        "id": chart.id, "name": name, "title": chart.metric.title, "unit": chart.metric.unit,
        "group": chart.metric.group, "each": chart.host, "lines": lines,
    }  # fmt: skip


def points(charts: Iterable[tuple[str, Iterable[SampleLine]]], origin: float) -> dict[str, Any]:
    """The points of some charts, by id.

    {"origin": epoch seconds, "times": [[ms behind it]], "charts": {id: [{key, times: place in `times`, mean, low, high,
    total, gap, last}]}}; null is a gap, and `low` and `high` are absent where each point stands for itself.
    """
    times: dict[bytes, int] = {}
    columns: list[list[float | int | None]] = []

    def place(at: Floats) -> int:
        """Lines of one host mostly share their times, so those are sent once."""
        key = at.tobytes()
        if key not in times:
            times[key] = len(columns)
            columns.append(plain(np.round((at - origin) * 1000)))
        return times[key]

    found = {chart_id: [_points(each, place(each.times)) for each in lines] for chart_id, lines in charts}
    return {"origin": origin, "times": columns, "charts": found}


def _points(each: SampleLine, place: int) -> dict[str, object]:
    said: dict[str, object] = {
        "key": each.key, "times": place, "mean": plain(each.mean),
        "total": each.total, "gap": each.gap, "last": each.last,
    }  # fmt: skip
    if each.low is not None and each.high is not None:
        said |= {"low": plain(each.low), "high": plain(each.high)}
    return said
