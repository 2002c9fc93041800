"""When work that is far behind in the queue starts, in each of the futures of a forecast."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import inf

from scheduling.draws import Draws, length
from scheduling.turns import ClosedSlots, Play
from scheduling.world import Request

#: of the requests before it, those in the middle of whose starts it begins
LAST_OF_NEAREST = 20


class FarQueue:
    """Starts of what is far behind in the queue: when the work that is ahead of it leaves the pool's slots free.

    It costs little for each request, and far behind it matters little on which host which slot comes free.
    """

    def __init__(self, play: Play, far: Sequence[Request], draws: Draws) -> None:
        self._far = far
        self._before = [request.task_id for request in play.waiting[-LAST_OF_NEAREST:]]
        self._capacity = max(1, play.slots_for_all)
        self._flow = Flow(play.taken)
        self._closed = play.closed_slots(far)
        #: of each request, what is known of its length, and its slots: many are alike
        self._kinds = [(length(request), max(1, request.slots)) for request in far]
        alike = dict(zip(self._kinds, far, strict=True))
        self._means = {kind: draws.means(request) for kind, request in alike.items()}

    def starts(self, number: int, near: Mapping[str, float]) -> list[float]:
        """The start of each in this future; `near`: those of what is before them.

        They begin in the middle of the last of these, of which gangs may start much later.
        """
        if not self._far:
            return []
        at = sorted(near[task] for task in self._before)[len(self._before) // 2]
        work_of = {kind: means[number] * kind[1] for kind, means in self._means.items()}
        if not self._flow:
            lasts = {kind: work / self._capacity for kind, work in work_of.items()}
            return list(accumulate([lasts[kind] for kind in self._kinds[:-1]], initial=at))
        starts = []
        for request, kind, closed in zip(self._far, self._kinds, self._closed, strict=True):
            starts.append(self._opens(at, request.slots, closed) if closed else at)
            at = self._flow.after(at, work_of[kind], self._capacity)
        return starts

    def _opens(self, at: float, slots: int, closed: ClosedSlots) -> float:
        """When enough slots are open to it, at this time or later."""
        for _ in closed:  # each step passes the end of one at least
            now = [(until, lost) for last, until, lost in closed if last < at < until]
            if not now or self._capacity - sum(lost for _, lost in now) >= max(1, slots):
                break
            at = min(until for until, _ in now)
        return at


class Flow:
    """How far work gets while windows take slots of the pool: a part of them, between a start and an end."""

    def __init__(self, taken: Sequence[tuple[float, float, int]]) -> None:
        self._taken = taken
        self._changes = sorted({at for starts, ends, _ in taken for at in (starts, ends)})

    def __bool__(self) -> bool:
        return bool(self._taken)

    def after(self, at: float, work: float, capacity: int) -> float:
        """When so many slot-seconds of work are done that begins at this time."""
        for change in [*self._changes[bisect_right(self._changes, at) :], inf]:
            lost = sum(slots for starts, ends, slots in self._taken if starts <= at < ends)
            if work <= (change - at) * (left := max(0, capacity - lost)):
                return at + work / left if left else at
            work -= (change - at) * left
            at = change
        return inf
