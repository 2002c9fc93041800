"""Which run ends first where a request may run: whom the reason of a request that waits names."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from operator import itemgetter

from scheduling.host import Host
from scheduling.runs import HeldRun
from scheduling.world import Request

#: (latest end, label, request, the run unless it starts in this pass, indexes of its hosts)
End = tuple[float, str, Request, HeldRun | None, Collection[int]]


class Ends:
    """What runs and what starts in this pass, the first to end first. What has no known end is left out."""

    def __init__(self, runs: Iterable[HeldRun], now: float) -> None:
        self._runs = runs
        self._now = now

    @cached_property
    def _ends(self) -> list[End]:
        """Made when the first request asks: in many passes none does."""
        ends: list[End] = [
            (run.placement.ends[1], run.request.label, run.request, run, run.parts)
            for run in self._runs
            if run.placement.ends
        ]
        return sorted(ends, key=itemgetter(0, 1))

    def starts(self, request: Request, hosts: Collection[int]) -> None:
        """It starts in this pass, on hosts with these indexes."""
        if request.lasts is not None:
            end = (self._now + request.lasts[1], request.label, request, None, hosts)
            insort(self._ends, end, key=itemgetter(0, 1))

    def first(self, hosts: list[Host], is_open: Callable[[Host], bool]) -> Request | None:
        """The first to end on a host that is open to the one who asks; runs that are being stopped do not count."""
        for _, _, request, run, indexes in self._ends:
            if (run is None or not run.stopping) and any(is_open(hosts[index]) for index in indexes):
                return request
        return None
