"""Entering a trial in a rung, and what becomes of it there, in both forms of asynchronous halving (ASHA).

By stopping: a trial that is among the best 1/divisor of those that have come to the rung goes on at once, any other is
stopped for good. By promotion: any other is parked, and goes on later if it turns out to be among them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any

from searching.standings import Outcome

#: places in the list of an entry
METRIC, NUMBER, AT, OUTCOME = range(4)


def enter(rung: dict[str, Any], number: int, metric: float, at: float | None, outcome: Outcome) -> int:
    """Insert by metric (smaller is better), behind equals; the place from 0. Infinity and NaN become null, last."""
    entries = rung["entries"]
    is_worst = math.isinf(metric) or math.isnan(metric)
    place = len(entries) if is_worst else bisect_right(entries, metric, key=_rank)
    entries.insert(place, [None if is_worst else metric, number, at, outcome.value])
    return place


def keeps(rung: dict[str, Any], divisor: float, *, by_stopping: bool) -> int:
    """How many of those that came here go on; where the others are stopped for good, the first is let on."""
    share = int(len(rung["entries"]) / divisor)
    return max(1, share) if by_stopping else share


def next_to_promote(rung: dict[str, Any], divisor: float) -> int | None:
    """Place of the one that waits and is among the best by now.

    Whenever a trial comes, at most one more may go on: the one at the new end of those that are kept, for all
    before it went on when they could.
    """
    place = keeps(rung, divisor, by_stopping=False) - 1
    if place >= 0 and rung["entries"][place][OUTCOME] == Outcome.WAITING:
        return place
    return None


def place_of(rung: dict[str, Any], number: int) -> int | None:
    """Where trial `number` stands in the rung."""
    return next((place for place, entry in enumerate(rung["entries"]) if entry[NUMBER] == number), None)


def waiting(rung: dict[str, Any]) -> list[list[Any]]:
    return [entry for entry in rung["entries"] if entry[OUTCOME] == Outcome.WAITING]


def _rank(entry: list[Any]) -> float:
    return math.inf if entry[METRIC] is None else float(entry[METRIC])
