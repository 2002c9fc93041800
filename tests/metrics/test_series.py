"""Series and figures of reported metrics."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics import charts, chunks, ingest, reported, series
from metrics.models import Chunk, Group
from metrics.packing import Floats
from metrics.table import Column, Table

AT = 1_790_000_000.0


def report(trial: int, run: int, group: str, step: int, values: dict[str, object]) -> None:
    ingest.store(trial, [ingest.Report(run, group, step, AT, values)])


@given(st.lists(st.floats(width=32), max_size=400), st.integers(4, 60))
def test_the_envelope_keeps_every_extreme_gap_and_end(values: list[float], points: int) -> None:
    kept = series.envelope(np.array(values), points)
    assert list(kept) == sorted(set(kept.tolist())) and len(kept) <= max(points, 7)
    if not values:
        return
    assert kept[0] == 0 and kept[-1] == len(values) - 1
    left = [values[i] for i in kept]
    for odd in (math.isnan, math.inf.__eq__, (-math.inf).__eq__):
        assert any(map(odd, left)) == any(map(odd, values))
    numbers = [value for value in values if math.isfinite(value)]
    if numbers:
        kept_numbers = [value for value in left if math.isfinite(value)]
        assert min(kept_numbers) == min(numbers) and max(kept_numbers) == max(numbers)


@given(st.lists(st.floats(width=32), min_size=1, max_size=400), st.integers(8, 60), st.data())
def test_every_run_of_the_envelope_keeps_its_own_extremes(
    values: list[float], points: int, data: st.DataObject
) -> None:
    kept = series.envelope(np.array(values), points)
    longest = max(np.diff(kept), default=1)
    width = -(-len(values) // max(1, (points - 2) // 5))
    assert longest < 2 * width + 1  # no stretch is left out
    spike = data.draw(st.integers(0, len(values) - 1))
    values[spike] = 1e300
    assert spike in series.envelope(np.array(values), points)


def test_too_few_points_are_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="4 or more"):
        series.envelope(np.zeros(10), 3)


@pytest.mark.django_db
def test_many_trials_are_read_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for trial in range(1, 8):
        report(trial, 1, "training", 1, {"loss": float(trial)})
    asked, live = [], chunks.live

    def counted(where: str, parameters: Sequence[Any], *rest: Any) -> Iterator[chunks.Row]:
        asked.append(parameters[0])
        return live(where, parameters, *rest)

    monkeypatch.setattr(series, "_TOGETHER", 3)
    monkeypatch.setattr(chunks, "live", counted)
    found = series.each_of_trials([7, 6, 5, 4, 3, 2, 1], "training", "loss")
    assert [(pk, each.values[0]) for pk, each in found] == [(pk, pk) for pk in range(1, 8)]
    assert asked == [[1, 2, 3], [4, 5, 6], [7]]


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
    assert len(loss["data"][0]["x"]) < 200 and len(loss["data"][1]["x"]) == 1
    assert loss["data"][1] | {"x": [100], "y": [0.25]} == loss["data"][1]


def fill(trial: int, values: Floats) -> None:
    """Many reports at once, as a year of training leaves them."""
    group = Group.objects.create(
        trial_id=trial, name="training", reports=len(values), last_step=len(values) - 1
    )
    steps = np.arange(len(values))
    ones = np.ones(len(values), np.int64)
    column = Column(values, np.ones(len(values), np.bool_), {}, False)
    table = Table(steps, steps * 1_000_000, ones, {"loss": column})
    chunks.insert(group.pk, chunks.pieces(table, at_the_tail=True))


@pytest.mark.django_db
def test_a_million_points_show_their_spikes_gaps_and_restart() -> None:
    values = np.random.default_rng(0).normal(size=1_000_000)
    spikes = [0, 70_000, 123_456, 500_001, 777_777, 999_998]
    values[spikes] = 1e6
    values[[300_000, 900_000]] = -1e6
    values[640_000:640_010] = math.nan
    fill(1, values)
    ingest.archive_after(1, 999_000)
    again = [ingest.Report(2, "training", step, step, {"loss": 5e5}) for step in range(999_001, 1_000_000)]
    ingest.store(1, again)
    (loss,) = series.read(1, "training", ["loss"])
    assert loss.total == 1_000_000 and len(loss.steps) <= series.DEFAULT_POINTS and loss.is_reduced
    shown = dict(zip(loss.steps.astype(int).tolist(), loss.values.tolist(), strict=True))
    assert all(shown[spike] == 1e6 for spike in spikes[:-1]) and shown[300_000] == shown[900_000] == -1e6
    assert any(640_000 <= step < 640_010 and math.isnan(value) for step, value in shown.items())
    assert shown[999_999] == 5e5 and 999_998 not in {step for step, value in shown.items() if value == 1e6}
    assert np.array_equal(loss.times, loss.steps)  # a report a second


@pytest.mark.django_db
def test_a_zoom_reads_the_chunks_of_its_window_alone() -> None:
    fill(1, np.arange(10_000, dtype=np.float64))
    outside = Chunk.objects.exclude(first_step__range=(3000, 5000))
    outside.update(head=b"", data=b"")  # whoever read them would fail
    (loss,) = series.read(1, "training", ["loss"], first_step=3500, last_step=5200)
    assert loss.total == 1701 and (loss.steps[0], loss.steps[-1]) == (3500, 5200)
    assert series.names(1) == {"training": ["loss"]}


@pytest.mark.django_db
def test_a_curve_of_reports_keeps_extremes_of_each_metric_and_both_ends() -> None:
    batch = [
        ingest.Report(
            1,
            "training",
            step,
            AT + step,
            {"loss": float(step == 2222), "lr": -float(step == 3333), "at": "x"},
        )
        for step in range(5000)
    ]
    ingest.store(1, batch)
    table = reported.telling(1, "training", most=100)
    assert table
    steps = table.steps.tolist()
    assert len(table) <= 100 and {0, 2222, 3333, 4999} <= set(steps) and steps == sorted(steps)
    assert table.as_reported()[0] == {"loss": 0.0, "lr": 0.0, "at": "x"}
    assert len(reported.telling(1, "training", ["loss"], most=10) or ()) in range(1, 11)
    assert reported.telling(1, "training", ["none"], most=10) is None
