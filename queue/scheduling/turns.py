"""What is the same in all futures of a pool: its hosts, what runs on them, and the order in which work is placed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from scheduling import policies
from scheduling.durations import Span
from scheduling.policy import Key
from scheduling.spares import Spares
from scheduling.timeline import Ask, Limit, Parts
from scheduling.windows import NOWHERE, Closings
from scheduling.world import HostView, Plan, Request, Snapshot

#: the limit that all work shares which may not be stopped
UNPREEMPTIBLE = ""


@dataclass(frozen=True, slots=True)
class Running:
    """A run, or one that starts now. `left`: seconds until it ends by itself, None when unknown.

    `again`: it is being stopped and will wait again. `gives_way`: a higher priority may stop it, but not before
    `young_until`. `on_sufferance`: every request before it in the queue may stop it; all others are before what yields.
    `cut`: when it is asked to save for a window.
    """

    request: Request
    parts: Parts
    left: Span | None
    stopping: bool = False
    again: bool = False
    gives_way: bool = False
    on_sufferance: bool = False
    young_until: float = 0.0
    cut: float = inf

    @property
    def yields(self) -> bool:
        """Is it stopped for others, or may it be?"""
        return self.again or self.on_sufferance or self.gives_way


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Work that may be submitted later and goes before some of what waits now."""

    key: Key
    ask: Ask
    at: float
    lasts: float


Turn = tuple[Key, Request | Running]

#: (last, until, slots): between these times, so many slots are closed to a request
ClosedSlots = tuple[tuple[float, float, int], ...]


def _request_of(turn: Request | Running) -> Request:
    return turn if isinstance(turn, Request) else turn.request


class Play:
    """What is the same in all futures: the hosts, what runs on them, and `waiting` in the order of its turns.

    `waiting` is slot work or zero-slot work; the two have nothing in common.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        plan: Plan,
        waiting: list[Request],
        closings: Closings | None,
        spares: Spares | None,
    ) -> None:
        self.waiting = waiting
        self.policy = policies.of(snapshot.pool.scheduler)
        self._by_priority = "priority" in self.policy.knobs
        #: as the plan has it: the first after the last
        self._groups = bool(snapshot.pool.shares) and self._by_priority
        self._stops_runs = self.policy.stops_runs(snapshot.pool.preemption)
        self._snapshot = snapshot
        self._aux = waiting[0].slots == 0
        self._hosts = {view.id: index for index, view in enumerate(snapshot.hosts)}
        self._closings, self._spares = closings, spares
        #: when windows are over
        self.opens = [one.window.ends for one in self._closings.taken] if self._closings else []
        self._cuts = self._closings.cuts(snapshot) if self._closings else {}
        self._known_bans: dict[frozenset[str], frozenset[int]] = {}
        self._usable = {
            slot.id for view in snapshot.hosts if view.off is None for slot in view.slots if slot.usable
        }
        self._apart = frozenset(
            frozenset(self._hosts[host] for host in pair)
            for pair in snapshot.pool.bad_pairs
            if all(host in self._hosts for host in pair)
        )
        self.caps = [self._cap(view) for view in snapshot.hosts]
        self.runs = list(self._runs(plan))
        self.free = list(self.caps)
        for run in self.runs:
            for index, count in run.parts.items():
                self.free[index] = max(0, self.free[index] - count)
        self.turns = sorted(self._turns(plan), key=lambda turn: turn[0])
        #: the keys of those that do not yield, which nothing that yields may change
        self.ordinary = [key for key, turn in self.turns if not _request_of(turn).yields]
        self.asks = {
            request.task_id: self.ask_of(request) for request in [*waiting, *(r.request for r in self.runs)]
        }

    def _cap(self, view: HostView) -> int:
        if self._aux:
            return view.aux_capacity if view.off is None else 0
        return sum(slot.id in self._usable for slot in view.slots)

    def _runs(self, plan: Plan) -> Iterator[Running]:
        now = self._snapshot.now
        starts = {start.task_id: start for start in plan.starts}
        released = {release.allocation_id for release in plan.releases}
        for request in self._snapshot.requests:
            if (request.slots == 0) is not self._aux:
                continue
            start, placement = starts.get(request.task_id), request.running
            if start is not None:
                yield Running(
                    request,
                    self._parts(dict(start.hosts)),
                    request.lasts,
                    gives_way=self._may_be_stopped(request),
                    on_sufferance=(lent := self._is_lent(request, start.on_sufferance)),
                    young_until=self._young_until(request, now, lent),
                )
            elif placement is not None:
                left = None if placement.ends is None else (placement.ends[0] - now, placement.ends[1] - now)
                again = placement.allocation_id in released or placement.waits_again
                stopping = again or placement.stopping
                lent = self._is_lent(request, placement.on_sufferance)
                yield Running(
                    request,
                    self._parts(placement.slots),
                    left,
                    stopping,
                    again,
                    gives_way=not stopping and self._may_be_stopped(request),
                    on_sufferance=not stopping and lent,
                    young_until=self._young_until(request, placement.running_since or now, lent),
                    cut=inf if stopping else self._cuts.get(request.task_id, inf),
                )

    def _may_be_stopped(self, request: Request) -> bool:
        by_priority = self._by_priority and not self._groups
        return request.preemptible and self._stops_runs and by_priority and not self._aux

    def _is_lent(self, request: Request, on_sufferance: bool) -> bool:
        """Whether it only has its slots until another request needs them. Where no run is stopped, it keeps them."""
        return self._stops_runs and (on_sufferance or request.yields)

    def _young_until(self, request: Request, since: float, is_lent: bool) -> float:
        return 0.0 if is_lent else since + self._snapshot.pool.min_runtime_of(request.priority)

    def _parts(self, slots: Mapping[str, tuple[int, ...]]) -> Parts:
        parts = {}
        for host_id, ids in slots.items():
            index = self._hosts.get(host_id)
            if index is not None and self.caps[index]:
                parts[index] = 1 if self._aux else sum(slot in self._usable for slot in ids)
        return {index: count for index, count in parts.items() if count}

    def _turns(self, plan: Plan) -> Iterator[Turn]:
        """What is placed in turn: what waits, what will wait again, and runs that give way to what is before them.

        What yields comes behind all others, wherever it is in the queue.
        """
        runs = {run.request.task_id: run for run in self.runs}
        requests = {request.task_id: request for request in self._snapshot.requests}
        asked = {request.task_id for request in self.waiting}
        highest = min((one.priority for one in self.waiting if not one.yields), default=inf)
        held: dict[str, float] = {}
        for place, task in enumerate(plan.order):
            run, request = runs.get(task), requests[task]
            if run is None and task not in asked:
                continue
            before = held.get(request.job_id, 0)
            held[request.job_id] = before + max(1, request.slots)
            firm = run is not None and not run.again and not run.on_sufferance
            if request.yields:
                key: Key = (inf, place)
            elif self._groups:
                key = (place,)
            else:
                key = self.policy.turn(request, before, firm, place)
            if run is None:
                yield key, request
            elif run.again or run.on_sufferance or (run.gives_way and request.priority > highest):
                yield key, run
            elif run.cut < inf:
                yield key, replace(run, gives_way=False)

    def key_of_next(self, request: Request) -> Key:
        """When the turn of a similar request would come if it were submitted later; among groups, last."""
        return (inf,) if self._groups else self.policy.turn_of_next(request)

    def is_of_its_kind(self, request: Request) -> bool:
        """Slot work, or zero-slot work, like what is played here?"""
        return (request.slots == 0) is self._aux

    def ask_of(self, request: Request) -> Ask:
        pool = self._snapshot.pool
        limit = None
        group = next((name for name in request.groups if self._limit_of(name) is not None), None)
        if request.max_slots is not None:
            limit = request.job_id
        elif group is not None:
            limit = f"group {group}"
        elif pool.unpreemptible_slots is not None and not request.preemptible:
            limit = UNPREEMPTIBLE
        return Ask(
            slots=max(1, request.slots),
            single_host=request.single_host,
            borrows=request.preemptible and self._stops_runs,
            banned=self._banned(self._avoided_by(request)),
            apart=self._apart,
            mixed=pool.allow_heterogeneous_fits,
            limit=limit,
            closings=self._closings_of(request),
        )

    def _closings_of(self, request: Request) -> tuple[tuple[float, float, frozenset[int]], ...]:
        if self._closings is None:
            return ()
        return tuple(
            (last, until, frozenset(self._hosts[host] for host in hosts))
            for last, until, hosts in self._closings.times(request)
        )

    @property
    def taken(self) -> list[tuple[float, float, int]]:
        """(start, end, slots) of each window."""
        found = self._closings.taken if self._closings else []
        return [(one.window.starts, one.window.ends, self._slots_of(one.hosts)) for one in found]

    def closed_slots(self, requests: Iterable[Request]) -> list[ClosedSlots]:
        """How many slots windows close to each request, and when. Requests that are alike share one answer."""
        if self._closings is None:
            return [() for _ in requests]
        known: dict[object, ClosedSlots] = {}
        found = []
        for request in requests:
            key = self._closings.alike(request)
            if key not in known:
                times = self._closings.times(request)
                known[key] = tuple((last, until, self._slots_of(hosts)) for last, until, hosts in times)
            found.append(known[key])
        return found

    def _avoided_by(self, request: Request) -> frozenset[str]:
        """With the spares that it may not use."""
        kept = self._spares.closed(request) if self._spares is not None else NOWHERE
        return request.avoid_hosts | kept if kept else request.avoid_hosts

    @property
    def slots_for_all(self) -> int:
        """Slots of the pool that ordinary work gets."""
        kept = self._spares.ids if self._spares is not None and not self._aux else NOWHERE
        return sum(self.caps) - self._slots_of(kept)

    def _slots_of(self, hosts: Iterable[str]) -> int:
        return sum(self.caps[self._hosts[host]] for host in hosts)

    def _limit_of(self, group: str) -> int | None:
        share = self._snapshot.pool.shares.get(group)
        return share.limit if share else None

    def _banned(self, avoided: frozenset[str]) -> frozenset[int]:
        """The same of all that avoid the same: in some pools that is nearly all work."""
        if avoided not in self._known_bans:
            self._known_bans[avoided] = frozenset(
                index
                for index, view in enumerate(self._snapshot.hosts if avoided else ())
                if view.id in avoided or view.name in avoided
            )
        return self._known_bans[avoided]

    def limits(self) -> dict[str, Limit]:
        """A fresh book of who may hold how much."""
        limits = {
            request.job_id: Limit(request.max_slots)
            for request in self.waiting
            if request.max_slots is not None
        }
        for name in self._snapshot.pool.shares:
            if (most := self._limit_of(name)) is not None:
                limits[f"group {name}"] = Limit(most)
        if self._snapshot.pool.unpreemptible_slots is not None:
            limits[UNPREEMPTIBLE] = Limit(self._snapshot.pool.unpreemptible_slots)
        return limits
