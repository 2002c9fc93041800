"""Ranges that hold what they promise: those of the model, moved by what became of a pool's last promises.

The model says when work starts: a tenth, half, and nine tenths of its futures have started it by then. On this scale a
start has a place: -1, 0 and 1 there, logarithmic in between and beyond. If the model were right, a tenth of all places
would be below -1 and a tenth above 1. What it leaves out shows in the places of real starts, so the range goes from
where a tenth of them were to where nine tenths of them were. What still waits counts too: its start is later than now,
and those that started soon would otherwise be all that is known (E. Kaplan and P. Meier, 1958).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, inf, log
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
#: of promises that are given so close together, as a part of the wait, one counts: they were right or wrong together
APART = 0.05
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


@dataclass(frozen=True, slots=True)
class Learned:
    """`places`: of the starts that were promised, the newest last. `newest`: when the last of these was promised."""

    places: tuple[float, ...] = ()
    newest: float = -inf

    def started(self, promised_at: float, guess: Guess, seconds: float) -> Learned:
        """What is known once it has started so many seconds after its promise."""
        if abs(promised_at - self.newest) < APART * seconds:
            return self
        return Learned((*self.places, place(guess, seconds))[-MOST_PLACES:], promised_at)


def still_waiting(promises: Iterable[tuple[float, Guess]], now: float) -> list[float]:
    """Where the starts of what still waits are at the earliest. `promises`: (promised at, guess)."""
    found, newest = list[float](), -inf
    for at, guess in sorted(promises):
        if now - at > guess[0] and at - newest >= APART * (now - at):
            found.append(place(guess, now - at))
            newest = at
    return found[-MOST_PLACES:]


def span(guess: Guess, places: Sequence[float], waiting: Sequence[float] = ()) -> Span:
    """The seconds between which it starts with 80 % probability. `places`: of the pool's last promises."""
    return between(guess, tails(places, waiting))


def tails(places: Sequence[float], waiting: Sequence[float] = ()) -> Span:
    """The places below which a tenth and nine tenths of the starts are; those `waiting` are beyond these places."""
    known = sorted(
        [*((one, False) for one in (*_MODEL, *places[-MOST_PLACES:])), *((one, True) for one in waiting)]
    )
    left, count = 1.0, len(known)
    parts: list[tuple[float, float]] = []
    for number, (one, waits) in enumerate(known):
        if not waits:
            share = left / (count - number)
            parts.append((1 - left + share / 2, one))
            left -= share
    return _below(parts, TAIL), _below(parts, 1 - TAIL)


def between(guess: Guess, tails: Span) -> Span:
    return _at(guess, tails[0]), _at(guess, tails[1])


def _below(parts: Sequence[tuple[float, float]], part: float) -> float:
    """The place below which this part is."""
    low = parts[0]
    for high in parts:
        if high[0] >= part:
            rest = (part - low[0]) / (high[0] - low[0]) if high[0] > low[0] else 0.0
            return low[1] + (high[1] - low[1]) * rest
        low = high
    return low[1]


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
