"""Every figure that Python builds is one that Plotly takes: unknown names and values of the wrong kind fail here."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import plotly
import plotly.graph_objects as go
import pytest

import metrics
from jobs.queued_time import Day
from metrics import (
    best_so_far,
    charts,
    cluster_charts,
    comparisons,
    group_chart,
    host_charts,
    hparam_charts,
    ingest,
    learning_curves,
    names,
    parallel_chart,
)
from metrics.cluster_charts import PoolSpan, TotalSpan
from metrics.comparisons import ChartView, Line, Metric
from metrics.hparam_axes import Bounds, axes
from metrics.samples import SampleSeries
from metrics.series import Series
from metrics.traces import COLORS, Figure
from tests.metrics.test_sweep import SPECS, drawn, judged

AT = 1_790_000_000.0
TRIALS = range(1, 41)


@pytest.fixture
def reported() -> None:
    """Forty trials with two metrics each, in two groups."""
    for trial in TRIALS:
        for step in (10, 20, 30):
            values = {"loss": 1 / step + trial, "accuracy": step / 100}
            ingest.store(trial, [ingest.Report(1, "validation", step, AT + step, values)])
            ingest.store(trial, [ingest.Report(1, "training", step, AT + step, {"train_loss": 0.5})])


def measured(gpus: int = 2) -> list[SampleSeries]:
    """All that hosts measure, with a gap, of so many GPUs where it has parts."""
    times = AT + np.array([0.0, 10.0, 20.0, 500.0, 510.0])
    values = np.array([1.0, 5.0, 3.0, 2.0, 9.0])
    return [
        SampleSeries("gpu1", name, part, times, values - 1, values + 1, values, 5)
        for name in names.METRICS
        for part in [f"GPU-{number}" for number in range(1, gpus + 1)]
    ]


def of_trials(trials: int) -> list[Figure]:
    best = judged(drawn(trials))
    curves = learning_curves.figure(best, Metric("validation", "loss"), ["lr"], is_log=trials > 1)
    assert curves is not None
    labels = {pk: f"trial {pk}" for pk in TRIALS[:trials]}
    both = [Line("g", "both", {1: AT, 2: AT}, is_baseline=True)] if trials > 1 else []
    lines = [*both, *(Line(label, label, {pk: AT}) for pk, label in labels.items() if not both or pk > 2)]
    return [
        curves,
        *comparisons.figures(lines, comparisons.metrics_of(list(TRIALS)), ChartView(is_log=trials > 1)),
        *best_so_far.figures(list(labels), "loss", is_smaller_better=True, begin=AT - 90_000),
    ]


def of_a_search() -> list[Figure]:
    tried = drawn(120)
    of, along = judged(tried), axes(SPECS, tried)
    bars = hparam_charts.importance_bars(of, along)
    assert bars is not None
    brushed = {"lr": Bounds(1e-4, 1e-2), "net.kind": Bounds(among=frozenset({"a"}))}
    return [
        bars,
        *(hparam_charts.scatter(of, axis, is_log=is_log) for axis in along for is_log in (True, False)),
        *hparam_charts.heat_maps(of, along),
        *(parallel_chart.figure(of, along, bounds, is_log=False) for bounds in (brushed, {})),
    ]


def of_the_cluster() -> list[Figure]:
    pools = [PoolSpan(pool, AT + 60 * n, 8, 4, 6, 2, 3) for pool in "abcdef" for n in (0, 1, 5)]
    totals = [TotalSpan(AT + 60 * n, 8, 2, 1, 3, 16) for n in (0, 1, 5)]
    stacks = [(f"user {n}", [1.5, 0.0]) for n in range(cluster_charts.MOST_STACKS + 2)]
    days = [Day(date(2026, 11, 20), 3, 4000.0), Day(date(2026, 11, 21), 0, None)]
    groups = [group_chart.GroupSpan("a", AT + 60 * n, 4, 6, 2, 0, 3) for n in (0, 1, 5)]
    return [
        *cluster_charts.figures(pools, totals, AT, AT + 3600),
        *group_chart.figures(groups, AT, AT + 3600),
        *of_gpus(measured(), {"GPU-1": 0}),
        *of_gpus(measured(8), {}),
        *(cluster_charts.usage_figure("Use", unit, ["2026-11-20", "2026-11-21"], stacks) for unit in ("day", "month")),
        *(cluster_charts.queued_time_figure(some) for some in (days, days[1:], [])),
        *(cluster_charts.forecasts_figure(some) for some in ([cluster_charts.Start(60.0, 300.0, 120.0)], [])),
    ]  # fmt: skip


def of_gpus(series: list[SampleSeries], numbers: dict[str, int]) -> list[Figure]:
    return host_charts.figures(series, numbers, first_time=AT, last_time=AT + 600, gap_seconds=60)


def test_a_gpu_has_one_color_and_many_are_drawn_side_by_side() -> None:
    numbers = {f"GPU-{number + 1}": number for number in range(8)}
    few = [each for each in measured(8) if each.part in ("GPU-4", "GPU-7")]
    together, apart = of_gpus(few, numbers)[0], of_gpus(measured(8), numbers)[0]

    def lines(figure: Figure) -> dict[str, tuple[str, str]]:
        return {
            each["name"]: (each["line"]["color"], each.get("yaxis", "y"))
            for each in figure["data"]
            if "color" in each["line"]
        }

    assert {name: color for name, (color, _) in lines(together).items()} == {
        "GPU 3": COLORS[3], "GPU 6": COLORS[6],
    }  # fmt: skip
    assert (
        lines(apart)["GPU 3"] == (COLORS[3], "y4") and len({axis for _, axis in lines(apart).values()}) == 8
    )
    script = (Path(__file__).parents[2] / "static/js/charts/traces.js").read_text()
    assert f"const COLORS = {json.dumps(COLORS)};" in script, "the profiler draws with the same colors"


def test_pages_know_the_color_that_stands_for_their_ink() -> None:
    script = (Path(__file__).parents[2] / "static/js/charts/theme.js").read_text()
    assert f"color === {json.dumps(comparisons.INK)}" in script


def of_one_trial() -> list[Figure]:
    nothing = np.array([], np.float64)
    empty = Series("loss", np.array([], np.int64), nothing, nothing, 0)
    return [
        *charts.trial_figures(1, highlight="loss"),
        charts.metric_figure("loss", [("training", empty)]),
    ]


def builders() -> set[Callable[..., object]]:
    """The public functions of the room that return figures."""
    modules = [
        importlib.import_module(f"metrics.{each.name}") for each in pkgutil.iter_modules(metrics.__path__)
    ]
    return {
        function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
        and "Figure" in str(function.__annotations__.get("return"))
    }  # fmt: skip


@pytest.mark.django_db
def test_plotly_takes_every_figure(reported: None, monkeypatch: pytest.MonkeyPatch) -> None:
    left = builders()
    assert len(left) > 10

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            left.discard(function)
            return function(*args, **kwargs)

        return call

    for function in builders():
        monkeypatch.setattr(inspect.getmodule(function), function.__name__, counted(function))
    figures = [*of_one_trial(), *of_trials(1), *of_trials(40), *of_a_search(), *of_the_cluster()]
    assert not left, "figures that are not built here"
    for figure in figures:
        assert figure["data"], figure["name"]
        go.Figure(
            {"data": figure["data"], "layout": figure["layout"]}
        )  # raises ValueError with what is wrong
        kinds = {each["type"] for each in figure["data"]}
        assert kinds <= {"scatter", "bar"} or kinds == {"heatmap"}, (
            "what plotly-basic and plotly-cartesian draw"
        )


def test_the_bundles_of_browsers_are_of_the_version_that_python_checks_with() -> None:
    root = Path(__file__).parents[2]
    pinned = json.loads((root / "deploy/npm/package.json").read_text())["dependencies"]
    wheel = (Path(plotly.__file__).parent / "package_data/plotly.min.js").open().read(40)
    for name in ("basic", "cartesian"):
        assert f"plotly.js v{pinned[f'plotly.js-{name}-dist-min']}\n" in wheel
