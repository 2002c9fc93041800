"""Spares: hosts that a pool keeps for attempts whose own host has failed.

Each pass chooses the pool's `spare_hosts` again: first of the hosts that are free and healthy, and if these are too
few, those where the least still runs. Other work is not placed on any of them, so what runs there ends in its own time,
and the host is free for the next fault. Nothing is stopped to get a spare. Hosts are chosen last that came free because
work was stopped for a request that still waits: otherwise that work would have been stopped for a spare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import takewhile
from math import inf
from typing import Any

from scheduling import reasons
from scheduling.fitting import Shape
from scheduling.reasons import Reason, WaitCode
from scheduling.values import value
from scheduling.windows import NOWHERE, Closings
from scheduling.world import HostView, Plan, Request, Snapshot, Spare

#: as whose share spares count among groups of people, none of which has such a name
RECOVERIES = "/recoveries"


@value
class _Candidate:
    """`taken`: slots that other work holds, by `runs` (allocation ids). `left`: slots that a recovery may have.

    `stoppable`: how easily others may stop one of these runs: by the lowest priority, or at once. `closes`: a window is
    so near that not all work may start there.
    """

    host: HostView
    taken: int
    left: int
    runs: tuple[str, ...]
    stoppable: float
    some_yield: bool
    closes: bool


class Spares:
    """The spares of a pool at one moment, found once in a pass."""

    @classmethod
    def of(cls, snapshot: Snapshot, closings: Closings | None) -> Spares | None:
        """None for a pool that keeps none. A host at least is left for all work, whatever has become of the others."""
        if not snapshot.pool.spare_hosts:
            return None
        hosts = len(snapshot.pool.unready) + sum(bool(host.slots) for host in snapshot.hosts)
        most = min(snapshot.pool.spare_hosts, hosts - 1)
        return cls(snapshot, closings, hosts, most) if most > 0 else None

    def __init__(self, snapshot: Snapshot, closings: Closings | None, hosts: int, most: int) -> None:
        from scheduling import policies  # which ask prospects, and those ask this module

        self._hosts, self.count = hosts, most
        self._pool = snapshot.pool
        #: elsewhere what yields runs to its end, and a recovery would wait for it
        self._yielding_stops = policies.of(self._pool.scheduler).stops_runs(self._pool.preemption)
        chosen = _chosen(snapshot, list(self._candidates(snapshot, closings)), most, self.may_use)
        self._chosen = {one.host.id: one for one in chosen}
        self.ids = frozenset(self._chosen)
        #: `1 host is kept as a spare (gpu-4)`
        self.note = reasons.spares_kept([one.host.name for one in chosen])
        #: slots of spares that only recoveries get
        self.slots = sum(one.left for one in chosen)
        #: with those that other work still holds
        self.usable = sum(slot.usable for one in chosen for slot in one.host.slots)
        self._labels = {
            each.running.allocation_id: each.label for each in snapshot.requests if each.running is not None
        }

    def _candidates(self, snapshot: Snapshot, closings: Closings | None) -> Iterator[_Candidate]:
        """Hosts with a slot that can be used, but for those that a window takes now."""
        placed = {each.running.allocation_id: each for each in snapshot.requests if each.running is not None}
        yielding = {run for run, each in placed.items() if each.yields and self.may_use(each)}
        near = snapshot.now + snapshot.pool.window_ahead
        soon = [each.hosts for each in closings.taken if each.window.starts <= near] if closings else []
        closing = NOWHERE.union(*soon)
        for host in snapshot.hosts:
            usable = [slot for slot in host.slots if slot.usable] if host.off is None else []
            if not usable or (closings is not None and host.id in closings.owners):
                continue
            held = [slot for slot in host.slots if slot.held_by is not None and slot.cleaning is None]
            holders = [slot.held_by for slot in held if slot.held_by is not None]
            runs = [holder for holder in holders if holder not in yielding]
            left = sum(slot.held_by is None or slot.held_by in yielding for slot in usable)
            stoppable = max((_stoppable(placed[run]) for run in runs if run in placed), default=0.0)
            kept = tuple(dict.fromkeys(runs))
            some_yield = len(holders) > len(runs)
            yield _Candidate(host, len(runs), left, kept, stoppable, some_yield, host.id in closing)

    def may_use(self, request: Request) -> bool:
        """May it be placed on a spare? What needs no slots takes nothing from a recovery."""
        return request.recovers or not request.slots or (request.yields and self._yielding_stops)

    def closed(self, request: Request) -> frozenset[str]:
        """Ids of the hosts that are kept from the request."""
        return NOWHERE if self.may_use(request) else self.ids

    def shares_of(self, request: Request) -> tuple[str, ...]:
        """As whom it has slots reserved: for its groups, and while it waits to recover the spares."""
        recovering = request.recovers and request.running is None
        return (*request.groups, RECOVERIES) if recovering else request.groups

    def reason(self, request: Request) -> Reason:
        """Why a request waits that could start if nothing were kept."""
        return reasons.spare(request.slots, [one.host.name for one in self._chosen.values()])

    def never(self, asks: int, whole: int) -> Reason | None:
        """Why `whole` hosts at once are never left for all work, or None. Only the number of hosts decides that."""
        left = self._hosts - self.count
        if whole <= left:
            return None
        return reasons.never_beside_spares(asks, whole, self._hosts, self.count, self._pool.name)

    def found(self, starts: dict[str, str]) -> tuple[Spare, ...]:
        """For the plan. `starts`: host id -> the label of what the pass starts there and does not yield."""
        return tuple(
            Spare(host_id, one.host.name, one.left, tuple(self._who(one, starts)))
            for host_id, one in sorted(self._chosen.items(), key=lambda item: item[1].host.name)
        )

    def _who(self, one: _Candidate, starts: dict[str, str]) -> Iterator[str]:
        for run in one.runs:
            yield self._labels.get(run, "a run that ends")
        if one.host.id in starts:
            yield starts[one.host.id]


def _chosen(
    snapshot: Snapshot, candidates: list[_Candidate], most: int, may_use: Callable[[Request], bool]
) -> list[_Candidate]:
    """The hosts that are kept. Of equals those of the most frequent size, which stand in for most of the others.

    Of hosts that are free, those are kept last without which something that waits could not start any more. Of hosts
    where as much still runs, those whose work others may stop least: it could be stopped for them elsewhere.
    """
    waiting = [each for each in snapshot.requests if each.running is None and not may_use(each)]
    named = NOWHERE.union(*(each.only_hosts for each in waiting if each.only_hosts))
    promised = _promised(snapshot, {each.task_id for each in waiting})
    sizes = Counter(len(host.slots) for host in snapshot.hosts)
    on = Counter(len(host.slots) for host in snapshot.hosts if host.off is None)
    hopes = _hopes(waiting, on, snapshot.pool.allow_heterogeneous_fits)

    def rank(one: _Candidate) -> tuple[int, ...]:
        whole = all(slot.enabled and not slot.draining for slot in one.host.slots)
        first = 3 if one.host.name in promised else 2 if not whole else 1 if one.taken else 0
        return first, 0 if one.taken else len(one.host.slots) - one.left, one.closes

    def preference(one: _Candidate) -> tuple[float | str, ...]:
        host, size = one.host, len(one.host.slots)
        often = -sizes[size]
        return (one.taken, one.stoppable, host.name in named, often, size, one.some_yield, host.name)

    ranks = {one.host.id: rank(one) for one in candidates}
    left = sorted(candidates, key=lambda one: (ranks[one.host.id], preference(one)))
    chosen: list[_Candidate] = []
    while left and len(chosen) < most:
        alike = takewhile(lambda one: ranks[one.host.id] == ranks[left[0].host.id], left)
        needed = {size for size in on if hopes and not all(could(on - Counter([size])) for could in hopes)}
        best = next((one for one in alike if len(one.host.slots) not in needed), left[0])
        left.remove(best)
        chosen.append(best)
        on -= Counter([len(best.host.slots)])
        hopes = [could for could in hopes if could(on)]
    return chosen


def _hopes(
    waiting: Iterable[Request], sizes: Counter[int], heterogeneous: bool
) -> list[Callable[[Counter[int]], bool]]:
    """For each shape that waits and fits on hosts of these sizes: whether it fits on others."""
    from scheduling.prospects import could  # which asks this module

    shapes = {(each.slots, each.single_host) for each in waiting if each.blocked is None}
    every = [
        partial(could, shape=Shape(max(1, slots), alone or slots < 2, NOWHERE, heterogeneous))
        for slots, alone in shapes
    ]
    return [each for each in every if each(sizes)]


def _stoppable(run: Request) -> float:
    assert run.running is not None
    if not run.preemptible or run.running.stopping:
        return 0.0
    return inf if run.running.on_sufferance else run.priority


def _promised(snapshot: Snapshot, waiting: set[str]) -> set[str]:
    """Names of the hosts that are being freed for these tasks, or were when the last pass was made."""
    names = {host.id: host.name for host in snapshot.hosts}
    found = {name for task, hosts in snapshot.pool.promised.items() if task in waiting for name in hosts}
    for each in snapshot.requests:
        if each.running is not None and each.running.stopping_for in waiting:
            found.update(names[host] for host in each.running.slots if host in names)
    return found


def freed_for(snapshot: Snapshot, plan: Plan) -> dict[str, list[str]]:
    """Task -> names of the hosts where work was stopped for it, as `PoolView.promised` of the next pass.

    Also those that are still being cleaned up after that work. What only joins a stop made for others has none.
    """
    if not snapshot.pool.spare_hosts:
        return {}
    stopped_for = {one.for_task_id for one in plan.releases}
    stopped_for |= {each.running.stopping_for for each in snapshot.requests if each.running is not None}
    cleaned = {host.name for host in snapshot.hosts if any(slot.cleaning is not None for slot in host.slots)}
    found = {}
    for task, why in plan.waits.items():
        kept = [name for name in snapshot.pool.promised.get(task, ()) if name in cleaned]
        if why.code == WaitCode.COMING_FREE and task in stopped_for:
            hosts: Any = why.data["hosts"]
            kept = [*dict.fromkeys([*(name for name, *_ in hosts), *kept])]
        if kept:
            found[task] = kept
    return found
