"""How much of a search is done, beside what its trials have trained, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

import searching
from searching import Shutdown
from searching.simulate import _Run

SPACE = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}
SEARCHES = [
    {"name": "adaptive_asha", "max_trials": 16, "max_length": {"batches": 3000}},
    {"name": "adaptive_asha", "max_trials": 100, "max_time": 64, "mode": "aggressive"},
    {"name": "adaptive_asha", "max_trials": 100, "max_length": 64, "stop_once": False},
    {"name": "async_halving", "num_rungs": 4, "max_trials": 50, "max_time": 64},
    {"name": "async_halving", "num_rungs": 4, "max_trials": 50, "max_length": 64, "stop_once": False},
    {"name": "random", "max_trials": 10, "max_concurrent_trials": 4, "max_length": 100},
]
#: how far the progress may be from the truth: by chance, more trials are promoted than one in `divisor`
AT_MOST, ON_AVERAGE = 0.25, 0.1


class Watched(_Run):
    """Notes after each validation what was trained by then, and the progress."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.seen: list[tuple[int, float]] = []

    def _arrived(self, name: str, units: int) -> Shutdown | None:
        over = super()._arrived(name, units)
        self.seen.append((sum(self.reached.values()), searching.progress(self.state)))
        return over


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("searcher", SEARCHES, ids=lambda each: f"{each['name']}-{each['max_trials']}")
def test_progress_is_the_share_of_the_work_that_is_done(searcher: dict[str, Any], seed: int) -> None:
    run = Watched(searcher, SPACE, seed, None)
    assert searching.progress(run.state) == 0
    assert run.to_the_end() == Shutdown()
    everything, most = run.seen[-1][0], 0.0
    for _, progress in run.seen:
        assert 0 < progress <= 1, "never 0 while work is done"
        assert progress > most - AT_MOST / 2, "what is written is never less than before"
        most = max(most, progress)
    off = [abs(progress - done / everything) for done, progress in run.seen]
    assert max(off) < AT_MOST and sum(off) / len(off) < ON_AVERAGE
    assert run.seen[-1][1] == 1.0
