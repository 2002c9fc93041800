"""One possible future of a pool: when each slot of each host comes free, and what is put there next, in order.

Requests are placed one after the other, each as early as those before it leave room; none delays one before it.
Where a request waits for a whole host, the slots that come free early are a hole: work that may be stopped runs
there (on sufferance) until the hole closes, and goes on elsewhere. Times are epoch seconds, infinite when unknown.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf

#: host index -> slots held there
Parts = dict[int, int]

#: what a heap is of: hosts with room for so many, holes with room, whole hosts of that size
HOST, HOLE, WHOLE = range(3)


@dataclass(slots=True)
class Limit:
    """At most `most` slots at a time for those who share it (a job with max_slots)."""

    most: int
    held: list[tuple[float, int]] = field(default_factory=list)  # (until, slots)

    def ready(self, slots: int, now: float) -> float:
        """When so many more may be held."""
        over = sum(count for until, count in self.held if until > now) + slots - self.most
        if over <= 0:
            return now
        for until, count in sorted(self.held):
            if until > now:
                over -= count
                if over <= 0:
                    return until
        return inf


@dataclass(frozen=True, slots=True)
class Ask:
    """What is to be placed. `banned`: host indexes it may not use. `apart`: pairs of hosts that no gang has both of.

    `closings`: (last, until, hosts): between these times it may not start on these hosts.
    """

    slots: int
    single_host: bool
    borrows: bool
    banned: frozenset[int] = frozenset()
    apart: frozenset[frozenset[int]] = frozenset()
    mixed: bool = False
    limit: str | None = None
    closings: tuple[tuple[float, float, frozenset[int]], ...] = ()


class Timeline:
    """`free`: for each host the times at which its slots come free; a host without slots is never used.

    `soon`: when the slots of runs that may be stopped come free; `occupy` gives back those that nobody took.
    """

    def __init__(self, now: float, soon: float, free: list[list[float]], limits: dict[str, Limit]) -> None:
        self.now = now
        self._soon = soon
        self._free = free  # hosts, then holes
        self._caps = [len(times) for times in free]
        self._hosts = len(free)
        self._until: dict[int, float] = {}  # when the holes close
        self._host_of: dict[int, int] = {}  # of the holes
        self._holes_of: dict[int, list[int]] = {}
        self._limits = limits
        self._heaps: dict[tuple[int, int], list[tuple[float, int]]] = {}
        for times in free:
            times.sort()
        self._by_cap: dict[int, int] = {}
        for cap in self._caps:
            if cap:
                self._by_cap[cap] = self._by_cap.get(cap, 0) + 1

    def when(self, ask: Ask) -> float:
        """When it would start at the earliest on a host of its own."""
        return self._open(ask, self.now)[0]

    def place(self, ask: Ask, lasts: float, ready: float = 0.0) -> float:
        """Put it where it starts first, `ready` at the earliest, and answer when; infinite if never."""
        ready = max(ready, self.now)
        limit = self._limits.get(ask.limit) if ask.limit is not None else None
        if limit is not None:
            ready = limit.ready(ask.slots, ready)
        if ready == inf:
            return inf
        start, end = self._put(ask, lasts, ready)
        if limit is not None and start < inf:
            limit.held.append((end, ask.slots))
        return start

    def _put(self, ask: Ask, lasts: float, ready: float) -> tuple[float, float]:
        """(start, last end)."""
        at, parts = self._open(ask, ready)
        sooner, hole = self._first_hole(ask, ready) if ask.borrows else (inf, None)
        if hole is not None and sooner < at:
            return sooner, self._borrow(hole, ask, sooner, lasts, at, parts)
        if at == inf or not parts:
            return inf, inf
        self._fill(parts, at, at + lasts)
        return at, at + lasts

    def _first_hole(self, ask: Ask, ready: float) -> tuple[float, int | None]:
        """The hole where it starts first, on a host that no window closes to it then."""
        banned = ask.banned
        while True:
            start, hole = self._first(ask.slots, HOLE, banned, ready)
            closed = [hosts for last, until, hosts in ask.closings if last < start < until]
            if hole is None or not any(self._host_of[hole] in hosts for hosts in closed):
                return start, hole
            banned = banned.union(*closed)

    def _borrow(self, hole: int, ask: Ask, start: float, lasts: float, at: float, parts: Parts) -> float:
        """Start in a hole; what is left when it closes goes on at `parts`. The end."""
        until = self._until[hole]
        self._fill_hole(hole, ask.slots, start + lasts)
        if start + lasts <= until:
            return start + lasts
        again = max(until, at)
        if again == inf or not parts:
            return inf
        end = again + lasts - (until - start)
        self._fill(parts, again, end)
        return end

    def occupy(self, parts: Parts, until: float, since: float | None = None) -> float:
        """Something runs here now and may be stopped for what was placed before it: when that is; else `until`.

        `since`: when its slots were given as free, if it may not be stopped before.
        """
        since = self._soon if since is None else since
        for host, count in parts.items():
            taken = self._stays(host, count, since, until)
            if taken < until:
                return taken
        return until

    def _stays(self, host: int, count: int, since: float, until: float) -> float:
        for hole in self._holes_of.get(host, ()):
            times = self._free[hole]
            if len(times) >= count and times[count - 1] <= since:
                self._fill_hole(hole, count, until)
                return min(until, self._until[hole])
        times = self._free[host]
        if len(times) >= count and times[count - 1] <= since:
            times[:count] = [until] * count
            times.sort()
            return until
        return since if since > self._soon else self.now

    def _open(self, ask: Ask, ready: float) -> tuple[float, Parts]:
        """Return the first start, `ready` at the earliest, on hosts that no window closes to it at that time.

        Each step passes the beginning or the end of a closing, so there are at most two for each of them.
        """
        start, parts = self._earliest(ask)
        at = start = max(start, ready)  # closings only delay it
        while ask.closings and at < inf:
            closed = [hosts for last, until, hosts in ask.closings if last < at < until]
            open_to_it = replace(ask, banned=ask.banned.union(*closed)) if closed else ask
            start, parts = self._earliest(open_to_it)
            start = max(start, at)
            opens = min((until for _, until, _ in ask.closings if at < until), default=inf)
            if opens < start:
                at = opens  # hosts that were closed may let it start sooner
            elif _is_closed(ask, start, parts):
                at = start
            else:
                break
        return start, parts

    def _earliest(self, ask: Ask) -> tuple[float, Parts]:
        at, host = self._first(ask.slots, HOST, ask.banned, self.now)
        best: tuple[float, Parts] = (at, {host: ask.slots} if host is not None else {})
        if ask.single_host or ask.slots < 2:
            return best
        for cap, count in self._by_cap.items():
            needs, rest = divmod(ask.slots, cap)
            if rest == 0 and 2 <= needs <= count:
                best = min(best, self._whole(ask, {cap: needs}), key=lambda one: one[0])
        if ask.mixed and best[0] == inf:
            left, wants = ask.slots, {}
            for cap in sorted(self._by_cap, reverse=True):
                wants[cap] = min(self._by_cap[cap], left // cap)
                left -= cap * wants[cap]
            if left == 0:
                best = self._whole(ask, wants)
        return best

    def _whole(self, ask: Ask, wants: dict[int, int]) -> tuple[float, Parts]:
        """The whole hosts that come free first; `wants`: size -> how many."""
        chosen: Parts = {}
        at = self.now
        for cap, count in wants.items():
            aside: list[tuple[float, int]] = []
            for _ in range(count):
                time, host = self._first(cap, WHOLE, ask.banned, self.now, aside, chosen, ask.apart)
                if host is None:
                    break
                chosen[host] = cap
                at = max(at, time)
            self._back(cap, WHOLE, aside)
        return (at, chosen) if sum(chosen.values()) == ask.slots else (inf, {})

    def _first(
        self,
        need: int,
        kind: int,
        banned: frozenset[int],
        ready: float,
        taken: list[tuple[float, int]] | None = None,
        beside: Iterable[int] = (),
        apart: frozenset[frozenset[int]] = frozenset(),
    ) -> tuple[float, int | None]:
        """The host (or the hole) where so many slots come free first. With `taken` it is taken off its heap."""
        heap = self._heap(need, kind)
        aside = [] if taken is None else taken
        answer: tuple[float, int | None] = (inf, None)
        while heap:
            known, index = heap[0]
            times = self._free[index]
            if len(times) < need:
                heapq.heappop(heap)
            elif times[need - 1] > known:
                heapq.heapreplace(heap, (times[need - 1], index))
            elif (
                self._host_of.get(index, index) in banned
                or self._until.get(index, inf) <= ready
                or (apart and _apart(index, beside, apart))
            ):
                aside.append(heapq.heappop(heap))
            else:
                answer = (max(known, ready), index)
                if taken is not None:
                    taken.append(heapq.heappop(heap))
                break
        if taken is None and aside:
            self._back(need, kind, aside)
        return answer

    def _back(self, need: int, kind: int, entries: list[tuple[float, int]]) -> None:
        for entry in entries:
            heapq.heappush(self._heaps[need, kind], entry)

    def _heap(self, need: int, kind: int) -> list[tuple[float, int]]:
        heap = self._heaps.get((need, kind))
        if heap is None:
            among = range(self._hosts, len(self._free)) if kind == HOLE else range(self._hosts)
            heap = [
                (self._free[i][need - 1], i)
                for i in among
                if len(self._free[i]) == need or (kind != WHOLE and len(self._free[i]) > need)
            ]
            heapq.heapify(heap)
            self._heaps[need, kind] = heap
        return heap

    def _fill(self, parts: Parts, start: float, end: float) -> None:
        for host, count in parts.items():
            times = self._free[host]
            if count > 1 or len(parts) > 1:
                self._open_hole(host, [time for time in times[:count] if time < start], start)
            times[:count] = [end] * count
            times.sort()

    def _open_hole(self, host: int, times: list[float], until: float) -> None:
        if not times:
            return
        hole = len(self._free)
        self._free.append(times)
        self._until[hole] = until
        self._host_of[hole] = host
        self._holes_of.setdefault(host, []).append(hole)
        for (need, kind), heap in self._heaps.items():
            if kind == HOLE and len(times) >= need:
                heapq.heappush(heap, (times[need - 1], hole))

    def _fill_hole(self, hole: int, count: int, end: float) -> None:
        kept = self._free[hole][count:]
        if end < self._until[hole]:
            kept += [end] * count
            kept.sort()
        self._free[hole] = kept


def _apart(host: int, chosen: Iterable[int], apart: frozenset[frozenset[int]]) -> bool:
    return bool(apart) and any(frozenset((host, other)) in apart for other in chosen)


def _is_closed(ask: Ask, at: float, parts: Parts) -> bool:
    return any(last < at < until and not hosts.isdisjoint(parts) for last, until, hosts in ask.closings)
