"""How long past work ran, and which of it tells most about the next.

Work of one job is most alike, then work of one owner with the same name and size, then less of that. Names that one
owner gives to very different work tell little, others tell nearly all: the class is taken in which durations differ
least. A class of few runs is taken to spread as classes of its level usually do: lognormal. With more runs their own
shape shows: many jobs are over in a minute, as they fail, and the others take hours.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from statistics import NormalDist
from typing import NamedTuple

#: runs that stand for one class, the newest
MOST_ALIKE = 100
#: as many past runs as the guess weighs that durations spread by a factor of e, for a level of classes
PRIOR_RUNS = 2
#: as many past runs as what is usual on its level weighs, for a class
USUAL_RUNS = 4
#: as many past runs as the guess weighs that they are lognormal, for a class
SHAPE_RUNS = 8
#: of a distribution, by which it is known
PARTS = 20


class Work(NamedTuple):
    """What runs have in common."""

    owner: Hashable
    kind: str
    name: Hashable
    slots: int

    def classes(self) -> Iterator[Hashable]:
        """The work that it is like, the narrowest class first."""
        yield self
        yield self.owner, self.kind, self.slots
        yield self.owner, self.kind


class Like:
    """The logarithm of the seconds that similar work runs: the newest runs, and a normal distribution around them."""

    def __init__(self, logs: Sequence[float], around: NormalDist) -> None:
        """`around`: weighs SHAPE_RUNS runs, and says what is beyond the shortest and the longest."""
        self._logs = logs
        self._around = around
        self.mean, self.stdev = around.mean, around.stdev

    @cached_property
    def _known(self) -> list[float]:
        """Logarithms at the middles of equal parts: between what has run and what a lognormal time would be."""
        logs, count = sorted(self._logs), len(self._logs)
        weight = count / (count + SHAPE_RUNS)
        found = []
        for number in range(PARTS):
            part = (number + 0.5) / PARTS
            at = min(max(part * (count + 1) - 1, 0.0), count - 1.0)
            low = int(at)
            seen = logs[low] + (logs[min(low + 1, count - 1)] - logs[low]) * (at - low)
            found.append(weight * seen + (1 - weight) * self._around.inv_cdf(part))
        return found

    def inv_cdf(self, part: float) -> float:
        """The logarithm below which this part of the runs is."""
        known = self._known
        at = part * len(known) - 0.5
        if at < 0:
            return min(known[0], self._around.inv_cdf(part))
        if at > len(known) - 1:
            return max(known[-1], self._around.inv_cdf(part))
        low = int(at)
        high = min(low + 1, len(known) - 1)
        return known[low] + (known[high] - known[low]) * (at - low)

    def cdf(self, log: float) -> float:
        """The part of the runs that is shorter."""
        known = self._known
        high = bisect_left(known, log)
        count = len(known)
        if high == 0:
            return min(0.5 / count, self._around.cdf(log))
        if high == count:
            return max(1 - 0.5 / count, self._around.cdf(log))
        low = known[high - 1]
        return (high - 0.5 + (log - low) / (known[high] - low)) / count

    @cached_property
    def tenths(self) -> tuple[float, ...]:
        """Ten run times in seconds, of which each is as likely as the others."""
        return tuple(math.exp(self.inv_cdf((number + 0.5) / 10)) for number in range(10))


class PastRuns:
    """Durations of work that ended by itself. Seconds in, distributions of their logarithms out."""

    def __init__(self) -> None:
        self._jobs = _Level()
        self._levels = (_Level(), _Level(), _Level())
        self._like: dict[Work, Like | None] = {}

    def add(self, job: str, work: Work, seconds: float) -> None:
        """Add a run; the newest comes last."""
        if seconds > 0:
            self._like.clear()
            self._jobs.add(job, math.log(seconds))
            for level, alike in zip(self._levels, work.classes(), strict=True):
                level.add(alike, math.log(seconds))

    def knows(self, job: str) -> bool:
        """Whether runs of this job have ended, so that `like` may differ from that of other jobs with equal work."""
        return job in self._jobs

    def known(self, work: Work) -> Work:
        """Return the work without its name if nothing of this name has ended, so that new names share one answer."""
        return work if work in self._levels[0] else Work(work.owner, work.kind, None, work.slots)

    def like(self, job: str, work: Work) -> Like | None:
        """The logarithm of the seconds that such work runs, None when nothing like it has ended."""
        work = self.known(work)
        if work not in self._like:
            found = [level.usual(alike) for level, alike in zip(self._levels, work.classes(), strict=True)]
            self._like[work] = _surest(found)
        if job not in self._jobs:
            return self._like[work]
        return _surest([self._jobs.usual(job), self._like[work]])


class _Level:
    """Classes of one kind, such as those of one owner and size."""

    def __init__(self) -> None:
        self._logs: dict[Hashable, deque[float]] = {}
        #: of all classes: the squares of what their runs differ from their means, and how many are free to differ
        self._squares, self._free = 0.0, 0

    def __contains__(self, alike: Hashable) -> bool:
        return alike in self._logs

    def add(self, alike: Hashable, log: float) -> None:
        logs = self._logs.setdefault(alike, deque(maxlen=MOST_ALIKE))
        squares, free = _squares(logs), max(0, len(logs) - 1)
        logs.append(log)
        self._squares += _squares(logs) - squares
        self._free += len(logs) - 1 - free

    def usual(self, alike: Hashable) -> Like | None:
        logs = self._logs.get(alike)
        if logs is None:
            return None
        count = len(logs)
        usual = (self._squares + PRIOR_RUNS) / (self._free + PRIOR_RUNS)
        variance = (_squares(logs) + USUAL_RUNS * usual) / (count - 1 + USUAL_RUNS)
        return Like(logs, NormalDist(sum(logs) / count, math.sqrt(variance * (1 + 1 / count))))


def _squares(logs: deque[float]) -> float:
    middle = sum(logs) / len(logs) if logs else 0.0
    return sum((one - middle) ** 2 for one in logs)


def _surest(found: list[Like | None]) -> Like | None:
    """The narrowest class first: of equally sure ones it is taken."""
    return min((one for one in found if one is not None), key=lambda one: one.stdev, default=None)
