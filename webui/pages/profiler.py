"""The Profiler page of a trial: which charts there are, what its hosts measured, and where its steps go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from django.conf import settings
from django.http import HttpRequest, JsonResponse, QueryDict
from django.http.response import HttpResponseBase

from accounts.refusals import Refusal
from experiments.models import Trial
from metrics import csv_files, sample_charts, samples, step_figures, timings
from webui.downloads.tables import csv_file
from webui.pages.frame import UNKEPT, refusing
from webui.pages.metrics.page import begin_of, unit_of
from webui.pages.trials import trial
from webui.query import LARGEST_INTEGER, as_whole, choice, window

#: intervals of a rank that are read at most, before they become columns of charts
POINTS = 1000
#: charts that one request may ask for, and hosts and GPUs that an address may name
CHARTS_MAX, CHOSEN_MAX = 200, 1000
#: hosts with charts unless the address names others
FIRST_HOSTS = 8
AXES = {"time": "time of day", "relative": "time since the start"}
GROUPS = {
    "gpu": "GPU", "cpu": "CPU", "memory": "Memory", "disk": "Disk", "network": "Network", "ranks": "Ranks",
}  # fmt: skip


@dataclass(frozen=True)
class Chosen:
    """What is shown: `hosts` are those that have charts, `gpus` UUIDs or empty for all, `axis` one of AXES."""

    hosts: list[str]
    gpus: list[str]
    axis: str
    rank: int | None


def _chosen(query: QueryDict, known: list[str]) -> Chosen:
    """`host` and `gpu` (each may repeat), `x` and `rank`; `known`: all hosts. What makes no sense is left out."""
    asked = [host for host in dict.fromkeys(query.getlist("host")) if host in known]
    return Chosen(
        hosts=sorted(asked, key=known.index) or known[:FIRST_HOSTS],
        gpus=query.getlist("gpu")[:CHOSEN_MAX],
        axis=choice(query, "x", AXES, next(iter(AXES))),
        rank=_rank(query),
    )


def _rank(query: QueryDict) -> int | None:
    """The rank whose timings are shown; None: the mean of all."""
    return as_whole(query.get("rank", ""), LARGEST_INTEGER)


def _charts(query: QueryDict) -> list[str]:
    """The charts of samples that `chart` lists. Raises Refusal."""
    asked = list(dict.fromkeys(query.getlist("chart")))
    if not 0 < len(asked) <= CHARTS_MAX:
        raise Refusal(f"{len(asked)} charts are requested by `chart`; allowed: 1 to {CHARTS_MAX}.")
    try:
        for each in asked:
            sample_charts.parse(each)
    except ValueError as error:
        raise Refusal(str(error)) from error
    return asked


@refusing
def detail(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """The page; with `?part` its head, with `?part=choice` the choice of hosts and the list of charts."""
    part = request.GET.get("part")
    return trial.show_tab(request, trial.find(trial_id), "profiler", _page, own="choice", part=part)


def _page(request: HttpRequest, found: Trial) -> dict[str, object]:
    columns = samples.columns_of_task(found.task_id)
    hosts = sorted({host for host, _, _ in columns}, key=sample_charts.natural)
    places = {host: place for place, host in enumerate(hosts)}
    columns.sort(key=lambda column: places[column[0]])
    chosen = _chosen(request.GET, hosts)
    shown = [column for column in columns if column[0] in set(chosen.hosts)]
    indices = sample_charts.gpu_indices(shown)
    charts = sample_charts.charts(shown, chosen.gpus)
    begin = begin_of(found)
    size, unit = unit_of(found)
    return {
        "trial": found,
        "ended": found.ended_at is not None,
        "hosts": [(host, host in chosen.hosts) for host in hosts],
        "gpus": sample_charts.gpu_chips(shown, chosen.gpus, indices),
        "groups": list(GROUPS.items()),
        "drawn_groups": {chart.metric.group for chart in charts},
        "listed": {
            "charts": [
                sample_charts.described(chart, indices, several=len(chosen.hosts) > 1) for chart in charts
            ],
            "hosts": chosen.hosts,
        },
        "chosen_hosts": bool(request.GET.getlist("host")),
        "chosen_gpus": bool(chosen.gpus),
        "only_batches": _only_batches(found),
        "first_hosts": FIRST_HOSTS,
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


def _only_batches(found: Trial) -> str:
    """Which batches alone the config has timed, in words; empty where all are."""
    profiling = found.experiment.config.get("profiling") or {}
    if not profiling.get("enabled"):
        return ""
    begin, end = profiling.get("begin_on_batch") or 0, profiling.get("end_after_batch")
    if end is not None:
        return f"batches {begin} to {end}"
    return f"batch {begin} and later" if begin else ""


@refusing
def points(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """The points of the charts that `chart` lists, of the `host`s, in the window of `from` and `to`, as JSON.

    With `after` (epoch seconds) only what lies behind it (metrics.sample_charts).
    """
    found = trial.find(trial_id)
    asked = _charts(request.GET)
    first, last = window(request.GET, "from", "to")
    after, _ = window(request.GET, "after", "to")
    if after is not None:
        first = float(np.nextafter(after, np.inf))
    hosts = request.GET.getlist("host")[:CHOSEN_MAX]
    begin = begin_of(found)
    lines = sample_charts.read(found.task_id, asked, hosts, first_time=first, last_time=last)
    return JsonResponse(sample_charts.points(lines, begin), headers=UNKEPT)


@refusing
def step_charts(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """Charts over steps in the window of `first` and `last`, of `rank` or of all, as JSON (metrics.step_figures)."""
    found = trial.find(trial_id)
    first, last = window(request.GET, "first", "last")
    rank = _rank(request.GET)
    read = timings.read(
        found.task_id,
        first_step=None if first is None else int(first),
        last_step=None if last is None else int(last),
        points=POINTS,
    )
    return JsonResponse(step_figures.of(read, rank), headers=UNKEPT)


@refusing
def samples_file(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """All points of the charts that `chart` lists, of the `host`s, as CSV; those no longer kept stand as minutes.

    Columns: host, name, part, unit, time, low, high, mean.
    """
    found = trial.find(trial_id)
    charts = [sample_charts.parse(each) for each in _charts(request.GET)]
    hosts = request.GET.getlist("host")
    return csv_file(f"trial-{found.pk}-{charts[0][0]}", csv_files.of_samples(found.task_id, charts, hosts))


@refusing
def timings_file(request: HttpRequest, trial_id: int) -> HttpResponseBase:
    """All intervals of all timings, or of those of `rank`, as CSV; seconds."""
    found = trial.find(trial_id)
    return csv_file(f"trial-{found.pk}-timings", csv_files.of_timings(found.task_id, _rank(request.GET)))
