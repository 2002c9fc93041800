"""The working copy that one pass fills in: what is free, what is coming free, and what is spoken for.

Two boards are made of a snapshot: one of slots, one of places for zero-slot work. A pass takes free slots,
turns stopped runs into slots that are coming free, and lays claims for requests that wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from operator import attrgetter

from scheduling.host import Bins, Host, apart_of
from scheduling.runs import HeldRun, Rules, left_alone_until, stop_order
from scheduling.world import Request, SlotView, Snapshot

_slot_index = attrgetter("index")


class Board:
    """All hosts on which something may be placed, and all runs."""

    def __init__(self, snapshot: Snapshot, hosts: list[Host], runs: list[HeldRun]) -> None:
        worst = snapshot.pool.fitting == "worst"
        self.hosts = hosts
        self.runs = runs
        self.by_cap: dict[int, list[Host]] = {}  # the largest first
        for host in sorted(hosts, key=lambda host: -host.cap):
            if host.cap:
                self.by_cap.setdefault(host.cap, []).append(host)
        self.stopping_for: dict[str, set[Host]] = {}  # task id -> hosts where runs are being stopped for it
        self.claimed: dict[int, Host] = {}
        self.kept: list[Host] = []  # for requests that cannot start yet
        self.changes = 0  # how often any host has changed
        self.eased: list[int] = []  # host indexes, whenever more came free on one than is pledged there
        self.firm, self.soon, self.lendable = Bins(hosts, worst), Bins(hosts, worst), Bins(hosts, worst)
        self._place(runs)
        self.apart = apart_of(snapshot.pool.bad_pairs)

    def _place(self, runs: list[HeldRun]) -> None:
        for run in runs:
            for index, count in run.parts.items():
                host = self.hosts[index]
                if run.stopping:
                    host.stopping.append(run)
                    host.coming += count
                else:
                    host.runs.append(run)
            if run.stopping and run.placement.stopping_for is not None:
                here = self.stopping_for.setdefault(run.placement.stopping_for, set())
                here.update(self.hosts[index] for index in run.parts)
        for host in self.hosts:
            host.runs.sort(key=stop_order)
            self._changed(host)

    def hosts_for(self, need: int, whole: bool) -> list[Host]:
        """Hosts where so many slots may come free, or that may come free as a whole."""
        if whole:
            return [host for host in self.by_cap[need] if not host.strangers]
        return [host for host in self.hosts if host.cap >= need]

    @cached_property
    def _promised(self) -> frozenset[str]:
        return frozenset(host.view.id for hosts in self.stopping_for.values() for host in hosts)

    def _changed(self, host: Host) -> None:
        """File it anew: by free slots that nobody of higher standing needs (firm), by those once the stopping runs
        have ended (soon), and by free slots kept for a gang that is not about to use them (lendable)."""
        host.changes += 1
        self.changes += 1
        free, soon, left = host.loose, host.soon, host.free + host.coming - host.pledged
        self.firm.file(host, free if free < soon else soon)
        self.soon.file(host, soon)
        self.lendable.file(host, free if free < left else left)

    def promised(self, task_id: str) -> frozenset[str]:
        """Ids of the hosts where runs are being stopped for other tasks, and none for this one."""
        own = self.stopping_for.get(task_id, ())
        return self._promised.difference(host.view.id for host in own) if own else self._promised

    def take(self, host: Host, count: int) -> tuple[int, ...]:
        """Give `count` free slots away for good; their ids, by index."""
        ids = tuple(host.ids.pop() for _ in range(count)) if host.ids else ()
        host.free -= count
        self._changed(host)
        return ids

    def claim(self, host: Host, count: int, request: Request, pledged: bool) -> None:
        """`pledged`: the slots come free as soon as the stopping runs have ended, and it starts then.

        It counts on what is being freed for it, then on what is free, then on what is being freed for others.
        """
        host.claimed += count
        if pledged:
            host.pledged += count
            own = sum(run.parts[host.index] for run in host.stopping if run.stopping_for == request.task_id)
            if count > own and host.loose > 0:
                host.spoken[request.task_id] = min(count - own, host.loose)
        else:
            self.kept.append(host)
        host.by.append(request)
        self.claimed[host.index] = host
        self._changed(host)

    def unclaim(self, host: Host, count: int, request: Request) -> None:
        """Take a pledged claim back; only when nobody asks for stops or reservations any more."""
        host.claimed -= count
        host.pledged -= count
        host.spoken.pop(request.task_id, None)
        self._changed(host)

    def stop(self, runs: Iterable[HeldRun], task_id: str) -> None:
        """Their slots are coming free. Until `ease` is told so too, only who they are stopped for may claim them."""
        for run in runs:
            run.stopping, run.stopping_for = True, task_id
            for index, count in run.parts.items():
                host = self.hosts[index]
                host.runs.remove(run)
                host.stopping.append(run)
                host.coming += count

    def ease(self, runs: Iterable[HeldRun]) -> None:
        """The claims of the request for which these runs are stopped are laid: others may have, or borrow, the rest."""
        for index in sorted({index for run in runs for index in run.parts}):
            host = self.hosts[index]
            self._changed(host)
            if host.free + host.coming > host.pledged:
                self.eased.append(index)


def slot_board(snapshot: Snapshot, rules: Rules) -> Board:
    """The board of slots."""
    hosts = [Host(index, view) for index, view in enumerate(snapshot.hosts)]
    index_of = {host.view.id: host.index for host in hosts}
    partly: dict[int, frozenset[int]] = {}  # host index -> ids of its usable slots, where some are not usable
    for host in hosts:
        view = host.view
        usable = [
            slot
            for slot in view.slots
            if slot.enabled and not slot.draining and slot.outside is None and slot.cleaning is None
        ]  # usable, spelled out for speed
        if view.off is not None or len(usable) < len(view.slots):
            usable = _usable_in_part(host, usable)
            partly[host.index] = frozenset([slot.id for slot in usable])
        host.cap = len(usable)
        free = [slot for slot in usable if slot.held_by is None]
        if free:
            free.sort(key=_slot_index, reverse=True)
            host.ids = [slot.id for slot in free]
            host.free = len(free)
    runs = _held(snapshot, rules, slots=True)
    for run in runs:
        for host_id, ids in run.placement.slots.items():
            count = len(ids)
            run.held += count
            index = index_of.get(host_id)
            if index in partly:
                count = len(partly[index].intersection(ids))
            if index is not None and count:
                run.parts[index] = count
    return Board(snapshot, hosts, runs)


def _usable_in_part(host: Host, usable: list[SlotView]) -> list[SlotView]:
    """The slots where something may be placed, on a host that is off or not usable as a whole; note the others."""
    on = host.view.off is None
    may_use = {slot.id for slot in usable} if on else frozenset[int]()
    for slot in host.view.slots:
        if slot.id in may_use:
            continue
        if slot.held_by is not None:
            host.strangers += 1
        elif on and slot.cleaning is not None:
            host.cleaned.append(slot.cleaning)
    return usable if on else []


def aux_board(snapshot: Snapshot, rules: Rules) -> Board:
    """The board of places for zero-slot work, one place a run."""
    hosts = [Host(index, view) for index, view in enumerate(snapshot.hosts)]
    index_of = {view.id: index for index, view in enumerate(snapshot.hosts)}
    for host in hosts:
        if host.view.off is None:
            host.cap = host.view.aux_capacity
            host.free = max(0, host.cap - host.view.aux_held)
    runs = _held(snapshot, rules, slots=False)
    for run in runs:
        run.held = len(run.placement.slots)
        on = (index_of[host_id] for host_id in run.placement.slots if host_id in index_of)
        run.parts = {index: 1 for index in on if hosts[index].cap}
    return Board(snapshot, hosts, runs)


def _held(snapshot: Snapshot, rules: Rules, *, slots: bool) -> list[HeldRun]:
    """The runs of slot work, or of zero-slot work."""
    pool, now = snapshot.pool, snapshot.now
    return [
        HeldRun(
            request,
            request.running,
            rules,
            left_alone_until(pool, rules, request, request.running, now) if pool.min_runtime else 0.0,
            now,
        )
        for request in reversed(rules.queue)
        if request.running is not None and (request.slots > 0) is slots
    ]
