"""Ranges that hold what they promise: those of the model, moved by what became of a pool's last promises.

The model says when work starts: a tenth, half, and nine tenths of its futures have started it by then. On this scale a
start has a place: -1, 0 and 1 there, logarithmic in between and beyond. If the model were right, a tenth of all places
would be below -1 and a tenth above 1. What it leaves out shows in the places of real starts, so the range goes from
where a tenth of them were to where nine tenths of them were.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from statistics import NormalDist

from scheduling.durations import Span

#: seconds until a tenth, half, and nine tenths of the futures have started it
Guess = tuple[float, float, float]

#: the part of the starts below the range, and above it
TAIL = 0.1
#: places that are kept, the newest
MOST_PLACES = 300
#: the model counts as so many promises about which it was right
MODEL_COUNTS = 20
#: no place is further out: what came of a narrow range, as in an outage, is applied to wide ones too
FURTHEST = 3.0
#: what no future knows of, such as work that nobody expected: so much more or less of the time until the start
UNFORESEEN = 0.05
#: shortest time that is told apart, in seconds
LEAST = 0.1


def place(guess: Guess, seconds: float) -> float:
    """Where a start after so many seconds was, as the model saw it."""
    first, middle, last = _logs(guess)
    off = log(max(LEAST, seconds)) - middle
    scale = last - middle if off > 0 else middle - first
    return max(-FURTHEST, min(off / scale, FURTHEST))


def span(guess: Guess, places: Sequence[float]) -> Span:
    """The seconds between which it starts with 80 % probability. `places`: of the pool's last promises."""
    known = sorted([*_MODEL, *places[-MOST_PLACES:]])
    return _at(guess, _quantile(known, TAIL)), _at(guess, _quantile(known, 1 - TAIL))


def _at(guess: Guess, at: float) -> float:
    first, middle, last = _logs(guess)
    return exp(middle + at * (last - middle if at > 0 else middle - first))


def _logs(guess: Guess) -> tuple[float, float, float]:
    first, middle, last = (log(max(LEAST, seconds)) for seconds in guess)
    return first - UNFORESEEN, middle, last + UNFORESEEN


def _quantile(known: Sequence[float], part: float) -> float:
    index, rest = divmod(part * len(known) - 0.5, 1)
    low, high = known[int(index)], known[min(int(index) + 1, len(known) - 1)]
    return low + (high - low) * rest


def _right() -> list[float]:
    """Places of starts about which the model was right."""
    normal = [NormalDist().inv_cdf((number + 0.5) / MODEL_COUNTS) for number in range(MODEL_COUNTS)]
    return [one / _quantile(normal, 1 - TAIL) for one in normal]


_MODEL = _right()
