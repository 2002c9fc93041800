"""How much of a search is done: by the units that its trials train where their length is known, else by trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from searching import halving
from searching.state import BRACKET, LOST, RUNG, STANDING, TIME, Standing, State, request_id_of

#: such a trial trains on, or would have
_ON_THE_WAY = frozenset({Standing.ON, Standing.AGAIN}) | LOST


def by_units(state: State, reported: Mapping[str, float]) -> float:
    """The units trained, as a share of these and of what is expected to follow.

    What follows is known only by chance: each rung keeps one in `divisor` of those that come there. So a promotion may
    lower the share a little. A trial that has failed or was killed counts as far as it came.
    """
    longest, divisor = halving.max_time(state["searcher"]), float(state["searcher"]["divisor"])
    paths = [_Path(bracket, longest, divisor) for bracket in state["brackets"]]
    done = 0.0
    left = sum(path.unmade * path.ahead_of(0, 0.0) for path in paths)
    for number, trial in enumerate(state["trials"]):
        path, standing = paths[trial[BRACKET]], trial[STANDING]
        reached = min(float(trial[TIME]), longest)
        if standing in _ON_THE_WAY:
            said = reported.get(request_id_of(state, number), 0.0) if reported else 0.0
            reached = max(reached, min(1.0, said) * longest)
            left += path.ahead_of(trial[RUNG], reached)
        elif standing == Standing.COMPLETED and path.ends_by_itself(number):
            reached = max(reached, path.units_of(trial[RUNG]))  # whether it reported that or not
        done += reached
    return done / (done + left) if done + left else 1.0


def by_trials(state: State, partly: list[int], reported: Mapping[str, float]) -> float:
    """Of trials without a known length, those count in part that are `partly` done and have `reported` how far."""
    total = sum(bracket["total"] for bracket in state["brackets"])
    done = float(len(state["trials"]) - len(partly) - state["ends"][Standing.INVALID_HP])
    done += sum(min(1.0, reported.get(request_id_of(state, number), 0.0)) for number in partly)
    return min(1.0, done / total) if total else 1.0


class _Path:
    """What a trial of one bracket trains: its rungs, or all of its length at once."""

    def __init__(self, bracket: dict[str, Any], longest: int, divisor: float) -> None:
        self.unmade = max(0, bracket["total"] - bracket["made"])
        self._units = [int(rung["units"]) for rung in bracket["rungs"]] or [longest]
        self._early = frozenset(bracket["early"]) if bracket["rungs"] else None
        #: beyond each rung, by one that has just come there
        self._beyond = [0.0] * len(self._units)
        for level in range(len(self._units) - 2, -1, -1):
            step = self._units[level + 1] - self._units[level]
            self._beyond[level] = (step + self._beyond[level + 1]) / divisor

    def units_of(self, level: int) -> int:
        return self._units[min(level, len(self._units) - 1)]

    def ahead_of(self, level: int, reached: float) -> float:
        """Units that one on its way to this rung is expected to train."""
        level = min(level, len(self._units) - 1)
        return max(0.0, self._units[level] - reached) + self._beyond[level]

    def ends_by_itself(self, number: int) -> bool:
        """Of one that has completed: True unless the search has stopped it."""
        return self._early is None or number in self._early
