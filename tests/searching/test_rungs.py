"""The read model of rungs, and states that an earlier release stored."""

import json
from typing import Any

import searching
from searching import Create, ExitReason, Park, Promote, Stop, TrialExited, ValidationReported, rungs

LR = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}
HALVING = {
    "name": "async_halving",
    "metric": "accuracy",
    "smaller_is_better": False,
    "num_rungs": 2,
    "divisor": 2,
    "max_length": 8,
    "max_trials": 4,
    "max_concurrent_trials": 2,
}


def of(state: dict[str, Any]) -> list[list[tuple[str | None, float | None, int | None, str, float | None]]]:
    [bracket] = rungs.tree(json.loads(json.dumps(state)))
    return [
        [(each.request_id, each.metric, each.place, each.outcome.value, each.at) for each in rung.entries]
        for rung in bracket.rungs
    ]


def test_a_trial_that_turns_out_invalid_leaves_its_rungs_and_its_promotion_to_another() -> None:
    state, operations = searching.start({**HALVING, "max_trials": 6}, LR, 1)
    a, b = (each.request_id for each in operations if isinstance(each, Create))
    state, operations = searching.on_event(state, ValidationReported(a, 0.5, 4))
    [c] = (each.request_id for each in operations if isinstance(each, Create))
    state, _ = searching.on_event(state, ValidationReported(b, 0.9, 4))
    state, _ = searching.on_event(state, ValidationReported(c, 0.1, 4))
    state, operations = searching.on_event(state, TrialExited(b, ExitReason.INVALID_HP))
    assert [each for each in operations if not isinstance(each, Create)] == [Promote(a)]
    assert [name for name, metric, *_ in of(state)[0] if metric is not None] == [a, c]


def test_rungs_say_who_waits_who_was_promoted_and_who_is_on_the_way() -> None:
    state, operations = searching.start(HALVING, LR, 1)
    a, b = (each.request_id for each in operations if isinstance(each, Create))
    assert of(state) == [[(a, None, None, "running", None), (b, None, None, "running", None)], []]

    state, operations = searching.on_event(state, ValidationReported(a, 0.5, 4, at=100))
    assert operations[0] == Park(a)
    [c] = (each.request_id for each in operations if isinstance(each, Create))
    state, operations = searching.on_event(state, ValidationReported(b, 0.7, 4, at=101))
    assert operations == [Promote(b)], "the better of two"
    assert of(state) == [
        [(b, 0.7, 1, "promoted", 101), (a, 0.5, 2, "waiting", 100), (c, None, None, "running", None)],
        [(b, None, None, "running", None)],
    ]
    state, operations = searching.on_event(state, TrialExited(c, ExitReason.ERRORED, at=102))
    [d] = (each.request_id for each in operations if isinstance(each, Create))
    state, operations = searching.on_event(state, ValidationReported(d, 0.1, 4, at=103))
    assert operations == [Park(d), Promote(a), Stop(d)], "nobody can come to the first rung any more"
    state, operations = searching.on_event(state, ValidationReported(b, 0.9, 8, at=104))
    assert operations == [Stop(b)]
    assert of(state) == [
        [
            (b, 0.7, 1, "promoted", 101),
            (a, 0.5, 2, "promoted", 103),
            (d, 0.1, 3, "stopped", 103),
            (c, None, None, "gave up", 102),
        ],
        [(b, 0.9, 1, "finished", 104), (a, None, None, "running", None)],
    ]
    assert [rung.units for rung in rungs.tree(state)[0].rungs] == [4, 8]
    assert [rung.share for rung in rungs.tree(state)[0].rungs] == [0.5, 0.0]


def test_a_trial_that_is_killed_while_it_is_parked_takes_no_place() -> None:
    state, operations = searching.start({**HALVING, "divisor": 4, "max_concurrent_trials": 3}, LR, 1)
    a, b, c = (each.request_id for each in operations if isinstance(each, Create))
    for request_id, metric in ((a, 0.9), (b, 0.5), (c, 0.1)):
        state, _ = searching.on_event(state, ValidationReported(request_id, metric, 2, at=100))
    state, _ = searching.on_event(state, TrialExited(b, ExitReason.CANCELED, at=101))
    places = {each[0]: each[2] for each in of(state)[0]}
    assert (places[a], places[b], places[c]) == (1, None, 2)


def test_a_trial_that_is_killed_while_it_is_parked_uses_up_no_promotion() -> None:
    state, operations = searching.start({**HALVING, "max_trials": 5, "max_concurrent_trials": 5}, LR, 1)
    a, b, c, d, e = (each.request_id for each in operations if isinstance(each, Create))
    for request_id, metric in ((a, 0.9), (b, 0.5), (c, 0.3)):
        state, _ = searching.on_event(state, ValidationReported(request_id, metric, 4, at=100))
    state, operations = searching.on_event(state, TrialExited(b, ExitReason.CANCELED, at=101))
    assert operations == [], "nobody is among the best yet who was not before"
    state, operations = searching.on_event(state, ValidationReported(d, 0.1, 4, at=102))
    assert operations == [Park(d), Promote(c)], "the best two of four: the one that was killed is the worst"
    assert [(each[0], each[2]) for each in of(state)[0]] == [(a, 1), (c, 2), (d, 3), (b, None), (e, None)]


def test_a_search_that_compares_nothing_has_a_bracket_without_rungs() -> None:
    state, _ = searching.start({"name": "random", "max_trials": 3}, LR, 1)
    assert rungs.tree(state) == (rungs.Bracket((), 3, 3),)
    assert rungs.tree({}) == ()


def test_a_search_that_an_earlier_release_began_goes_on() -> None:
    """As version 1 stored it: two of three trials made, one stopped at the first rung, one on its way."""
    trial = {"bracket": 0, "time": 4, "ended": None}
    stored = {
        "version": 1,
        "searcher": {**HALVING, "max_trials": 3, "mode": "standard", "max_rungs": 5},
        "hparams": LR,
        "seed": 1,
        "drawn": 2,
        "invalid": 0,
        "over": False,
        "trials": {
            "b-old": {**trial, "rung": 1, "stopped": True},
            "a-old": {**trial, "rung": 1, "stopped": False},
        },
        "brackets": [
            {
                "rungs": [{"units": 4, "metrics": [-0.9, -0.2]}, {"units": 8, "metrics": []}],
                "total": 3,
                "concurrent": 1,
                "made": 2,
            }
        ],
    }
    assert of(stored)[0] == [(None, 0.9, 1, "finished", None), (None, 0.2, 2, "finished", None)]
    state, operations = searching.on_event(stored, TrialExited("b-old", ExitReason.COMPLETED))
    assert operations == []
    state, operations = searching.on_event(state, ValidationReported("a-old", 0.95, 8))
    assert operations[0] == Stop("a-old") and isinstance(operations[1], Create)
    assert stored["version"] == 1, "what was stored is left as it is"
