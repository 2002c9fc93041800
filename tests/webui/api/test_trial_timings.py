"""Timings of a trial over REST: columns by rank, and who is slow."""

from __future__ import annotations

import pytest

from experiments.models import Trial
from jobs.models import Allocation
from metrics import timing_store
from tests.rig.api import Api, Cast

Running = tuple[Trial, Allocation, Api]


@pytest.fixture
def timed(running: Running) -> Trial:
    """Two ranks in step, of which rank 1 works twice as long."""
    trial = running[0]
    for rank, work in ((0, 0.25), (1, 0.5)):
        for step in range(1, 11):
            rows = {"step": 0.5, "step.work": work, "train_batch": work / 2}
            values = {name: {"n": 1, **dict.fromkeys(["sum", "min", "max", "p50", "p95"], seconds)}
                      for name, seconds in rows.items()}  # fmt: skip
            record = {
                "r": rank,
                "t": [1e9 + step, 1e9 + step + 0.5],
                "s": [step, step],
                "v": values,
                "c": {"samples": 8},
            }
            timing_store.store(trial.task_id, f"gpu{rank}", [record])
    return trial


def test_timings_are_columns_by_rank_with_a_summary_and_the_slow_rank(cast: Cast, timed: Trial) -> None:
    found = cast.vic.get(f"trials/{timed.pk}/timings?points=5")
    assert found["ranks"] == [{"rank": 0, "host": "gpu0"}, {"rank": 1, "host": "gpu1"}]
    assert [(one["rank"], one["name"]) for one in found["series"]] == [
        (rank, name) for rank in (0, 1) for name in ("step", "step.work", "train_batch")
    ]
    step = found["series"][0]
    assert step["steps"] == [2, 4, 6, 8, 10] and step["firstSteps"] == [1, 3, 5, 7, 9] and step["total"] == 10
    assert step["mean"] == step["p50"] == step["p95"] == [0.5] * 5 and step["seconds"] == [1.0] * 5
    assert found["counts"][0]["perSecond"] == [16.0] * 5
    assert found["throughput"] == [{"name": "samples", "perSecond": 32.0}]
    assert [(row["name"], row["count"], row["share"]) for row in found["summary"]] == [
        ("step", 20, 1.0), ("step.work", 20, 0.75), ("train_batch", 20, 0.375),
    ]  # fmt: skip
    assert found["work"]["ranks"] == [0, 1]
    assert found["work"]["seconds"] == [[0.25] * 10, [0.5] * 10]
    slow = found["straggler"]
    assert (slow["rank"], slow["host"], slow["isSlow"]) == (1, "gpu1", True)
    assert (slow["work"], slow["medianWork"], slow["lostSeconds"], slow["lostShare"]) == (0.5, 0.25, 2.5, 0.5)


def test_names_ranks_and_steps_choose(cast: Cast, timed: Trial) -> None:
    path = f"trials/{timed.pk}/timings"
    chosen = cast.vic.get(f"{path}?names=step&names=train_batch&ranks=1&firstStep=3&lastStep=4")["series"]
    assert [(one["rank"], one["name"], one["steps"]) for one in chosen] == [
        (1, "step", [3, 4]), (1, "train_batch", [3, 4]),
    ]  # fmt: skip
    bare = cast.vic.get(f"{path}?points=0&lastStep=1")
    assert "series" not in bare and bare["summary"][0]["count"] == 2


def test_a_trial_without_timings_has_empty_lists(cast: Cast, running: Running) -> None:
    found = cast.vic.get(f"trials/{running[0].pk}/timings")
    assert found == {"ranks": [], "summary": [], "throughput": [], "series": [], "counts": []}


@pytest.mark.parametrize("query", ["points=-1", "points=2001", "ranks=x", "firstStep=-1"])
def test_a_wrong_query_gets_a_sentence(cast: Cast, running: Running, query: str) -> None:
    status, sentence = cast.vic.refused("GET", f"trials/{running[0].pk}/timings?{query}")
    assert status == 400 and query.split("=")[0] in sentence


def test_timings_of_others_are_not_a_runs_to_read(cast: Cast, running: Running) -> None:
    trial, _, run = running
    assert run.get(f"trials/{trial.pk}/timings")["series"] == []
    assert run.refused("GET", f"trials/{trial.pk + 1}/timings")[0] == 404
    assert cast.stranger.refused("GET", f"trials/{trial.pk}/timings")[0] == 401
