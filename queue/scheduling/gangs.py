"""One pass: requests in rank order are started, or wait with a claim, or cause others to be stopped.

For each request, the first that works:
 1. free slots that nobody of higher standing needs: start;
 2. slots that are being freed already: wait, and claim them;
 3. free slots kept for a gang that cannot use them yet: start on sufferance;
 4. stop work of lower standing, as little as possible and only if that is enough: wait, and claim them;
 5. a gang reserves the hosts where it can start soonest.
The rules of a scheduler (who stands before whom, who may stop whom) come from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from scheduling import fitting, reasons
from scheduling.board import Board, Chooser, Host, Run
from scheduling.fitting import Parts, Shape
from scheduling.reasons import Reason, ReleaseCode
from scheduling.world import Release, Request, Snapshot, Start


class Rules(Protocol):
    """What differs between schedulers."""

    def may_stop(self, request: Request, run: Run) -> bool:
        """May `run` be stopped so that `request` starts? Later requests of one `rights` may stop no more."""

    def release_code(self, request: Request, run: Run) -> ReleaseCode: ...

    def rights(self, request: Request) -> str:
        """Requests with one answer have the same rights, falling in rank order."""

    def borrows(self, request: Request) -> bool:
        """May it start on slots that are kept for a gang, to be stopped when the gang can start?"""

    def reserves(self, request: Request) -> bool: ...

    def always_on_sufferance(self, request: Request) -> bool: ...


class Pass:
    """Places requests on one board; the outcome gathers in the public fields."""

    def __init__(self, snapshot: Snapshot, board: Board, rules: Rules, held_by_job: dict[str, int]) -> None:
        self.starts: list[Start] = []
        self.releases: list[Release] = []
        self.waits: dict[str, Reason] = {}
        self.reservations: dict[str, tuple[str, ...]] = {}
        self.forecast: dict[str, tuple[float, float] | None] = {}
        self._snapshot = snapshot
        self._board = board
        self._rules = rules
        self._held_by_job = held_by_job
        self._hopeless: dict[tuple[Shape, bool], Reason | None] = {}
        self._stuck: dict[tuple[Shape, bool, str], Reason] = {}
        self._choosers: dict[tuple[Shape, str], tuple[Chooser, list[Request]]] = {}
        self._coming: dict[Shape, Chooser] = {}
        self._unreservable: set[tuple[Shape, str]] = set()

    def run(self, queue: Iterable[Request]) -> None:
        for request in queue:
            reason = self._place(request)
            if reason is not None:
                self.waits[request.task_id] = reason

    def _place(self, request: Request) -> Reason | None:
        """Why it waits, or None if it starts."""
        if request.blocked_reason is not None:
            return reasons.blocked(request.blocked_reason)
        shape = Shape.of(request, self._snapshot.pool.allow_heterogeneous_fits)
        hopeless = self._is_hopeless(request, shape) or self._over_limit(request)
        if hopeless is not None:
            return hopeless
        rights = self._rules.rights(request)
        key = (shape, self._rules.borrows(request), rights)
        stuck = self._stuck.get(key)
        own = self._board.stopping_for.get(request.task_id)
        if stuck is None or own:
            if self._start(request, fitting.now(self._board, shape), False):
                return None
            reason = self._await_stops(request, shape, own or [])
            if reason is not None:
                return reason
            if key[1] and self._start(request, fitting.on_sufferance(self._board, shape), True):
                return None
            reason = self._stop_others(request, shape, rights)
            if reason is not None:
                return reason
            self._stuck[key] = stuck = self._no_room(request, shape)
        return self._reserve(request, shape, rights) or stuck

    def _is_hopeless(self, request: Request, shape: Shape) -> Reason | None:
        key = (shape, request.slots == 0)
        if key not in self._hopeless:
            reason = fitting.never(self._snapshot, shape, request.slots)
            off = None if reason else fitting.needs_hosts_that_are_off(self._snapshot, shape, request.slots)
            self._hopeless[key] = reason or off
        return self._hopeless[key]

    def _over_limit(self, request: Request) -> Reason | None:
        if request.max_slots is None or request.slots == 0:
            return None
        if request.slots > request.max_slots:
            return reasons.over_max_slots(request.slots, request.max_slots)
        held = self._held_by_job.get(request.job_id, 0)
        if held + request.slots > request.max_slots:
            return reasons.max_slots(held, request.slots, request.max_slots)
        return None

    def _start(self, request: Request, parts: Parts | None, on_sufferance: bool) -> bool:
        if parts is None:
            return False
        hosts = []
        for host, count in parts:
            ids = self._board.take(host, count)
            hosts.append((host.view.id, ids))
        on_sufferance = on_sufferance or self._rules.always_on_sufferance(request)
        self.starts.append(Start(request.task_id, tuple(hosts), on_sufferance))
        self._count(request)
        return True

    def _count(self, request: Request) -> None:
        """What a job is about to hold counts against its max_slots like what it holds."""
        self._held_by_job[request.job_id] = self._held_by_job.get(request.job_id, 0) + request.slots

    def _await_stops(self, request: Request, shape: Shape, own: list[Host]) -> Reason | None:
        parts = fitting.after_stops(self._board, shape, own, lambda: self._first_to_come_free(shape))
        return None if parts is None else self._pledge(request, parts)

    def _first_to_come_free(self, shape: Shape) -> Host | None:
        if shape not in self._coming:
            among = (host for host in self._board.hosts if host.cap >= shape.need)
            self._coming[shape] = Chooser(
                self._board, lambda host: () if fitting.comes_free(host, shape) else None, among
            )
        return self._coming[shape].best()

    def _pledge(self, request: Request, parts: Parts) -> Reason:
        """Claim slots that are free or being freed: nobody else may use them."""
        shown, by = [], dict[str, None]()
        for host, count in parts:
            coming = min(count, host.coming)
            shown.append((host.view.name, count - coming, coming))
            by.update((run.request.label, None) for run in host.runs if run.stopping)
            self._board.claim(host, count, request, pledged=True)
        self._count(request)
        return reasons.coming_free(request.slots, shown, list(by))

    def _stop_others(self, request: Request, shape: Shape, rights: str) -> Reason | None:
        may_stop = self._may_stop(request)
        single = self._cheapest_host(request, shape, rights)
        found = fitting.by_stopping(self._board, shape, may_stop, single)
        if found is None:
            return None
        parts, victims = found
        for run in victims:
            self._board.stop(run)
            code = self._rules.release_code(request, run)
            release = Release(run.placement.allocation_id, run.request.task_id, request.task_id, code.value)
            self.releases.append(release)
        reason = self._pledge(request, parts)
        if any(self._board.hosts[index].soon > 0 for run in victims for index in run.parts):
            self._stuck.clear()  # more comes free than this request needs
        return reason

    def _may_stop(self, request: Request) -> Callable[[Run], bool]:
        return lambda run: self._rules.may_stop(request, run)

    def _cheapest_host(self, request: Request, shape: Shape, rights: str) -> Host | None:
        """The host where stopping the least makes room for it. One chooser serves all of one shape."""
        known = self._choosers.get((shape, rights))
        if known is not None:
            known[1][0] = request
            return known[0].best()
        current = [request]

        def cost(host: Host) -> tuple[float, ...] | None:
            asking = current[0]
            victims = fitting.victims_on(host, shape.need, lambda run: self._rules.may_stop(asking, run))
            return None if victims is None else fitting.price(victims)

        among = [
            h for h in self._board.hosts if h.cap >= shape.need and h.runs and not h.avoided(shape.avoid)
        ]
        chooser = Chooser(self._board, cost, among)
        self._choosers[(shape, rights)] = (chooser, current)
        return chooser.best()

    def _reserve(self, request: Request, shape: Shape, rights: str) -> Reason | None:
        """Keep the hosts where a gang can start soonest. One slot needs none: it gets what comes free."""
        full = len(self.reservations) >= self._snapshot.pool.max_reservations
        if (
            request.slots < 2
            or full
            or (shape, rights) in self._unreservable
            or not self._rules.reserves(request)
        ):
            return None
        found = fitting.soonest(self._board, shape, self._may_stop(request), self._snapshot.now)
        if found is None:
            self._unreservable.add((shape, rights))
            return None
        parts, when = found
        shown, by = [], dict[str, None]()
        for host, count in parts:
            free = max(0, min(count, host.soon))
            shown.append((host.view.name, free, count - free))
            by.update((run.request.label, None) for run in host.runs if not run.stopping)
            self._board.claim(host, count, request, pledged=False)
        self.reservations[request.task_id] = tuple(host.view.id for host, _ in parts)
        self.forecast[request.task_id] = when
        self._count(request)
        return reasons.held(request.slots, shown, list(by))

    def _no_room(self, request: Request, shape: Shape) -> Reason:
        """The reason that all requests of this shape share."""
        for host in self._board.hosts:
            if request.slots and host.free >= shape.need and not host.avoided(shape.avoid) and host.by:
                return reasons.kept_for(host.free, host.view.name, [other.label for other in host.by])
        largest = max(self._board.by_cap, default=0)
        whole = 0 if shape.need <= largest or not largest else -(-shape.need // largest)
        notes = []
        for host in self._board.hosts:
            outside = [slot.outside for slot in host.view.slots if slot.outside is not None]
            if outside:
                whom = reasons.listed(list(dict.fromkeys(outside)))
                notes.append(f"{host.view.name} is held from outside ({whom}, {len(outside)})")
        ends = [(run.placement.ends[1], run.request.label) for run in self._board.runs if run.placement.ends]
        if ends and request.slots:
            notes.insert(0, f"first to end: {min(ends)[1]}")
        return reasons.no_room(request.slots, whole, notes[:4])
