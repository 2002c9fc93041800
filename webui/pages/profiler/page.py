"""The Profiler page of a trial: which charts there are, what its hosts measured, and where its steps go."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from experiments.models import Trial
from hosts.models import Slot
from metrics import sample_charts, samples
from metrics.names import GPU, RANK
from metrics.packing import Floats
from metrics.sample_charts import Chart, Column, Line
from metrics.traces import plain
from webui.pages.frame import page, refusing, show
from webui.pages.metrics.page import begin_of, unit_of
from webui.pages.profiler import query
from webui.pages.profiler.query import AXES, Chosen
from webui.pages.trials import trial
from webui.query import window

GROUPS = {
    "gpu": "GPU", "cpu": "CPU", "memory": "Memory", "disk": "Disk", "network": "Network", "ranks": "Ranks",
}  # fmt: skip


@page
@refusing
def detail(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """The page; with `?part` its head, with `?part=choice` the choice of hosts and the list of charts."""
    found = trial.find(trial_id)
    part = request.GET.get("part")
    context = {} if part == "choice" else trial.context_of(request, found, "profiler")
    if part is None or part == "choice":
        context |= _page(request, found)
    fragment = "trial_profiler" if part == "choice" else "trial"
    return show(request, "trial_profiler", context, room="Experiments", fragment=fragment)


def _page(request: HttpRequest, found: Trial) -> dict[str, object]:
    columns = samples.columns_of_task(found.task_id)
    hosts = sorted({host for host, _, _ in columns}, key=_natural)
    places = {host: place for place, host in enumerate(hosts)}
    columns.sort(key=lambda column: places[column[0]])
    chosen = query.chosen(request.GET, hosts)
    shown = [column for column in columns if column[0] in set(chosen.hosts)]
    indices = _indices(shown)
    charts = sample_charts.charts(shown, chosen.gpus)
    begin = begin_of(found)
    size, unit = unit_of(found)
    return {
        "trial": found,
        "ended": found.ended_at is not None,
        "hosts": [(host, host in chosen.hosts) for host in hosts],
        "gpus": _gpu_chips(shown, chosen, indices),
        "groups": list(GROUPS.items()),
        "drawn_groups": {chart.metric.group for chart in charts},
        "listed": {
            "charts": [_described(chart, indices, several=len(chosen.hosts) > 1) for chart in charts],
            "hosts": chosen.hosts,
        },
        "chosen_hosts": bool(request.GET.getlist("host")),
        "chosen_gpus": bool(chosen.gpus),
        "only_batches": _only_batches(found),
        "first_hosts": query.FIRST_HOSTS,
        "sampling": settings.SAMPLE_SECONDS > 0,
        "axes": [
            {
                "name": name,
                "word": word,
                "title": "time of day (UTC)" if name == "time" else f"{word} ({unit})",
            }
            for name, word in AXES.items()
        ],
        "axis": chosen.axis,
        "rank": chosen.rank,
        "begin": begin,
        "unit_seconds": size,
    }


def _natural(host: str) -> list[tuple[bool, int, str]]:
    """`gpu2` before `gpu10`."""
    words = re.findall(r"\d+|\D+", host)
    return [(not word.isdecimal(), int(word) if word.isdecimal() else 0, word) for word in words]


def _only_batches(found: Trial) -> str:
    """Which batches alone the config has timed, in words; empty where all are."""
    profiling = found.experiment.config.get("profiling") or {}
    if not profiling.get("enabled"):
        return ""
    begin, end = profiling.get("begin_on_batch") or 0, profiling.get("end_after_batch")
    if end is not None:
        return f"batches {begin} to {end}"
    return f"batch {begin} and later" if begin else ""


def _indices(columns: list[Column]) -> dict[tuple[str, str], int]:
    """(host, UUID) -> the GPU's number on its host, of those that are still known."""
    hosts = {host for host, _, _ in columns}
    rows = Slot.objects.filter(host__name__in=hosts).exclude(uuid="")
    return {(host, uuid): index for host, uuid, index in rows.values_list("host__name", "uuid", "index")}


def _gpu_chips(
    columns: list[Column], chosen: Chosen, indices: dict[tuple[str, str], int]
) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """Return the GPUs of each host: UUID, label, and whether it is chosen."""
    found: dict[str, dict[str, None]] = {}
    for host, name, part in columns:
        if name.startswith(GPU):
            found.setdefault(host, {})[part] = None
    return [
        (host, sorted(((uuid, _gpu(host, uuid, indices), uuid in chosen.gpus) for uuid in uuids), key=_order))
        for host, uuids in found.items()
    ]


def _order(chip: tuple[str, str, bool]) -> tuple[bool, int, str]:
    number = chip[1].rpartition(" ")[2]
    return not number.isdigit(), int(number) if number.isdigit() else 0, chip[1]


def _gpu(host: str, uuid: str, indices: dict[tuple[str, str], int]) -> str:
    index = indices.get((host, uuid))
    return f"GPU {index}" if index is not None else f"GPU {uuid.removeprefix('GPU-')[:8]}"


def _described(chart: Chart, indices: dict[tuple[str, str], int], *, several: bool) -> dict[str, Any]:
    """A chart without its points. `each`: the host, where every host has its own; `lines` are {key, label}."""

    def label(host: str, part: str) -> str:
        if chart.metric.part_is == GPU:
            return _gpu(host, part, indices)
        return f"rank {part}" if chart.metric.part_is == RANK else host

    lines = [{"key": f"{host}/{part}", "label": label(host, part)} for host, part in chart.lines]
    if chart.metric.part_is == GPU:
        lines.sort(key=lambda line: _order((line["key"], line["label"], False)))
    name = f"{chart.metric.title}, {chart.host}" if chart.host and several else chart.metric.title
    return {
        "id": chart.id, "name": name, "title": chart.metric.title, "unit": chart.metric.unit,
        "group": chart.metric.group, "each": chart.host, "lines": lines,
    }  # fmt: skip


@page
@refusing
def points(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """The points of the charts that `chart` lists, of the `host`s, in the window of `from` and `to`, as JSON.

    With `after` (epoch seconds) only what lies behind it. {"origin": epoch seconds, "times": [[ms behind it]],
    "charts": {id: [{key, times: place in `times`, mean, low, high, total, gap, last}]}}; null is a gap, and `low` and
    `high` are absent where each point stands for itself.
    """
    found = trial.find(trial_id)
    asked = query.charts(request.GET)
    first, last = window(request.GET, "from", "to")
    after, _ = window(request.GET, "after", "to")
    if after is not None:
        first = float(np.nextafter(after, np.inf))
    hosts = request.GET.getlist("host")[: query.CHOSEN_MAX]
    times: dict[bytes, int] = {}
    columns: list[list[float | int | None]] = []
    origin = begin_of(found)

    def place(at: Floats) -> int:
        """Lines of one host mostly share their times, so those are sent once."""
        key = at.tobytes()
        if key not in times:
            times[key] = len(columns)
            columns.append(plain(np.round((at - origin) * 1000)))
        return times[key]

    charts = {
        chart_id: [_points(each, place(each.times)) for each in lines]
        for chart_id, lines in sample_charts.read(
            found.task_id, asked, hosts, first_time=first, last_time=last
        )
    }
    response = JsonResponse({"origin": origin, "times": columns, "charts": charts})
    response["Cache-Control"] = "no-store"
    return response


def _points(each: Line, place: int) -> dict[str, object]:
    said: dict[str, object] = {
        "key": f"{each.host}/{each.part}", "times": place, "mean": plain(each.mean),
        "total": each.total, "gap": each.gap, "last": each.last,
    }  # fmt: skip
    if each.low is not None and each.high is not None:
        said |= {"low": plain(each.low), "high": plain(each.high)}
    return said
