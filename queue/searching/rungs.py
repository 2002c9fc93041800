"""The rungs of a search as people look at them: who reached which, how good, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from searching.halving import kept_share
from searching.judging import AT, METRIC, NUMBER, OUTCOME, reported
from searching.state import RUNG, STANDING, Outcome, Standing, State, request_id_of, upgraded


@dataclass(frozen=True, slots=True)
class RungEntry:
    """`request_id`: None in a search begun before rungs knew their trials. `metric`: as it was reported; None: none
    yet, or not a number. `place`: from 1 among those that reached the rung; None: not there (yet).
    `at`: when the outcome was decided, in seconds since the epoch; None: not known.
    """

    request_id: str | None
    metric: float | None
    place: int | None
    outcome: Outcome
    at: float | None


@dataclass(frozen=True, slots=True)
class Rung:
    """`units`: the length at which trials are compared, in the unit of max_length or max_time. `share`: how many of
    those that come here go on, 1/divisor, and 0 for the last. `entries`: the best first, then who is on the way.
    """

    units: int
    share: float
    entries: tuple[RungEntry, ...]


@dataclass(frozen=True, slots=True)
class Bracket:
    """`trials`: how many it makes in all, `made` so far. Without rungs if the search compares nothing."""

    rungs: tuple[Rung, ...]
    trials: int
    made: int


def tree(state: State) -> tuple[Bracket, ...]:
    """The brackets of a stored search, the one with most rungs first. An empty state has none."""
    if not state:
        return ()
    state = upgraded(state)
    divisor = float(state["searcher"]["divisor"])
    on_the_way = _on_the_way(state)
    return tuple(
        Bracket(
            tuple(
                Rung(
                    rung["units"],
                    kept_share(bracket, level, divisor),
                    _reached(state, rung["entries"]) + tuple(on_the_way.get((index, level), ())),
                )
                for level, rung in enumerate(bracket["rungs"])
            ),
            bracket["total"],
            bracket["made"],
        )
        for index, bracket in enumerate(state["brackets"])
    )


def stopped_at(state: State) -> dict[str, int]:
    """Request id -> the rung, from 1, at which its trial was stopped for good; without those of unknown trials."""
    state = upgraded(state) if state else {"brackets": []}
    return {
        request_id_of(state, entry[NUMBER]): level
        for bracket in state["brackets"]
        for level, rung in enumerate(bracket["rungs"], start=1)
        for entry in rung["entries"]
        if entry[OUTCOME] == Outcome.STOPPED and entry[NUMBER] is not None
    }


def units_expected(brackets: Iterable[Bracket], longest: int | None) -> float | None:
    """What all trials train, if each rung keeps just its share of those that come there, one at least.

    `longest`: the length of a trial that is compared at no rung; None where that is not known, and then all is not.
    """
    expected = 0.0
    for bracket in brackets:
        if not bracket.rungs and longest is None:
            return None
        count, before = float(bracket.trials), 0
        for rung in bracket.rungs:
            expected += count * (rung.units - before)
            count, before = max(1.0, count * rung.share), rung.units
        if not bracket.rungs:
            expected += bracket.trials * (longest or 0)
    return expected


def _reached(state: State, entries: list[list[Any]]) -> tuple[RungEntry, ...]:
    found, place = [], 0
    for entry in entries:
        number, outcome = entry[NUMBER], Outcome(entry[OUTCOME])
        # one that gave up may stand before others: before those that came later without a number
        place += outcome != Outcome.GAVE_UP
        found.append(
            RungEntry(
                None if number is None else request_id_of(state, number),
                reported(state, entry[METRIC]),
                None if outcome == Outcome.GAVE_UP else place,
                outcome,
                entry[AT],
            )
        )
    return tuple(found)


def _on_the_way(state: State) -> dict[tuple[int, int], list[RungEntry]]:
    """(bracket, rung) -> those that run towards it, or ended well by themselves before it."""
    found: dict[tuple[int, int], list[RungEntry]] = {}
    outcomes = {Standing.ON: Outcome.RUNNING, Standing.COMPLETED: Outcome.FINISHED}
    for index, bracket in enumerate(state["brackets"]):
        last = len(bracket["rungs"])
        for number in bracket["live"] + bracket["early"]:
            trial = state["trials"][number]
            if trial[RUNG] < last:
                outcome = outcomes[Standing(trial[STANDING])]
                entry = RungEntry(request_id_of(state, number), None, None, outcome, None)
                found.setdefault((index, trial[RUNG]), []).append(entry)
    return found
