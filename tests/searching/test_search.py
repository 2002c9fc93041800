"""Searchers as people use them: events in, operations out, the state through JSON each time."""

import json
import math
from typing import Any

import pytest

import searching
from searching import (
    BadSearch,
    Create,
    ExitReason,
    Promote,
    Shutdown,
    Stop,
    TrialExited,
    ValidationReported,
    halving,
    rungs,
)

LR = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}, "batch": 32}
MIXED = {
    "lr": {"type": "log", "base": 10.0, "minval": -4, "maxval": -1},
    "net": {
        "layers": {"type": "int", "minval": 1, "maxval": 4},
        "act": {"type": "categorical", "vals": ["relu", None]},
    },
    "seed": {"type": "const", "val": 7},
}


def stored(state: dict[str, Any]) -> dict[str, Any]:
    """As a JSON column gives it back: names in another order."""
    return json.loads(
        json.dumps(state, allow_nan=False), object_pairs_hook=lambda pairs: dict(sorted(pairs)[::-1])
    )


def feed(state: dict[str, Any], event: searching.Event) -> tuple[dict[str, Any], list[Any]]:
    return searching.on_event(stored(state), event)


def created(operations: list[Any]) -> list[Create]:
    return [operation for operation in operations if isinstance(operation, Create)]


def run(searcher: dict[str, Any], hparams: dict[str, Any], seed: int = 1, steps: int = 10) -> dict[str, Any]:
    """Runs a whole search, one trial after the other; what became of it."""
    state, operations = searching.start(searcher, hparams, seed)
    waiting, lengths, most, end = created(operations), {}, len(created(operations)), None
    while waiting:
        trial = waiting.pop(0)
        for step in range(1, steps + 1):
            lengths[trial.request_id] = step
            state, operations = feed(
                state, ValidationReported(trial.request_id, trial.hparams.get("lr", 0), step)
            )
            waiting += created(operations)
            if Stop(trial.request_id) in operations:
                break
        state, operations = feed(state, TrialExited(trial.request_id, ExitReason.COMPLETED))
        waiting += created(operations)
        most = max(most, len(waiting))
        end = next((o for o in operations if isinstance(o, Shutdown)), end)
    return {"state": state, "lengths": list(lengths.values()), "most": most, "end": end}


def test_a_single_search_makes_one_trial_and_ends_with_it() -> None:
    state, operations = searching.start({"name": "single", "metric": "loss"}, LR, 5)
    [trial] = created(operations)
    assert trial.hparams["batch"] == 32 and 0 <= trial.hparams["lr"] <= 1
    assert feed(state, ValidationReported(trial.request_id, 0.5, 100))[1] == []
    state, operations = feed(state, TrialExited(trial.request_id, ExitReason.COMPLETED))
    assert operations == [Shutdown()]
    assert searching.progress(state) == 1.0


@pytest.mark.parametrize(
    ("reason", "end"),
    [(ExitReason.ERRORED, Shutdown(failure=True)), (ExitReason.CANCELED, Shutdown(cancel=True))],
)
def test_a_single_search_ends_as_its_trial_ends(reason: ExitReason, end: Shutdown) -> None:
    state, operations = searching.start({"name": "single", "max_length": 200}, LR, 5)
    trial = created(operations)[0].request_id
    state, _ = feed(state, ValidationReported(trial, 0.5, 50))
    state, operations = feed(state, TrialExited(trial, reason))
    assert operations == [end]
    assert searching.progress(state) == 0.25 and searching.progress(state, {trial: 0.3}) == 0.3, (
        "as far as it came"
    )


def test_an_event_told_twice_changes_nothing() -> None:
    state, operations = searching.start(
        {"name": "random", "max_trials": 5, "max_concurrent_trials": 2}, LR, 5
    )
    event = TrialExited(created(operations)[0].request_id, ExitReason.COMPLETED)
    state, operations = feed(state, event)
    assert len(created(operations)) == 1
    assert feed(state, event) == (stored(state), [])


def test_random_keeps_max_concurrent_trials_and_makes_max_trials() -> None:
    result = run({"name": "random", "max_trials": 40, "max_concurrent_trials": 3}, LR)
    assert (len(result["lengths"]), result["most"], result["end"]) == (40, 3, Shutdown())
    _, operations = searching.start({"name": "random", "max_trials": 40, "max_concurrent_trials": 0}, LR, 1)
    assert len(created(operations)) == 40


def test_the_same_seed_gives_the_same_trials_and_another_seed_others() -> None:
    search = {"name": "random", "max_trials": 20}
    assert searching.start(search, MIXED, 3)[1] == searching.start(search, stored(MIXED), 3)[1]
    assert searching.start(search, MIXED, 3)[1] != searching.start(search, MIXED, 4)[1]


def test_samples_lie_in_their_ranges_and_keep_their_nesting() -> None:
    trials = created(
        searching.start({"name": "random", "max_trials": 200, "max_concurrent_trials": 0}, MIXED, 9)[1]
    )
    assert {trial.hparams["net"]["layers"] for trial in trials} == {1, 2, 3, 4}
    assert {trial.hparams["net"]["act"] for trial in trials} == {"relu", None}
    assert all(1e-4 <= trial.hparams["lr"] <= 1e-1 and trial.hparams["seed"] == 7 for trial in trials)
    assert len({trial.request_id for trial in trials}) == 200


def test_a_grid_takes_every_point_once_with_both_ends() -> None:
    hparams = {
        "lr": {"type": "log", "base": 10, "minval": -2, "maxval": 0, "count": 3},
        "layers": {"type": "int", "minval": 1, "maxval": 3, "count": 9},
        "drop": {"type": "double", "minval": 0, "maxval": 1, "count": 2},
        "act": {"type": "categorical", "vals": ["a", "b"]},
        "fixed": 5,
    }
    trials = created(searching.start({"name": "grid", "max_concurrent_trials": 0}, hparams, 1)[1])
    points = [tuple(trial.hparams[name] for name in ("lr", "layers", "drop", "act")) for trial in trials]
    assert len(points) == len(set(points)) == 3 * 3 * 2 * 2
    assert {point[0] for point in points} == {0.01, 0.1, 1}
    assert {point[1] for point in points} == {1, 2, 3}
    assert {point[2] for point in points} == {0, 1}


def test_a_grid_in_turns_still_takes_every_point_once() -> None:
    hparams = {"x": {"type": "int", "minval": 0, "maxval": 24, "count": 25}}
    result = run({"name": "grid", "max_concurrent_trials": 4}, hparams)
    assert (len(result["lengths"]), result["most"]) == (25, 4)


def test_an_invalid_sample_is_replaced_in_a_random_search_but_not_without_end() -> None:
    state, operations = searching.start(
        {"name": "random", "max_trials": 2, "max_concurrent_trials": 1}, LR, 1
    )
    first = created(operations)[0]
    state, operations = feed(state, TrialExited(first.request_id, ExitReason.INVALID_HP))
    assert created(operations)[0].hparams != first.hparams
    made = 2
    while operations != [Shutdown(failure=True)]:
        state, operations = feed(state, TrialExited(created(operations)[0].request_id, ExitReason.INVALID_HP))
        made += 1
    assert made <= 110
    state, operations = searching.start({"name": "single"}, {"batch": 1}, 1)
    state, operations = feed(state, TrialExited(created(operations)[0].request_id, ExitReason.INVALID_HP))
    assert operations == [Shutdown(failure=True)]


@pytest.mark.parametrize(
    ("searcher", "hparams", "sentence"),
    [
        ({"name": "pbt"}, {}, "searcher.name: found 'pbt'"),
        ({"name": "random"}, {}, "searcher.max_trials: found None, allowed: 1 or more"),
        ({"name": "single"}, {"a": {"b": {"type": "intt"}}}, "hyperparameters.a.b.type: found 'intt'"),
        ({"name": "single"}, {"a": {"type": "int", "minval": 3, "maxval": 1}}, "less than maxval (1)"),
        ({"name": "single"}, {"a": {"type": "int", "minval": 0.5, "maxval": 1}}, "a whole number"),
        (
            {"name": "single"},
            {"a": {"type": "log", "base": 0, "minval": 0, "maxval": 1}},
            "a number greater than 0",
        ),
        ({"name": "single"}, {"a": {"type": "categorical", "vals": []}}, "a list with at least one value"),
        ({"name": "grid"}, {"a": {"type": "int", "minval": 0, "maxval": 1}}, "hyperparameters.a.count"),
        ({"name": "single"}, {"a": {"type": "double", "minval": 0, "maxval": math.inf}}, "a.maxval"),
        ({"name": "single"}, {"a": {"type": "log", "base": 10, "minval": 0, "maxval": 400}}, "a.maxval"),
        ({"name": "single"}, {"a": {"type": "log", "base": 10, "minval": 0, "maxval": 1e9}}, "a.maxval"),
        ({"name": "grid"}, {"a": {**LR["lr"], "count": 10**12}}, "at most 100,000 trials"),
        ({"name": "random", "max_trials": 10**9}, LR, "at most 100,000 trials"),
        (
            {"name": "random", "max_trials": 50_000, "max_concurrent_trials": 0},
            LR,
            "at most 2,000 trials at once",
        ),
        ({"name": "async_halving", "max_trials": 9, "num_rungs": 10**9}, LR, "at most 100 rungs"),
        ({"name": "adaptive_asha", "max_trials": 9, "max_length": 9, "divisor": 1e200}, LR, "at most 1,000"),
        ({"name": "adaptive_asha", "max_trials": 9, "bracket_rungs": [1, 101]}, LR, "at most 100 rungs each"),
    ],
)
def test_a_bad_search_is_refused_with_the_field_and_what_is_allowed(
    searcher: dict[str, Any], hparams: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadSearch, match="found") as refusal:
        searching.start(searcher, hparams, 1)
    assert sentence in str(refusal.value)


HALVING = {
    "name": "async_halving",
    "num_rungs": 3,
    "divisor": 3,
    "max_length": {"batches": 9},
    "max_trials": 27,
    "stop_once": True,
}


def test_halving_stops_the_worse_and_lets_the_best_run_to_the_end() -> None:
    result = run({**HALVING, "max_concurrent_trials": 1}, LR, steps=9)
    assert len(result["lengths"]) == 27
    assert set(result["lengths"]) <= {1, 3, 9}
    assert result["lengths"].count(1) > result["lengths"].count(3) > 0
    assert result["lengths"].count(9) >= 1
    assert result["end"] == Shutdown()


def test_a_larger_metric_wins_when_it_should() -> None:
    searcher = {**HALVING, "smaller_is_better": False, "max_concurrent_trials": 2, "max_trials": 2}
    state, operations = searching.start(searcher, LR, 1)
    one, two = created(operations)
    state, operations = feed(state, ValidationReported(one.request_id, 0.1, 1))
    assert operations == [Promote(one.request_id)]
    state, operations = feed(state, ValidationReported(two.request_id, 0.9, 1))
    assert operations == [Promote(two.request_id)]
    state, operations = feed(state, ValidationReported(two.request_id, float("nan"), 3))
    assert operations == [Promote(two.request_id)], "the first at a rung goes on"


def promoted_of(searcher: dict[str, Any], metrics: list[float]) -> list[int]:
    """Which trials, by the order in which they report, pass the first rung at once."""
    searcher = {**searcher, "max_trials": len(metrics), "max_concurrent_trials": len(metrics)}
    state, operations = searching.start(searcher, LR, 1)
    passed = []
    for number, (trial, metric) in enumerate(zip(created(operations), metrics, strict=True)):
        state, operations = feed(state, ValidationReported(trial.request_id, metric, 1))
        if Promote(trial.request_id) in operations:
            passed.append(number)
    return passed


def test_the_share_of_a_rung_is_promoted_if_all_metrics_are_equal() -> None:
    nan = float("nan")
    assert promoted_of(HALVING, [0.5] * 9) == [0, 5, 8], "one of three, the first at once"
    assert promoted_of(HALVING, [0.5] * 3 + [0.1] + [0.5] * 5) == [0, 3, 8], "behind the better one"
    assert promoted_of(HALVING, [0.5, 0.4, 0.3, 0.2, 0.6, 0.7]) == [0, 1, 2, 3]
    assert promoted_of(HALVING, [nan] * 9) == [0], "a metric that is not a number is the worst"


def test_equal_trials_are_listed_oldest_first_at_the_last_rung() -> None:
    searcher = {**HALVING, "num_rungs": 2, "max_trials": 6, "max_concurrent_trials": 6}
    state, operations = searching.start(searcher, LR, 1)
    passed = trials = [each.request_id for each in created(operations)]
    for length in (3, 9):
        for trial in passed:
            state, operations = feed(state, ValidationReported(trial, 0.5, length))
        passed = [e.request_id for e in rungs.tree(state)[0].rungs[0].entries if e.outcome == "promoted"]
    assert passed == [trials[0], trials[5]]
    assert [entry.request_id for entry in rungs.tree(state)[0].rungs[1].entries] == passed


def test_a_trial_that_fails_before_its_first_rung_is_followed_by_another() -> None:
    state, operations = searching.start({**HALVING, "max_concurrent_trials": 1, "max_trials": 3}, LR, 1)
    for left in (1, 1, 0):
        state, operations = feed(state, TrialExited(created(operations)[0].request_id, ExitReason.ERRORED))
        assert len(created(operations)) == left
    assert operations == [Shutdown(failure=True)]


def test_exact_powers_count_exactly() -> None:
    searcher = {
        "name": "adaptive_asha",
        "divisor": 3,
        "max_rungs": 9,
        "mode": "aggressive",
        "max_trials": 243,
    }
    [bracket] = halving.brackets({**searcher, "max_length": 243})
    assert [rung["units"] for rung in bracket["rungs"]] == [1, 3, 9, 27, 81, 243]


def test_the_modes_of_adaptive_make_their_brackets() -> None:
    searcher = {"name": "adaptive_asha", "divisor": 4, "max_rungs": 5, "max_trials": 1000, "max_length": 1024}
    rungs = {
        mode: [len(bracket["rungs"]) for bracket in halving.brackets({**searcher, "mode": mode})]
        for mode in ("standard", "conservative", "aggressive")
    }
    assert rungs == {"standard": [5, 4, 3], "conservative": [5, 4, 3, 2, 1], "aggressive": [5]}
    given = halving.brackets({**searcher, "max_rungs": 1, "bracket_rungs": [2, 6]})
    assert [len(bracket["rungs"]) for bracket in given] == [6, 2], "as they are"
    brackets = halving.brackets({**searcher, "mode": "standard"})
    assert sum(bracket["total"] for bracket in brackets) == 1000
    assert [bracket["concurrent"] for bracket in brackets] == [6, 5, 5]


def test_an_adaptive_search_tries_max_trials_and_ends() -> None:
    searcher = {"name": "adaptive_asha", "max_trials": 60, "max_time": 16, "max_concurrent_trials": 8}
    result = run(searcher, LR, steps=16)
    assert len(result["lengths"]) == 60
    assert result["end"] == Shutdown()
