"""What a search that halves asks for when a trial comes to a rung, ends before one, or can come to none any more."""

from __future__ import annotations

import math
from typing import Any

from searching import entries
from searching.entries import AT, METRIC, NUMBER, OUTCOME
from searching.events import Judgment, Operation, Park, Promote, Stop
from searching.halving import stops_once
from searching.standings import Outcome, Standing
from searching.state import BRACKET, RUNG, STANDING, TIME, State, request_id_of


def judge(state: State, number: int, metric: float, at: float | None) -> list[Operation]:
    """Enter a validation (smaller is better) in each rung that the trial's time reaches, as far as it is let on."""
    trial = state["trials"][number]
    rungs = state["brackets"][trial[BRACKET]]["rungs"]
    operations: list[Operation] = []
    while trial[STANDING] == Standing.ON and trial[TIME] >= rungs[trial[RUNG]]["units"]:
        operations += _arrive(state, number, metric, at)
    return operations


def give_up(state: State, number: int, at: float | None) -> list[Operation]:
    """A trial that ended early, and not well, counts as the worst of the rung it was on the way to."""
    trial = state["trials"][number]
    rung = state["brackets"][trial[BRACKET]]["rungs"][trial[RUNG]]
    entries.enter(rung, number, math.inf, at, Outcome.GAVE_UP)
    return _promote_next(state, trial[BRACKET], trial[RUNG], at)


def left(state: State, number: int, end: Standing, at: float | None) -> None:
    """A parked trial has ended without being asked to: it is promoted no more. If not well, it counts as the worst.

    In its old place it would use up a promotion when the share of those kept reaches it, and the next best would wait.
    """
    trial = state["trials"][number]
    rung = state["brackets"][trial[BRACKET]]["rungs"][trial[RUNG] - 1]
    place = entries.place_of(rung, number)
    if place is None or rung["entries"][place][OUTCOME] != Outcome.WAITING:
        return
    if end == Standing.COMPLETED:
        _decide(rung["entries"][place], Outcome.FINISHED, at)
    else:
        del rung["entries"][place]
        entries.enter(rung, number, math.inf, at, Outcome.GAVE_UP)


def withdraw(state: State, number: int, at: float | None) -> list[Operation]:
    """A trial whose hyperparameters turn out to be invalid counts at no rung: another is drawn in its place.

    Its promotions are free for those that wait there.
    """
    trial = state["trials"][number]
    operations: list[Operation] = []
    for level in range(trial[RUNG]):
        rung = state["brackets"][trial[BRACKET]]["rungs"][level]
        place = entries.place_of(rung, number)
        if place is not None:
            del rung["entries"][place]
            operations += _promote_next(state, trial[BRACKET], level, at)
    return operations


def close(state: State, index: int, at: float | None) -> list[Operation]:
    """Stop those that wait at rungs where nobody can come any more, and so promote them."""
    bracket = state["brackets"][index]
    operations: list[Operation] = []
    if not bracket["rungs"] or bracket["made"] < bracket["total"] or stops_once(state["searcher"]):
        return operations
    nearest = min(
        (state["trials"][number][RUNG] for number in bracket["live"]), default=len(bracket["rungs"])
    )
    while bracket["closed"] < nearest:
        rung = bracket["rungs"][bracket["closed"]]
        for place, entry in enumerate(rung["entries"]):
            if entry[OUTCOME] == Outcome.WAITING:
                _decide(entry, Outcome.STOPPED, at)
                state["trials"][entry[NUMBER]][STANDING] = Standing.STOPPING.value
                why = _judgment(state, index, bracket["closed"], place)
                operations.append(Stop(request_id_of(state, entry[NUMBER]), why))
        bracket["closed"] += 1
    return operations


def _arrive(state: State, number: int, metric: float, at: float | None) -> list[Operation]:
    """One rung: on at once, parked or stopped; and whoever else may go on because of it."""
    trial, by_stopping = state["trials"][number], stops_once(state["searcher"])
    index, level = trial[BRACKET], trial[RUNG]
    bracket = state["brackets"][index]
    rung = bracket["rungs"][level]
    place = entries.enter(rung, number, metric, at, Outcome.WAITING)
    trial[RUNG] += 1
    is_kept = place < entries.keeps(rung, _divisor(state), by_stopping=by_stopping)
    outcome = Outcome.PROMOTED if is_kept else Outcome.STOPPED if by_stopping else Outcome.WAITING
    if trial[RUNG] == len(bracket["rungs"]):
        outcome = Outcome.FINISHED
    _decide(rung["entries"][place], outcome, at)
    name, why = request_id_of(state, number), _judgment(state, index, level, place)
    if outcome == Outcome.PROMOTED:
        return [Promote(name, why), *_promote_next(state, index, level, at)]
    bracket["live"].remove(number)
    if outcome == Outcome.WAITING:
        trial[STANDING] = Standing.PARKED.value
        return [Park(name, why), *_promote_next(state, index, level, at)]
    trial[STANDING] = Standing.STOPPING.value
    return [Stop(name, why)]


def _promote_next(state: State, index: int, level: int, at: float | None) -> list[Operation]:
    bracket = state["brackets"][index]
    rung = bracket["rungs"][level]
    if stops_once(state["searcher"]) or level + 1 == len(bracket["rungs"]):
        return []
    place = entries.next_to_promote(rung, _divisor(state))
    if place is None:
        return []
    entry = rung["entries"][place]
    _decide(entry, Outcome.PROMOTED, at)
    state["trials"][entry[NUMBER]][STANDING] = Standing.ON.value
    bracket["live"].append(entry[NUMBER])
    return [Promote(request_id_of(state, entry[NUMBER]), _judgment(state, index, level, place))]


def _judgment(state: State, index: int, level: int, place: int) -> Judgment:
    bracket = state["brackets"][index]
    rung = bracket["rungs"][level]
    metric, by_stopping = rung["entries"][place][METRIC], stops_once(state["searcher"])
    return Judgment(
        outcome=Outcome(rung["entries"][place][OUTCOME]),
        bracket=index,
        rung=level,
        units=rung["units"],
        metric=reported(state, metric),
        place=place + 1,
        among=len(rung["entries"]),
        keeps=0
        if level + 1 == len(bracket["rungs"])
        else entries.keeps(rung, _divisor(state), by_stopping=by_stopping),
    )


def reported(state: State, metric: float | None) -> float | None:
    """A metric of an entry with the sign that the trial gave it."""
    if metric is None or state["searcher"]["smaller_is_better"]:
        return metric
    return 0.0 - metric


def _decide(entry: list[Any], outcome: Outcome, at: float | None) -> None:
    entry[OUTCOME], entry[AT] = outcome.value, at


def _divisor(state: State) -> float:
    return float(state["searcher"]["divisor"])
