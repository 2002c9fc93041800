"""Which run ends first where a request may run: whom the reason of a request that waits names."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from itertools import islice
from operator import itemgetter

from scheduling.fitting import Shape
from scheduling.host import Host
from scheduling.runs import HeldRun
from scheduling.world import Request

#: (latest end, label, request, the run unless it starts in this pass, indexes of its hosts)
End = tuple[float, str, Request, HeldRun | None, Collection[int]]
_BY_END = itemgetter(0, 1)


class Ends:
    """What runs and what starts in this pass, the first to end first. What has no known end is left out.

    Claims only grow during a pass, so what a shape may not wait for once it may not wait for later either: each shape
    looks on from where it stopped.
    """

    def __init__(self, runs: Iterable[HeldRun], hosts: Sequence[Host], now: float) -> None:
        self._runs = runs
        self._hosts = hosts
        self._now = now
        self._first_end: dict[tuple[int, bool], int] = {}  # (need, whole) -> place in `_ends`
        self._first_open: dict[int, int] = {}  # need -> index of a host

    @cached_property
    def _ends(self) -> list[End]:
        """Made when the first request asks, or the first start of known length is added: in many passes neither is."""
        ends: list[End] = [
            (run.placement.ends[1], run.request.label, run.request, run, run.parts)
            for run in self._runs
            if run.placement.ends
        ]
        return sorted(ends, key=_BY_END)

    def starts(self, request: Request, hosts: Collection[int]) -> None:
        """It starts in this pass, on hosts with these indexes."""
        if request.lasts is not None:
            end: End = (self._now + request.lasts[1], request.label, request, None, hosts)
            place = bisect_right(self._ends, end[:2], key=_BY_END)
            self._ends.insert(place, end)
            for key, at in self._first_end.items():
                self._first_end[key] = min(at, place)

    def first(self, shape: Shape, whole: bool) -> Request | None:
        """The first to end on a host that the shape may have then; all of it, if it takes `whole` hosts.

        Runs that are being stopped do not count.
        """
        key, at = (shape.need, whole), self._first_end.get((shape.need, whole), 0)
        while at < len(self._ends) and not self._would_do(self._ends[at], shape.need, whole):
            at += 1
        self._first_end[key] = at
        for end in islice(self._ends, at, None):
            if not shape.avoid or self._would_do(end, shape.need, whole, shape.avoid):
                return end[2]
        return None

    def _would_do(self, end: End, need: int, whole: bool, avoid: frozenset[str] = frozenset()) -> bool:
        run, hosts = end[3], self._hosts
        if run is not None and run.stopping:
            return False
        return any(
            (hosts[index].cap > 0 == hosts[index].claimed if whole else _has(hosts[index], need))
            and not hosts[index].avoided(avoid)
            for index in end[4]
        )

    def open_host(self, shape: Shape) -> bool:
        """Is there a host of which nobody claims so many slots that the shape could not have its own?"""
        hosts, at = self._hosts, self._first_open.get(shape.need, 0)
        while at < len(hosts) and not _has(hosts[at], shape.need):
            at += 1
        self._first_open[shape.need] = at
        return any(
            _has(host, shape.need) and not host.avoided(shape.avoid) for host in islice(hosts, at, None)
        )


def _has(host: Host, need: int) -> bool:
    return host.cap - host.claimed >= need
