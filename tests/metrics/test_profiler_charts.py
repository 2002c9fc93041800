"""What the charts of the Profiler page are made of: lines with their gaps and extremes, and where a step goes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics import sample_charts, step_figures
from metrics.samples import SampleSeries
from metrics.stragglers import edges_of
from metrics.timings import CountSeries, TimingSeries


def series(times: list[float], low: list[float], high: list[float]) -> SampleSeries:
    at, least, most = (np.array(values, dtype=np.float64) for values in (times, low, high))
    return SampleSeries("gpu1", "gpu_power", "GPU-1", at, least, most, (least + most) / 2, len(times))


def timing(name: str, seconds: list[float], *, rank: int = 0, first: int = 1, per: int = 10) -> TimingSeries:
    """Intervals of `per` steps, in which one step took so many seconds; from step `first` on."""
    steps = first - 1 + np.arange(1, len(seconds) + 1, dtype=np.float64) * per
    mean, count = np.array(seconds), np.full(len(seconds), float(per))
    return TimingSeries(
        rank, name, steps, mean, mean, mean * 2, mean * count, mean / 2, mean * 3, count,
        steps - per + 1, steps, len(seconds),
    )  # fmt: skip


def test_a_gap_of_samples_is_a_gap_of_the_line() -> None:
    line = sample_charts.line(series([0, 1, 2, 30, 31], [1] * 5, [3, 3, 3, 9, 3]))
    assert line.times.tolist() == [0, 1, 2, 16, 30, 31]
    assert np.isnan(line.mean).tolist() == [False, False, False, True, False, False]
    assert line.low is not None
    assert line.high is not None
    assert [line.gap, line.last, float(np.nanmax(line.high))] == [5, 31, 9]


def test_slow_samples_have_no_gaps_and_points_that_stand_for_themselves_no_band() -> None:
    line = sample_charts.line(series([0, 15, 30, 45], [7] * 4, [7] * 4))
    assert (line.mean.tolist(), line.low, line.high, line.gap) == ([7] * 4, None, None, 45)


@given(st.lists(st.floats(1e-3, 1e14), min_size=1, max_size=50))
def test_values_keep_six_digits(values: list[float]) -> None:
    times = [float(second) for second in range(len(values))]
    line = sample_charts.line(series(times, values, values))
    assert line.mean == pytest.approx(values, rel=1e-5)


def test_gpus_have_charts_for_each_host_and_hosts_without_them_none() -> None:
    columns = [
        ("gpu1", "gpu_util", "GPU-1"), ("gpu1", "gpu_util", "GPU-2"), ("gpu1", "cpu_util_simple", ""),
        ("gpu1", "rank_cpu", "0"), ("cpu1", "cpu_util_simple", ""),
    ]  # fmt: skip
    found = {chart.id: chart.lines for chart in sample_charts.charts(columns)}
    assert found == {
        "gpu_util@gpu1": [("gpu1", "GPU-1"), ("gpu1", "GPU-2")],
        "cpu_util_simple": [("gpu1", ""), ("cpu1", "")],
        "rank_cpu@gpu1": [("gpu1", "0")],
    }
    assert sample_charts.charts(columns, ["GPU-2"])[0].lines == [("gpu1", "GPU-2")]


@pytest.mark.parametrize("chart", ["", "power", "gpu_util", "cpu_util_simple@gpu1"])
def test_a_chart_that_cannot_be_is_refused(chart: str) -> None:
    with pytest.raises(ValueError, match="There is no sample chart"):
        sample_charts.parse(chart)


def test_a_step_is_divided_into_its_parts_and_the_rest() -> None:
    timed = [
        timing("step", [1.0, 2.0]), timing("step.work", [0.5, 0.5]), timing("load", [0.25, 1.0]),
        timing("train", [0.5, 0.5]), timing("train.backward", [0.375, 0.25]),
    ]  # fmt: skip
    edges = edges_of(timed, 120)
    stack = step_figures.stack(timed, edges)
    assert stack is not None
    assert {part["name"]: part["seconds"] for part in stack["parts"]} == {
        "load": [0.25, 1], "train.backward": [0.375, 0.25], "train, rest": [0.125, 0.25],
        step_figures.REST: [0.25, 0.5],
    }  # fmt: skip
    assert [part["name"] for part in stack["parts"]] == [
        "load",
        "train.backward",
        "train, rest",
        step_figures.REST,
    ]
    assert not stack["overlaps"]
    longer = step_figures.stack([*timed, timing("checkpoint", [3.0, 0.0001])], edges)
    assert longer is not None and longer["overlaps"]
    assert step_figures.stack(timed[2:], edges) is None


def test_the_mean_of_ranks_counts_each_rank_and_keeps_the_extremes() -> None:
    timed = [timing("step", [1.0, 1.0]), timing("step", [2.0, 4.0], rank=1)]
    edges = edges_of(timed, 120)
    stack = step_figures.stack(timed, edges)
    assert stack is not None
    assert stack["parts"][0]["seconds"] == [1.5, 2.5]
    (spread,) = step_figures.spreads(timed, edges)
    assert [spread[field] for field in ("low", "p50", "p95", "high")] == [
        [0.5, 0.5], [1.5, 2.5], [4, 8], [6, 12],
    ]  # fmt: skip


def test_rates_of_ranks_add_up() -> None:
    steps = np.array([10.0, 20.0])
    counts = [
        CountSeries(rank, "samples", steps, steps, np.array([100.0, 50.0]), np.array([5.0, 10.0]), 2)
        for rank in (0, 1)
    ]
    (rate,) = step_figures.rates(counts, np.array([1.0, 11.0, 21.0]))
    assert rate["values"] == [200, 100]
