"""The writer of reported metrics, on PostgreSQL."""

import itertools
import math
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metrics import chunks, ingest, reported, series
from metrics.models import Chunk, Group
from metrics.values import storable

pytestmark = pytest.mark.django_db
AT = 1_790_000_000.25


def report(
    trial: int, run: int, group: str, steps: int, values: Mapping[str, Any], at: float = AT
) -> list[str]:
    stored = ingest.store(trial, [ingest.Report(run, group, steps, at, values)])
    return [name for _, _, name in stored.refused]


def live_values(steps: int, group: str = "training") -> object:
    (found,) = reported.read([1], [group], first_step=steps, last_step=steps)
    return found.values


def live_steps(group: str = "training") -> list[int]:
    return [each.steps_completed for each in reported.read([1], [group])]


def test_a_repeated_report_is_stored_once() -> None:
    assert report(1, 1, "training", 5, {"loss": 0.5}) == []
    assert report(1, 1, "training", 5, {"loss": 0.5}) == []
    assert live_steps() == [5]


def test_reports_of_one_step_merge_and_a_standing_value_is_kept() -> None:
    report(1, 1, "training", 5, {"loss": 0.5})
    report(1, 1, "training", 5, {"accuracy": 0.9})
    assert report(1, 1, "training", 5, {"loss": 0.7, "lr": 0.1}) == ["loss"]
    assert live_values(5) == {"loss": 0.5, "accuracy": 0.9, "lr": 0.1}


def test_reports_of_one_step_that_come_together_merge_alike() -> None:
    together = [{"loss": 0.5}, {"accuracy": 0.9}, {"loss": 0.7, "lr": 0.1}]
    stored = ingest.store(1, [ingest.Report(1, "training", 5, AT, values) for values in together])
    assert stored.refused == [("training", 5, "loss")]
    assert live_values(5) == {"loss": 0.5, "accuracy": 0.9, "lr": 0.1}


def test_a_later_run_replaces_what_an_earlier_one_reported() -> None:
    report(1, 1, "training", 5, {"loss": 0.5, "old": 1})
    assert report(1, 2, "training", 5, {"loss": 0.4}) == []
    assert report(1, 1, "training", 5, {"loss": 0.5}) == ["loss"]
    assert live_values(5) == {"loss": 0.4, "old": 1}


def test_what_lies_beyond_the_checkpoint_is_put_aside_and_may_be_reported_anew() -> None:
    for steps in (10, 20, 30):
        report(1, 1, "training", steps, {"loss": steps})
    assert ingest.archive_after(1, 10) == 2
    assert ingest.archive_after(1, 10) == 0
    report(1, 2, "training", 20, {"loss": 2})
    assert live_values(20) == {"loss": 2} and live_steps() == [10, 20]
    assert sum(Chunk.objects.filter(archived=True).values_list("reports", flat=True)) == 2
    assert Group.objects.values_list("reports", "last_step").get() == (2, 20)


def test_a_restart_from_the_beginning_leaves_nothing_and_a_group_anew() -> None:
    report(1, 1, "training", 1, {"loss": 1})
    assert ingest.archive_after(1, 0) == 1
    assert live_steps() == [] and series.groups(1) == [] and series.read(1, "training") == []
    report(1, 2, "training", 1, {"loss": 2})
    assert live_values(1) == {"loss": 2}


def test_what_came_is_given_back_whatever_it_was() -> None:
    odd = {
        "nan": math.nan,
        "inf": -math.inf,
        "deep": {"er": {"x": 1}},
        "text": "nul\x00 \ud800",
        "list": [math.inf],
        "truth": True,
        "null": None,
        "large": 2**80,
        "numpy": np.float32(0.5),
        "long": np.int64(7),
        "third": 1 / 3,
    }
    report(1, 1, "custom\x00", 1, odd)
    (found,) = reported.read([1])
    assert found.values == {
        "nan": "NaN",
        "inf": "-Infinity",
        "deep.er.x": 1,
        "text": "nul\ufffd \ufffd",
        "list": ["Infinity"],
        "truth": True,
        "null": None,
        "large": 2**80,
        "numpy": 0.5,
        "long": 7,
        "third": 1 / 3,
    }
    assert type(found.values["deep.er.x"]) is int and found.values["truth"] is True
    assert found.group == "custom\ufffd" and found.reported_at.timestamp() == AT
    curves = {each.name: each.values.tolist() for each in series.read(1, "custom\ufffd")}
    assert curves.keys() == {"nan", "inf", "deep.er.x", "truth", "large", "numpy", "long", "third"}
    assert curves["inf"] == [-math.inf] and curves["truth"] == [1.0]


def test_small_chunks_are_filled_up_however_the_reports_come() -> None:
    rng = np.random.default_rng(0)
    step = 0
    while step < 6000:
        count = int(rng.integers(1, 90))
        batch = [
            ingest.Report(1, "training", step + n, AT + n, {"loss": float(step + n)}) for n in range(count)
        ]
        ingest.store(1, batch)
        step += count
    sizes = list(Chunk.objects.order_by("first_step").values_list("reports", flat=True))
    assert sum(sizes) == step and sizes.count(chunks.FULL) >= step // chunks.FULL - 1 and len(sizes) <= 16
    (loss,) = series.read(1, "training", points=step)
    assert loss.values.tolist() == list(range(step)) == loss.steps.tolist()


def test_reports_that_come_late_find_their_place() -> None:
    order = np.random.default_rng(1).permutation(3000).tolist()
    for start in range(0, 3000, 300):
        ingest.store(
            1, [ingest.Report(1, "training", n, AT, {"loss": float(n)}) for n in order[start : start + 300]]
        )
    (loss,) = series.read(1, "training", points=3000)
    assert loss.values.tolist() == list(range(3000)) == loss.steps.tolist()
    spans = list(Chunk.objects.order_by("first_step").values_list("first_step", "last_step", "reports"))
    assert all(before[1] < after[0] for before, after in itertools.pairwise(spans))
    assert max(count for _, _, count in spans) <= chunks.FULL
    assert Group.objects.values_list("reports", "last_step").get() == (3000, 2999)


STEPS = st.integers(0, 12)
VALUES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.one_of(st.floats(), st.integers(-5, 5), st.text(max_size=2)),
    max_size=3,
)
REPORTS = st.lists(st.lists(st.tuples(STEPS, VALUES), max_size=8), max_size=6)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(REPORTS, st.integers(1, 4))
def test_batches_in_any_order_leave_what_reports_one_by_one_would(
    batches: list[list[tuple[int, dict[str, Any]]]], full: int
) -> None:
    Group.objects.filter(trial_id=1).delete()
    expected: dict[int, dict[str, Any]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "FULL", full)
        for batch in batches:
            ingest.store(1, [ingest.Report(1, "g", step, AT, values) for step, values in batch])
            for step, values in batch:
                expected[step] = {**values, **expected.get(step, {})}
    found = {each.steps_completed: each.values for each in reported.read([1], ["g"])}
    assert found == {step: storable(values) for step, values in expected.items()}


@pytest.mark.django_db(transaction=True)
def test_ranks_that_report_one_step_at_once_all_get_their_keys_in() -> None:
    def send(rank: int) -> None:
        try:
            for steps in range(10):
                report(1, 1, "training", steps, {f"loss.{rank}": rank})
        finally:
            connection.close()

    senders = [threading.Thread(target=send, args=(rank,)) for rank in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(60)
    assert live_steps() == list(range(10))
    assert all(
        each.values == {f"loss.{rank}": rank for rank in range(4)}
        for each in reported.read([1], ["training"])
    )
