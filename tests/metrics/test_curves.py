"""Curves of charts: over any axis, inside a window, smoothed; what is reduced keeps every extreme of its window."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metrics import curves, ingest
from metrics.curves import Axis, CurveView, smoothed
from metrics.ingest import Report

BEGIN = 1_795_255_200.0


def reported(values: Sequence[float], trial: int, *, name: str = "loss", group: str = "training") -> None:
    """Value number n at step 10 n, n seconds after BEGIN."""
    ingest.store(
        trial, [Report(1, group, 10 * n, BEGIN + n, {name: value}) for n, value in enumerate(values)]
    )


def only(trial: int, view: CurveView, **more: int) -> curves.Curve:
    (found,) = curves.read(trial, "training", ["loss"], view, **more)
    return found


@pytest.mark.django_db
@given(
    values=st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=300),
    ends=st.tuples(st.integers(0, 299), st.integers(0, 299)),
    axis=st.sampled_from([Axis.STEP, Axis.RELATIVE, Axis.WALL]),
    points=st.integers(5, 60),
)
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_window_holds_its_extremes_its_ends_and_its_gaps(
    values: list[float], ends: tuple[int, int], axis: Axis, points: int
) -> None:
    trial = _fresh()
    reported(values, trial)
    first, last = min(ends), max(ends)
    scale, zero = {Axis.STEP: (10, 0.0), Axis.RELATIVE: (1, 0.0), Axis.WALL: (1, BEGIN)}[axis]
    view = CurveView(axis, zero + scale * first, zero + scale * last, points=points, begin=BEGIN)
    inside = np.array(values[first : last + 1])
    found = curves.read(trial, "training", ["loss"], view)
    if not len(inside):
        assert not found or found[0].total == 0
        return
    (curve,) = found
    assert curve.total == len(inside) and len(curve.x) <= max(points, 5)
    assert bool((np.diff(curve.x) > 0).all())
    assert curve.x[0] == zero + scale * first
    assert np.isnan(curve.y).any() == np.isnan(inside).any()
    if not np.isnan(inside).all():
        assert (np.nanmin(curve.y), np.nanmax(curve.y)) == (np.nanmin(inside), np.nanmax(inside))


_trials = iter(range(1000, 10_000))


def _fresh() -> int:
    return next(_trials)


@pytest.mark.django_db
def test_only_what_is_behind_a_step_is_read() -> None:
    reported([1.0, 2.0, 3.0, 4.0], 1)
    tail = only(1, CurveView(), after_step=10)
    assert (tail.x.tolist(), tail.y.tolist(), tail.total, tail.last_step) == ([20, 30], [3.0, 4.0], 2, 30)
    assert curves.read(1, "training", ["loss"], CurveView(), after_step=30) == []


@pytest.mark.django_db
def test_epochs_are_read_off_the_metric_of_that_name_also_for_other_groups() -> None:
    reported([0.0, 0.5, 1.0, 1.5], 1, name="epoch")
    ingest.store(1, [Report(1, "validation", 15, BEGIN, {"loss": 7.0})])
    clock = curves.clock(1, ["training", "validation"])
    assert clock is not None
    (found,) = curves.read(1, "validation", ["loss"], CurveView(Axis.EPOCH, 0.0, 1.0), clock=clock)
    assert (found.x.tolist(), found.y.tolist()) == ([0.75], [7.0])
    assert curves.clock(2, ["training"]) is None
    with pytest.raises(ValueError, match="has not reported the metric 'epoch'"):
        curves.read(1, "training", ["loss"], CurveView(Axis.EPOCH))


def test_smoothing_is_an_unbiased_moving_average_that_keeps_gaps() -> None:
    assert smoothed(np.array([5.0, 5.0, 5.0]), 0.9).tolist() == pytest.approx([5.0, 5.0, 5.0])
    assert smoothed(np.array([1.0, 2.0]), 0.0).tolist() == [1.0, 2.0]
    with_gaps = smoothed(np.array([2.0, math.nan, 4.0, math.inf, 4.0]), 0.5)
    assert np.isnan(with_gaps).tolist() == [False, True, False, True, False]
    assert with_gaps[[0, 2, 4]].tolist() == pytest.approx(smoothed(np.array([2.0, 4.0, 4.0]), 0.5).tolist())
    with pytest.raises(ValueError, match="between 0 and"):
        smoothed(np.array([1.0]), 1.0)


@pytest.mark.django_db
def test_a_smoothed_window_is_a_part_of_the_whole_smoothed_curve() -> None:
    values = np.random.default_rng(3).normal(size=200)
    reported(values.tolist(), 1)
    whole = only(1, CurveView(smoothing=0.8))
    part = only(1, CurveView(Axis.STEP, 500, 900, smoothing=0.8))
    inside = (whole.smooth_x >= 500) & (whole.smooth_x <= 900)
    assert part.smooth_y.tolist() == whole.smooth_y[inside].tolist()
    assert part.total == 41


@pytest.mark.django_db
def test_a_smoothed_line_goes_on_across_what_is_no_number_and_the_curve_keeps_the_gap() -> None:
    reported([2.0, math.nan, 4.0, math.inf, 4.0], 1)
    found = only(1, CurveView(smoothing=0.5))
    assert np.isfinite(found.y).tolist() == [True, False, True, False, True]
    assert found.smooth_x.tolist() == found.x[[0, 2, 4]].tolist()
    assert found.smooth_y.tolist() == pytest.approx(smoothed(np.array([2.0, 4.0, 4.0]), 0.5).tolist())


@given(st.lists(st.floats(), max_size=20))
@settings(max_examples=40, deadline=None)
def test_drawn_values_differ_by_less_than_anybody_sees(values: list[float]) -> None:
    found = curves.drawn(np.array(values, dtype=np.float64))
    finite = [value for value in values if math.isfinite(value)]
    spread = max(finite, default=0.0) - min(finite, default=0.0)
    for value, drawn in zip(values, found, strict=True):
        if drawn is None:
            assert not math.isfinite(value)
        else:
            assert math.isclose(value, drawn, rel_tol=1e-6)
            assert not spread or abs(value - drawn) <= 1e-6 * spread


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1 / 3, 2 / 3], [0.3333333, 0.6666667]),
        ([10 / 3, 1e-5 / 3], [3.333333, 3.333333e-06]),  # for an axis of logarithms
        ([1e9 + 0.1234567891, 1e9 + 0.2], [1e9 + 0.1234568, 1e9 + 0.2]),
        ([1234567891.0], [1234567891]),
        ([1234567.31, 1234567.31], [1234567.31, 1234567.31]),
        ([-123456789012.5, 0.5], [-123456789012.5, 0.5]),
        ([3.0, math.nan, math.inf], [3, None, None]),
        ([], []),
    ],
)
def test_a_chart_gets_the_digits_that_it_shows(values: list[float], said: list[float | None]) -> None:
    assert curves.drawn(np.array(values, dtype=np.float64)) == said
