"""What a process keeps of its timings between two records: exact count, sum and extremes, quantiles by histogram."""

from __future__ import annotations

import collections
import math
from array import array
from typing import Counter, Deque, Dict, Union

#: of a double's 52 binary places the leading 6 name its bucket, 64 for each doubling: a quantile is within 1/128
#: (0.8 %) of the true one, and exact where all are equal
_SHIFT = 52 - 6
#: what a name holds back before it is folded: bounds memory, however often something is timed
HELD_BACK = 1024

Summary = Dict[str, Union[int, float]]


class Durations:
    """Seconds of one name since the last summary. `pending` takes them from any thread without a lock."""

    __slots__ = ("_buckets", "_count", "_high", "_low", "_sum", "pending")

    def __init__(self) -> None:
        self.pending: Deque[float] = collections.deque()
        self._clear()

    def _clear(self) -> None:
        self._count, self._sum = 0, 0.0
        self._low, self._high = math.inf, 0.0
        self._buckets: Counter[int] = collections.Counter()

    def fold(self) -> None:
        """Take in what is pending; one thread at a time."""
        values = taken(self.pending)
        if not values:
            return
        self._count += len(values)
        self._sum += sum(values)
        self._low = min(self._low, min(values))
        self._high = max(self._high, max(values))
        # the bits of positive floats ascend as they do: exponent and leading digits are the bucket
        bits = array("Q", values.tobytes())
        self._buckets.update([number >> _SHIFT for number in bits])

    def summary(self) -> Summary:
        """{"n", "sum", "min", "max", "p50", "p95"} in seconds of all since the last time, or {} of none."""
        self.fold()
        if not self._count:
            return {}
        answer: Summary = {
            "n": self._count,
            "sum": round(self._sum, 9),
            "min": round(self._low, 9),
            "max": round(self._high, 9),
            "p50": round(self._quantile(0.5), 9),
            "p95": round(self._quantile(0.95), 9),
        }
        self._clear()
        return answer

    def _quantile(self, part: float) -> float:
        """The value of this rank (the nearest), as the middle of its bucket, never beyond the extremes."""
        left = math.ceil(part * self._count)
        for key in sorted(self._buckets):
            left -= self._buckets[key]
            if left <= 0:
                middle = array("d", array("Q", [(key << _SHIFT) + (1 << _SHIFT - 1)]).tobytes())[0]
                return min(max(middle, self._low), self._high)
        return self._high


class Total:
    """The sum of what was counted under one name since the last time; `pending` as of Durations."""

    __slots__ = ("_sum", "pending")

    def __init__(self) -> None:
        self.pending: Deque[float] = collections.deque()
        self._sum = 0.0

    def fold(self) -> None:
        self._sum += sum(taken(self.pending))

    def summary(self) -> float:
        """The sum since the last time."""
        self.fold()
        total, self._sum = self._sum, 0.0
        return total if math.isfinite(total) else 0.0


def taken(pending: Deque[float]) -> array[float]:
    """What is there now, taken out one by one: others may go on appending meanwhile, and nothing is lost."""
    take = pending.popleft
    return array("d", [take() for _ in range(len(pending))])
