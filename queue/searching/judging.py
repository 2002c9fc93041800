"""What a search that halves asks for when a trial comes to a rung, ends before one, or can come to none any more.

That is asynchronous halving (ASHA), in both forms. By stopping: a trial that is among the best 1/divisor of those that
have come to the rung goes on at once, any other is stopped for good. By promotion: any other is parked, and goes on
later if it turns out to be among them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import Any

from searching.events import Judgment, Operation, Park, Promote, Stop
from searching.halving import stops_once
from searching.state import BRACKET, RUNG, STANDING, TIME, Outcome, Standing, State, request_id_of

#: places in the list of an entry
METRIC, NUMBER, AT, OUTCOME = range(4)


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
    rung["entries"].append([None, number, at, Outcome.GAVE_UP.value])
    return _promote_next(state, trial[BRACKET], trial[RUNG], at)


def left(state: State, number: int, end: Standing, at: float | None) -> None:
    """A parked trial has ended without being asked to: it is promoted no more. If not well, it counts as the worst.

    In its old place it would use up a promotion when the share of those kept reaches it, and the next best would wait.
    """
    trial = state["trials"][number]
    rung = state["brackets"][trial[BRACKET]]["rungs"][trial[RUNG] - 1]
    place = _place_of(rung, number)
    if place is None or rung["entries"][place][OUTCOME] != Outcome.WAITING:
        return
    if end == Standing.COMPLETED:
        _decide(rung["entries"][place], Outcome.FINISHED, at)
    else:
        del rung["entries"][place]
        rung["entries"].append([None, number, at, Outcome.GAVE_UP.value])


def withdraw(state: State, number: int, at: float | None) -> list[Operation]:
    """A trial whose hyperparameters turn out to be invalid counts at no rung: another is drawn in its place.

    Its promotions are free for those that wait there.
    """
    trial = state["trials"][number]
    operations: list[Operation] = []
    for level in range(trial[RUNG]):
        rung = state["brackets"][trial[BRACKET]]["rungs"][level]
        place = _place_of(rung, number)
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
    is_last = level + 1 == len(bracket["rungs"])
    place = _place_for(state, rung, metric, is_last)
    rung["entries"].insert(
        place, [metric if math.isfinite(metric) else None, number, at, Outcome.WAITING.value]
    )
    trial[RUNG] += 1
    is_kept = place < _keeps(state, len(rung["entries"]))
    outcome = Outcome.PROMOTED if is_kept else Outcome.STOPPED if by_stopping else Outcome.WAITING
    if is_last:
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
    place = _next_to_promote(state, rung)
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
    metric = rung["entries"][place][METRIC]
    return Judgment(
        outcome=Outcome(rung["entries"][place][OUTCOME]),
        bracket=index,
        rung=level,
        units=rung["units"],
        metric=reported(state, metric),
        place=place + 1,
        among=len(rung["entries"]),
        keeps=0 if level + 1 == len(bracket["rungs"]) else _keeps(state, len(rung["entries"])),
    )


def reported(state: State, metric: float | None) -> float | None:
    """A metric of an entry with the sign that the trial gave it."""
    if metric is None or state["searcher"]["smaller_is_better"]:
        return metric
    return 0.0 - metric


def _decide(entry: list[Any], outcome: Outcome, at: float | None) -> None:
    entry[OUTCOME], entry[AT] = outcome.value, at


def _place_for(state: State, rung: dict[str, Any], metric: float, is_last: bool) -> int:
    """The place from 0 of a metric that comes to the rung: behind its equals, infinity and NaN behind all.

    Where a trial that is not promoted is stopped for good, a metric that never changes would let only the first one
    continue. So it comes right behind those of its equals that were promoted, if the rung's share is not used up there.
    """
    entries = rung["entries"]
    if not math.isfinite(metric):
        return len(entries)
    behind = bisect_right(entries, metric, key=_rank)
    if is_last or not stops_once(state["searcher"]):
        return behind
    equals = entries[bisect_left(entries, metric, key=_rank) : behind]
    promoted = behind - sum(entry[OUTCOME] != Outcome.PROMOTED for entry in equals)
    return promoted if promoted < _keeps(state, len(entries) + 1) else behind


def _keeps(state: State, count: int) -> int:
    """Return how many of `count` trials at a rung are promoted; if the others are stopped for good, at least one."""
    share = int(count / float(state["searcher"]["divisor"]))
    return max(1, share) if stops_once(state["searcher"]) else share


def _next_to_promote(state: State, rung: dict[str, Any]) -> int | None:
    """Place of the one that waits and is among the best by now, where those that were not are parked.

    Whenever a trial comes, at most one more may go on: the one at the new end of those that are kept, for all
    before it went on when they could.
    """
    place = _keeps(state, len(rung["entries"])) - 1
    if place >= 0 and rung["entries"][place][OUTCOME] == Outcome.WAITING:
        return place
    return None


def _place_of(rung: dict[str, Any], number: int) -> int | None:
    """Where trial `number` stands in the rung."""
    return next((place for place, entry in enumerate(rung["entries"]) if entry[NUMBER] == number), None)


def _rank(entry: list[Any]) -> float:
    return math.inf if entry[METRIC] is None else float(entry[METRIC])
