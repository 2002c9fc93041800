"""Series and figures of reported metrics."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics import charts, ingest, series

AT = 1_790_000_000.0


def report(trial: int, run: int, group: str, step: int, values: dict[str, object]) -> None:
    ingest.store(trial, [ingest.Report(run, group, step, AT, values)])


@given(st.lists(st.floats(width=32), max_size=400), st.integers(4, 60))
def test_the_envelope_keeps_every_extreme_gap_and_end(values: list[float], points: int) -> None:
    kept = series.envelope(np.array(values), points)
    assert list(kept) == sorted(set(kept.tolist())) and len(kept) <= max(points, 5)
    if not values:
        return
    assert kept[0] == 0 and kept[-1] == len(values) - 1
    left = [values[i] for i in kept]
    numbers = [value for value in values if not math.isnan(value)]
    assert any(map(math.isnan, left)) == (len(numbers) < len(values))
    if numbers:
        kept_numbers = [value for value in left if not math.isnan(value)]
        assert min(kept_numbers) == min(numbers) and max(kept_numbers) == max(numbers)


def test_too_few_points_are_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="4 or more"):
        series.envelope(np.zeros(10), 3)


@pytest.mark.django_db
def test_series_come_in_order_of_steps_without_what_was_archived() -> None:
    for step in (30, 10, 20):
        report(1, 1, "training", step, {"loss": step / 10, "note": "text", "odd": math.nan})
    ingest.archive_after(1, 20)
    report(1, 2, "training", 25, {"loss": 9})
    loss, odd = series.read(1, "training")
    assert loss.name == "loss" and loss.steps.tolist() == [10, 20, 25] and loss.values.tolist() == [1, 2, 9]
    assert np.isnan(odd.values).all() and not loss.is_reduced
    assert series.read(1, "training", ["loss"], first_step=15, last_step=20)[0].steps.tolist() == [20]
    assert series.read(1, "training", ["none"]) == [] and series.groups(1) == ["training"]


@pytest.mark.django_db
def test_figures_are_json_and_the_searchers_metric_comes_first() -> None:
    for step in range(200):
        values = {"accuracy": step, "loss": 1e9 if step == 137 else math.inf if step == 3 else 0.5}
        report(1, 1, "training", step, values)
    report(1, 1, "validation", 100, {"val_loss": 0.25})
    figures = charts.trial_figures(1, highlight="val_loss", points=50)
    assert [figure["name"] for figure in figures] == ["loss", "accuracy"]
    loss = json.loads(json.dumps(figures[0], allow_nan=False))
    names = [trace["name"] for trace in loss["data"]]
    assert names[0].startswith("training loss (") and names[0].endswith(" of 200 points)")
    assert names[1] == "validation val_loss"
    assert 1e9 in loss["data"][0]["y"] and None in loss["data"][0]["y"]
    assert loss["points"] < loss["total"] == 201
    assert loss["data"][1] | {"x": [100], "y": [0.25]} == loss["data"][1]
