"""Charts over the hyperparameters of a search: axes, importance, what is kept of many trials."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from metrics import hparam_charts, parallel_chart
from metrics.hparam_axes import Axis, Bounds, Kind, axes, flat
from metrics.sweep import MOST_DRAWN, Sweep, sweep

SPECS = {
    "lr": {"type": "log", "base": 10, "minval": -5, "maxval": -1},
    "net": {"depth": {"type": "int", "minval": 1, "maxval": 9}, "kind": {"type": "categorical", "vals": ["a", "b"]}},
    "batch": {"type": "categorical", "vals": [128, 16]},
    "seed": 7,
}  # fmt: skip


def drawn(count: int) -> list[dict[str, Any]]:
    chance = random.Random(3)
    return [
        flat(
            {
                "lr": 10 ** chance.uniform(-5, -1),
                "net": {"depth": chance.randint(1, 9), "kind": chance.choice("ab")},
                "batch": chance.choice([16, 128]),
                "seed": 7,
            }
        )
        for _ in range(count)
    ]


def judged(tried: list[dict[str, Any]]) -> Sweep:
    """The metric has its best in the middle of the range of lr, and nothing else counts."""
    rows = [(pk, abs(math.log10(hparams["lr"]) + 3), hparams) for pk, hparams in enumerate(tried, start=1)]
    return sweep("loss", True, rows, len(rows))


def test_axes_are_what_varies_numbers_by_their_scale_and_categories_in_order() -> None:
    found = axes(SPECS, drawn(50))
    assert [(axis.name, axis.kind) for axis in found] == [
        ("batch", Kind.CATEGORY), ("lr", Kind.LOG), ("net.depth", Kind.NUMBER), ("net.kind", Kind.CATEGORY),
    ]  # fmt: skip
    assert found[0].categories == ("16", "128")
    tried = [{"lr": 0.01}, {"lr": 0}, {}, {"lr": True}]
    assert found[1].places(tried)[0] == pytest.approx(-2) and np.isnan(found[1].places(tried)[1:]).all()
    assert axes({}, [{"x": 1}, {"x": "one"}])[0].kind == Kind.CATEGORY, "not all are numbers"


def test_ranks_and_effect_sizes_are_those_of_textbooks() -> None:
    """H is 7.14299 with the correction for ties, rho -29/165 (the example of IQ and hours of television)."""
    values = np.array([
        6.4, 6.8, 7.2, 8.3, 8.4, 9.1, 9.4, 9.7, 2.5, 3.7, 4.9, 5.4, 5.9, 8.1, 8.2, 8.3,
        1.3, 4.1, 4.9, 5.2, 5.5, 8.2, 8.3, 8.4,
    ])  # fmt: skip
    groups = np.repeat(np.arange(3), 8)
    assert hparam_charts.epsilon_squared(groups, values) == pytest.approx((7.142989533 - 2) / 21)
    iq = np.array([106, 86, 100, 101, 99, 103, 97, 113, 112, 110], np.float64)
    hours = np.array([7, 0, 27, 50, 28, 29, 20, 12, 6, 17], np.float64)
    assert hparam_charts.spearman(iq, hours) == pytest.approx(-29 / 165)
    assert hparam_charts.spearman(iq, np.ones(10)) is None
    assert hparam_charts.epsilon_squared(np.zeros(24, np.int64), values) == 0


def test_an_optimum_in_the_middle_is_important_although_nothing_grows_with_it() -> None:
    tried = drawn(200)
    found = hparam_charts.importances(judged(tried), axes(SPECS, tried))
    assert found[0].name == "lr" and found[0].share > 0.7 and abs(found[0].rho or 0) < 0.3
    assert all(each.share < 0.1 for each in found[1:])
    assert hparam_charts.importance_bars(judged(tried[:5]), axes(SPECS, tried[:5])) is None, (
        "of too few nothing is said"
    )


def test_trials_without_a_number_are_counted_and_left_out_and_the_best_of_many_are_drawn() -> None:
    nan = float("nan")
    few = sweep("loss", False, [(1, 0.5, {}), (2, nan, {}), (3, 0.9, {}), (4, None, {})], 4)
    assert few.trials.tolist() == [3, 1] and few.note == "2 of 4 trials"
    many = judged(drawn(MOST_DRAWN + 10))
    figure = hparam_charts.scatter(many, Axis("lr", Kind.LOG), is_log=False)
    assert [len(trace["x"]) for trace in figure["data"]] == [MOST_DRAWN - 1, 1]
    assert figure["note"] == "the best 3,000 of 3,010 trials"
    assert figure["layout"]["xaxis"]["type"] == "log"


def test_maps_hold_every_trial_once_and_their_tables_say_the_same() -> None:
    tried = drawn(120)
    maps = hparam_charts.heat_maps(judged(tried), axes(SPECS, tried))
    assert len(maps) == 6
    for each in maps:
        assert sum(map(sum, each["data"][0]["customdata"])) == 120
        assert sum(int(row[-1]) for row in each["table"]["rows"]) == 120


def test_what_is_brushed_keeps_the_trials_inside_and_leaves_the_others_faint() -> None:
    tried = drawn(60)
    of, along = judged(tried), axes(SPECS, tried)
    brushed = {"lr": Bounds(1e-4, 1e-2), "net.kind": Bounds(among=frozenset({"a"}))}
    kept = [trial for trial in tried if 1e-4 <= trial["lr"] <= 1e-2 and trial["net.kind"] == "a"]
    figure = parallel_chart.figure(of, along, brushed, is_log=False)
    assert len(figure["table"]["rows"]) == len(kept) > 0
    assert figure["note"] == f"{len(kept)} of 60 trials selected"
    faint, *colored, best = figure["data"]
    lines = [len(trace["x"]) // (len(along) + 2) for trace in (faint, *colored)]
    assert lines[0] == 60 - len(kept) and sum(lines[1:]) == len(kept)
    assert set(best["customdata"]) == {figure["table"]["rows"][0][0]}
    heights = [y for trace in figure["data"] for y in trace["y"] if y is not None]
    assert min(heights) >= 0 and max(heights) <= 1
    rects = [shape for shape in figure["layout"]["shapes"] if shape["type"] == "rect"]
    assert len(rects) == 2
    by_metric = parallel_chart.figure(of, along, {parallel_chart.METRIC: Bounds(high=0.0)}, is_log=False)
    assert by_metric["table"]["rows"] == []
