"""The working copy that one pass fills in: what is free, what is coming free, and what is spoken for.

Two boards are made of a snapshot: one of slots, one of places for zero-slot work. A pass takes free slots,
turns stopped runs into slots that are coming free, and lays claims for gangs that wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

from scheduling.ranking import standing
from scheduling.world import HostView, Placement, Request, Snapshot


class Run:
    """A running request and how many usable slots it holds on each host."""

    __slots__ = ("held", "parts", "placement", "request", "stopping")

    def __init__(self, request: Request, placement: Placement) -> None:
        self.request = request
        self.placement = placement
        self.stopping = placement.stopping
        self.parts: dict[int, int] = {}  # host index -> usable slots held there
        self.held = 0  # slots held anywhere, usable or not


class Host:
    """One host while the pass goes on. Slots are counted; `ids` names the free ones, lowest index last."""

    __slots__ = (
        "by",
        "cap",
        "claimed",
        "coming",
        "free",
        "ids",
        "index",
        "pledged",
        "runs",
        "strangers",
        "view",
    )

    def __init__(self, index: int, view: HostView) -> None:
        self.index = index
        self.view = view
        self.cap = 0  # what may be placed here when it is empty
        self.free = 0
        self.coming = 0  # held by runs that are stopping
        self.claimed = 0  # spoken for by requests of higher standing that wait
        self.pledged = 0  # of these, by requests that start as soon as the stopping runs have ended
        self.strangers = 0  # held slots on which nothing new may be placed
        self.ids: list[int] = []
        self.runs: list[Run] = []
        self.by: list[Request] = []  # who laid the claims

    @property
    def soon(self) -> int:
        """Unclaimed slots once the runs that are stopping have ended."""
        return self.free + self.coming - self.claimed

    @property
    def firm(self) -> int:
        """Free slots that nobody of higher standing needs."""
        return min(self.free, self.free + self.coming - self.claimed)

    @property
    def lendable(self) -> int:
        """Free slots that may be used on sufferance: kept for a gang, but not about to be used by one."""
        return min(self.free, self.free + self.coming - self.pledged)

    def avoided(self, avoid: frozenset[str]) -> bool:
        return bool(avoid) and (self.view.id in avoid or self.view.name in avoid)


class Board:
    """All hosts on which something may be placed, and all runs."""

    def __init__(self, hosts: list[Host], runs: list[Run], worst: bool) -> None:
        self.hosts = hosts
        self.runs = runs
        self.worst = worst
        self.by_cap: dict[int, list[Host]] = {}
        self.stopping_for: dict[str, list[Host]] = {}
        self.reserved: dict[int, Host] = {}  # hosts with claims of gangs that cannot use them yet
        self.touched: list[int] = []  # host indexes in the order of change; choosers read it from a cursor
        self._buckets: dict[int, dict[int, list[int]]] = {}  # cap -> firm free slots -> heap of host indexes
        for host in hosts:
            if host.cap:
                self.by_cap.setdefault(host.cap, []).append(host)
                self._file(host)
        for run in runs:
            if run.stopping and run.placement.stopping_for is not None:
                here = self.stopping_for.setdefault(run.placement.stopping_for, [])
                here.extend(hosts[index] for index in run.parts)

    def _file(self, host: Host) -> None:
        if host.firm > 0:
            heapq.heappush(self._buckets.setdefault(host.cap, {}).setdefault(host.firm, []), host.index)

    def _changed(self, host: Host) -> None:
        self.touched.append(host.index)
        self._file(host)

    def take(self, host: Host, count: int) -> tuple[int, ...]:
        """Give `count` free slots away for good; their ids, by index."""
        ids = tuple(host.ids.pop() for _ in range(count)) if host.ids else ()
        host.free -= count
        self._changed(host)
        return ids

    def claim(self, host: Host, count: int, request: Request, pledged: bool) -> None:
        host.claimed += count
        if pledged:
            host.pledged += count
        else:
            self.reserved[host.index] = host
        host.by.append(request)
        self._changed(host)

    def stop(self, run: Run) -> None:
        run.stopping = True
        for index, count in run.parts.items():
            self.hosts[index].coming += count
            self._changed(self.hosts[index])

    def firm_hosts(self, need: int, avoid: frozenset[str]) -> Iterator[Host]:
        """Hosts with `need` firm free slots, in the pool's order of fitting; lazily."""
        levels: list[tuple[float, int, int]] = []
        for cap, buckets in self._buckets.items():
            if cap >= need:
                for free in buckets:
                    if free >= need:
                        levels.append((-free / cap if self.worst else free, cap, free))
        for _, cap, free in sorted(levels):
            yield from self._bucket(self._buckets[cap], free, avoid)

    def _bucket(self, buckets: dict[int, list[int]], free: int, avoid: frozenset[str]) -> Iterator[Host]:
        heap = buckets[free]
        while heap and self.hosts[heap[0]].firm != free:
            heapq.heappop(heap)
        if not heap:
            del buckets[free]
            return
        if not self.hosts[heap[0]].avoided(avoid):
            yield self.hosts[heap[0]]
        for index in sorted(set(heap)):
            host = self.hosts[index]
            if host.firm == free and not host.avoided(avoid):
                yield host


class Chooser:
    """The host of least cost, kept up to date as the board changes. `cost` answers None for "not here".

    Costs may rise between two questions (later requests have fewer rights), and change where the board was
    touched; nowhere else may they fall.
    """

    def __init__(
        self, board: Board, cost: Callable[[Host], tuple[float, ...] | None], among: Iterable[Host]
    ) -> None:
        self._board = board
        self._cost = cost
        self._among = {host.index for host in among}
        self._heap: list[tuple[tuple[float, ...], int]] = []
        self._cursor = len(board.touched)
        for index in self._among:
            self._add(index)

    def _add(self, index: int) -> None:
        cost = self._cost(self._board.hosts[index])
        if cost is not None:
            heapq.heappush(self._heap, (cost, index))

    def best(self) -> Host | None:
        """The cheapest host as the board stands now (ties: the first in the snapshot), or None."""
        for index in set(self._board.touched[self._cursor :]) & self._among:
            self._add(index)
        self._cursor = len(self._board.touched)
        while self._heap:
            cost, index = self._heap[0]
            fresh = self._cost(self._board.hosts[index])
            if fresh == cost:
                return self._board.hosts[index]
            heapq.heappop(self._heap)
            if fresh is not None:
                heapq.heappush(self._heap, (fresh, index))
        return None


def slot_board(snapshot: Snapshot, order: Callable[[Run], tuple[float, ...]]) -> Board:
    """The board of slots. `order` sorts the runs of a host: who is stopped first stands first."""
    hosts = [Host(index, view) for index, view in enumerate(snapshot.hosts)]
    usable: dict[int, int] = {}  # slot id -> host index
    for host in hosts:
        on = host.view.off is None
        for slot in sorted(host.view.slots, key=lambda slot: slot.index, reverse=True):
            if on and slot.usable:
                host.cap += 1
                usable[slot.id] = host.index
                if slot.held_by is None:
                    host.ids.append(slot.id)
            elif slot.held_by is not None:
                host.strangers += 1
        host.free = len(host.ids)
    runs = []
    for request in snapshot.requests:
        if request.running is not None and request.slots > 0:
            run = Run(request, request.running)
            for ids in request.running.slots.values():
                run.held += len(ids)
                for slot_id in ids:
                    index = usable.get(slot_id)
                    if index is not None:
                        run.parts[index] = run.parts.get(index, 0) + 1
            runs.append(run)
    return _with_runs(hosts, runs, snapshot.pool.fitting == "worst", order)


def aux_board(snapshot: Snapshot, order: Callable[[Run], tuple[float, ...]]) -> Board:
    """The board of places for zero-slot work, one place a run."""
    hosts = [Host(index, view) for index, view in enumerate(snapshot.hosts)]
    index_of = {view.id: index for index, view in enumerate(snapshot.hosts)}
    for host in hosts:
        if host.view.off is None:
            host.cap = host.view.aux_capacity
            host.free = max(0, host.cap - host.view.aux_held)
    runs = []
    for request in snapshot.requests:
        if request.running is not None and request.slots == 0:
            run = Run(request, request.running)
            run.held = len(request.running.slots)
            run.parts = {
                index_of[h]: 1 for h in request.running.slots if h in index_of and hosts[index_of[h]].cap
            }
            runs.append(run)
    return _with_runs(hosts, runs, snapshot.pool.fitting == "worst", order)


def _with_runs(
    hosts: list[Host], runs: list[Run], worst: bool, order: Callable[[Run], tuple[float, ...]]
) -> Board:
    last_first = sorted(runs, key=lambda run: standing(run.request), reverse=True)
    for run in sorted(last_first, key=order):
        for index, count in run.parts.items():
            hosts[index].runs.append(run)
            if run.stopping:
                hosts[index].coming += count
    return Board(hosts, runs, worst)
