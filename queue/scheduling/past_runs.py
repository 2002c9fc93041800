"""How long past work ran, and which of it tells most about the next: durations are taken as lognormal.

Work of one job is most alike, then work of one owner with the same name and size, then less of that. Names that one
owner gives to very different work tell little, others tell nearly all: the class is taken in which durations differ
least. A class of few runs is taken to spread as classes of its level usually do.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterator
from statistics import NormalDist
from typing import NamedTuple

#: runs that stand for one class, the newest
MOST_ALIKE = 30
#: as many past runs as the guess weighs that durations spread by a factor of e, for a level of classes
PRIOR_RUNS = 2
#: as many past runs as what is usual on its level weighs, for a class
USUAL_RUNS = 4


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


class PastRuns:
    """Durations of work that ended by itself. Seconds in, distributions of their logarithms out."""

    def __init__(self) -> None:
        self._jobs = _Level()
        self._levels = (_Level(), _Level(), _Level())
        self._like: dict[Work, NormalDist | None] = {}

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

    def like(self, job: str, work: Work) -> NormalDist | None:
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

    def usual(self, alike: Hashable) -> NormalDist | None:
        logs = self._logs.get(alike)
        if logs is None:
            return None
        count = len(logs)
        usual = (self._squares + PRIOR_RUNS) / (self._free + PRIOR_RUNS)
        variance = (_squares(logs) + USUAL_RUNS * usual) / (count - 1 + USUAL_RUNS)
        return NormalDist(sum(logs) / count, math.sqrt(variance * (1 + 1 / count)))


def _squares(logs: deque[float]) -> float:
    middle = sum(logs) / len(logs) if logs else 0.0
    return sum((one - middle) ** 2 for one in logs)


def _surest(found: list[NormalDist | None]) -> NormalDist | None:
    """The narrowest class first: of equally sure ones it is taken."""
    return min((one for one in found if one is not None), key=lambda one: one.stdev, default=None)
