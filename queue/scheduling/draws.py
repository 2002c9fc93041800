"""How long work lasts in each of the futures of a forecast: draws from what is known of it."""

from __future__ import annotations

from math import erf, exp, inf, log, sqrt
from random import Random
from statistics import NormalDist

from scheduling.calibration import LEAST
from scheduling.durations import Z80, Span
from scheduling.world import Request

#: how much run times of similar work are longer or shorter together, in one future: a correlation
TOGETHER = 0.2


def drawn(span: Span, place: float) -> float:
    """Seconds; `place` 0 is the start of the range and 1 its end, on a logarithmic scale."""
    first, last = log(max(LEAST, span[0])), log(max(LEAST, *span))
    return exp(first + (last - first) * place)


def length(request: Request) -> tuple[float, ...] | None:
    """What is known of how long it runs."""
    return request.tenths or request.lasts


_TENTHS = [NormalDist().inv_cdf((number + 0.5) / 10) for number in range(10)]


def _of_tenths(tenths: tuple[float, ...], deviations: float) -> float:
    """The run time that is so many standard deviations from the middle one, if run times were normal."""
    at = (1 + erf(deviations / sqrt(2))) / 2 * len(tenths) - 0.5
    low = max(0, min(int(at), len(tenths) - 2))
    return max(LEAST, tenths[low] + (tenths[low + 1] - tenths[low]) * (at - low))


class Draws:
    """Draws from ranges that hold 80 %, spread evenly over the futures and shuffled for each range."""

    def __init__(self, count: int) -> None:
        self._random = Random(count)
        parts = [(number + 0.5) / count for number in range(count)]
        #: where a draw lies between the ends of its range (0 and 1), on a logarithmic scale
        self._whole = [(NormalDist().inv_cdf(part) / Z80 + 1) / 2 for part in parts]
        self._normal = [NormalDist().inv_cdf(part) for part in parts]
        self._known_moods: dict[tuple[float, ...], list[float]] = {}
        low, high = log(-log(0.9)), log(-log(0.1))
        self._rest = [(log(-log(1 - part)) - low) / (high - low) for part in parts]

    def lasts(self, request: Request) -> list[float]:
        """Run times in seconds, one for each future: as those of similar work, else lognormal."""
        if not request.tenths:
            return self._drawn(request.lasts, self._whole)
        moods = self._moods(request.tenths)
        self._random.shuffle(self._normal)
        own, shared = sqrt(1 - TOGETHER), sqrt(TOGETHER)
        return [
            _of_tenths(request.tenths, own * z + shared * mood)
            for z, mood in zip(self._normal, moods, strict=True)
        ]

    def means(self, request: Request) -> list[float]:
        """How long much work like this runs on average, in each future."""
        if not request.tenths:
            return [sum(request.lasts) / 2 if request.lasts else inf] * len(self._normal)
        own, shared = sqrt(1 - TOGETHER), sqrt(TOGETHER)
        return [
            sum(_of_tenths(request.tenths, own * z + shared * mood) for z in _TENTHS) / len(_TENTHS)
            for mood in self._moods(request.tenths)
        ]

    def _moods(self, tenths: tuple[float, ...]) -> list[float]:
        """How much longer similar work runs in each future: the same for all of it, in standard deviations."""
        if tenths not in self._known_moods:
            self._random.shuffle(self._normal)
            self._known_moods[tenths] = list(self._normal)
        return self._known_moods[tenths]

    def left(self, span: Span | None) -> list[float]:
        """What is left of a run: Weibull, since it may be over at once, which no lognormal time is."""
        return self._drawn(span, self._rest)

    def _drawn(self, span: Span | None, places: list[float]) -> list[float]:
        if span is None:
            return [inf] * len(places)
        self._random.shuffle(places)
        return [drawn(span, place) for place in places]
