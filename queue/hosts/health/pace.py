"""Whether a host is slow: work took it longer than its peers, in several runs and beside different hosts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

#: runs that ended before tell nothing of the host any more
WINDOW = timedelta(days=14)
#: how many times as long as its peers a slow host takes
SLOWER = 1.1
LEAST_RUNS = 3


class Run(NamedTuple):
    """`pace`: how many times as long as the median of its `peers` a host took for a step of a task."""

    task: str
    pace: float
    peers: frozenset[str]


def slow(runs: Sequence[Run]) -> list[Run]:
    """The runs that show it; empty if it is not slow.

    No peer may be in all of them, as that one may be fast, nor may they be attempts of few tasks, as one of those may
    give its ranks unequal work; and most runs of the host have to show it.
    """
    found = [run for run in runs if run.pace >= SLOWER and run.peers]
    if len({run.task for run in found}) < LEAST_RUNS or 2 * len(found) <= len(runs):
        return []
    return [] if frozenset.intersection(*(run.peers for run in found)) else found


def in_words(found: Sequence[Run], runs: int) -> str:
    """The evidence, for at least one run found."""
    paces = sorted(run.pace for run in found)
    peers = sorted(frozenset.union(*(run.peers for run in found)))
    named = ", ".join(peers[:5]) + (f" and {len(peers) - 5} more" if len(peers) > 5 else "")
    return (
        f"Steps took {paces[0]:.2f} to {paces[-1]:.2f} times as long as on its peers in {len(found)} of {runs} runs "
        f"within {WINDOW.days} days, beside {named}"
    )
