"""Searches in virtual time."""

from typing import Any

import pytest

from searching import Shutdown
from searching.simulate import simulate

SPACE = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}


def loss(hparams: dict[str, Any], units: int) -> float:
    return (float(hparams["lr"]) - 0.3) ** 2 + 1 / units


@pytest.mark.parametrize("stop_once", [True, False])
def test_an_adaptive_search_tries_all_trains_few_to_the_end_and_finds_a_good_one(stop_once: bool) -> None:
    searcher = {"name": "adaptive_asha", "max_trials": 300, "max_length": 64, "stop_once": stop_once}
    found = simulate(searcher, SPACE, 1, loss)
    assert found.trials == 300 == sum(found.lengths.values()) and found.over == Shutdown()
    assert found.lengths[64] < 60 < found.lengths[min(found.lengths)]
    assert found.units is not None and found.units < 300 * 64 / 3
    assert found.best is not None and found.best < 1 / 64 + 0.001
    assert found.at_once == 16
    assert found == simulate(searcher, SPACE, 1, loss), "the same seed, the same search"


def test_a_search_without_rungs_trains_every_trial_to_the_end() -> None:
    searcher = {"name": "random", "max_trials": 10, "max_concurrent_trials": 4}
    found = simulate({**searcher, "max_length": {"epochs": 5}}, SPACE, 1)
    assert (found.lengths, found.units, found.span, found.at_once) == ({5: 10}, 50, 15, 4)
    found = simulate(searcher, SPACE, 1)
    assert (found.trials, found.units, found.span) == (10, None, None), "how long a trial is, nobody said"
