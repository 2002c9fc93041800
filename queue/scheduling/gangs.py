"""One pass: requests in rank order are started, or wait with a claim, or cause others to be stopped.

For each request, the first that works:
 1. free slots that nobody of higher standing needs: start;
 2. slots that are being freed already: wait, and claim them;
 3. free slots kept for a gang that cannot use them yet: start backfilled;
 4. stop work of lower standing, as little as possible and only if that is enough: wait, and claim them; if only hosts
    kept for such a gang have any, stop it there, to run backfilled;
 5. a gang reserves the hosts where it can start soonest.
The rules of a scheduler (who stands before whom, who may stop whom) come from outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import cached_property, partial
from math import inf
from typing import TypeVar

from scheduling import fitting, reasons
from scheduling.board import Board
from scheduling.durations import Span
from scheduling.first_to_end import Ends
from scheduling.fitting import Parts, Shape
from scheduling.host import Host
from scheduling.like_requests import Group, kind_of
from scheduling.making_room import Reserving, Stopping
from scheduling.no_room import NoRoom
from scheduling.patience import Patience
from scheduling.prospects import Prospects
from scheduling.reasons import Reason
from scheduling.runs import NO_RIGHTS, NOBODY, HeldRun, Rights, Rules, Standing, standing
from scheduling.windows import NOWHERE
from scheduling.world import Release, Request, Snapshot, Start

T = TypeVar("T")

#: kinds of requests of one group for which hosts are looked for in vain in a pass
_MOST_FRUITLESS = 20


class Pass:
    """Places requests on one board; the outcome gathers in the public fields."""

    def __init__(
        self,
        snapshot: Snapshot,
        board: Board,
        rules: Rules,
        prospects: Prospects,
        held_by_job: dict[str, int],
        patient: bool = False,
    ) -> None:
        """`patient`: who has others being stopped for it waits for these rather than take what came free elsewhere,
        perhaps by a stop for somebody else; and hosts where work is being stopped for others are taken last.
        """
        self.patient = patient
        #: something started that would have waited, or started elsewhere, in a patient pass
        self.hasty = False
        self.settled: set[str] = set()  # requests that start to stay, or wait only for stops under way
        self.starts: list[Start] = []
        self.releases: list[Release] = []
        self.waits: dict[str, Reason] = {}
        self.reservations: dict[str, tuple[str, ...]] = {}
        self._patience = Patience(snapshot)
        self._snapshot = snapshot
        self._board = board
        self._rules = rules
        self._prospects, self._closes = prospects, prospects.closes
        self._held_by_job = held_by_job
        self._running = dict(held_by_job)  # job id -> slots, of what is only claimed none
        #: job id -> elements that run or are about to, of arrays that limit how many do at once
        self._elements = Counter(run.request.job_id for run in board.runs if run.request.at_once)
        self._unpreemptible = sum(run.held for run in board.runs if not run.request.preemptible)
        self._room = rules.room and rules.room.copy()
        self._limited = (
            snapshot.pool.unpreemptible_slots is not None
            or snapshot.pool.longest_max_time is not None
            or (self._room is not None and self._room.has_limits)
        )
        self._groups: dict[tuple[object, ...], Group] = {}
        self._no_rooms: dict[tuple[object, ...], Reason] = {}
        self._stopping = Stopping(board)
        self._reserving = Reserving(board, snapshot.now)
        self._deferred: list[tuple[Request, Shape, Parts, bool]] = []
        self._ends = Ends(board.runs, board.hosts, snapshot.now)
        self._no_room = NoRoom(board, prospects, self._ends)

    def run(self, queue: Iterable[Request]) -> None:
        """`queue`: those that wait, the first first."""
        # most of a long queue is stuck, for which no more than this is done
        waits, eased, stopping_for = self.waits, self._board.eased, self._board.stopping_for
        for request in queue:
            reason = request.blocked
            if reason is None:
                group = self._group(request)
                reason = group.hopeless
                if reason is None:
                    if (
                        group.stuck is None
                        or group.stuck_at != len(eased)
                        or self._is_limited(request)
                        or request.task_id in stopping_for
                        or self._held_by_job.get(request.job_id)
                        or self._young
                        or (group.reserves and self._patience.looks_at_more(len(self.reservations)))
                    ):
                        reason = self._place(request, group)
                    else:
                        reason = group.stuck
            if reason is not None:
                waits[request.task_id] = reason
        for request, shape, parts, lent in self._deferred:
            self._start_after_all(request, shape, parts, lent)

    def _start_after_all(self, request: Request, shape: Shape, claimed: Parts, lent: bool) -> None:
        """It waits for stops, and nobody else could use what is free now."""
        for host, count in claimed:
            self._board.unclaim(host, count, request)
        found = (fitting.on_sufferance if lent else fitting.now)(self._board, shape)
        if self._start(request, found, lent):
            del self.waits[request.task_id]
        else:
            for host, count in claimed:
                self._board.claim(host, count, request, pledged=True)

    def _is_limited(self, request: Request) -> bool:
        return (
            self._limited
            or request.max_slots is not None
            or (self._room is not None and not request.preemptible)
        )

    def _place(self, request: Request, group: Group) -> Reason | None:
        """Why it waits, or None if it starts."""
        if self._is_limited(request):
            over = self._over_limit(request)
            if over is not None:
                return over
        own = self._board.stopping_for.get(request.task_id)
        if own is not None or group.may_find(self._board, standing(request)):
            if self.patient and own:
                reason = self._await_first(request, group.shape, own, lent=False)
                if reason is not None:
                    return reason
            free = partial(fitting.now, self._board, last=self._prospects.kept_for(request))
            if self._start(request, self._elsewhere(request, group.shape, free), False):
                return None
            reason = self._await_stops(request, group.shape, own or ())
            if reason is not None:
                return reason
            if group.borrows:
                reason = (
                    self._await_first(request, group.shape, own, lent=True) if self.patient and own else None
                )
                if reason is not None:
                    return reason
                lendable = partial(fitting.on_sufferance, self._board)
                if self._start(request, self._elsewhere(request, group.shape, lendable), True):
                    return None
            reason = self._stop_others(request, group, own or ())
            if reason is not None:
                return reason
            self._note_stuck(request, group)
        elif group.stuck_at != len(self._board.eased):
            self._note_stuck(request, group)
        reserves = group.reserves and self._patience.looks_at_more(len(self.reservations))
        kept = self._reserve(request, group) if reserves else None
        return self._and_young(request, group, kept or self._stuck(request, group))

    def _note_stuck(self, request: Request, group: Group) -> None:
        group.is_stuck(self._board, self._why_stuck(request, group))

    def _and_young(self, request: Request, group: Group, reason: Reason | None) -> Reason | None:
        """The reason, with the run that it may stop first once that is not young any more."""
        if reason is None or not self._young:
            return reason
        asker, rights, hosts = standing(request), self._rules.rights(request), self._board.hosts
        young = [
            run
            for run in self._young.values()
            if asker < rights.line_once_old(run)
            and any(not hosts[index].avoided(group.shape.avoid) for index in run.parts)
        ]
        if not young:
            return reason
        first = min(young, key=lambda run: run.left_alone_until)
        label = first.request.called_to(request.job_id)
        return reasons.with_young(reason, label, first.left_alone_until, self._snapshot.now)

    @cached_property
    def _young(self) -> dict[Standing, HeldRun]:
        """Line -> the run that is left alone for the shortest time, of those that may be stopped later."""
        first: dict[Standing, HeldRun] = {}
        for run in self._board.runs:
            if run.young and not run.stopping and run.line is not NOBODY:
                known = first.setdefault(run.line, run)
                if run.left_alone_until < known.left_alone_until:
                    first[run.line] = run
        return first

    def _why_stuck(self, request: Request, group: Group) -> Reason:
        """The reason; where groups of people have the same shapes, it is looked for only once in each."""
        if self._room is None:
            return self._no_room.reason(request, group.shape)
        key = (group.shape, request.only_hosts, request.failed_hosts, len(self.reservations))
        if key not in self._no_rooms:
            self._no_rooms[key] = self._no_room.reason(request, group.shape)
        return self._no_rooms[key]

    def _stuck(self, request: Request, group: Group) -> Reason | None:
        """Why no request of the group finds room, as a job is told it that holds or is kept slots itself."""
        if group.stuck is None or not self._held_by_job.get(request.job_id):
            return group.stuck
        key = request.job_id, self._running.get(request.job_id, 0)
        if key not in group.own:
            group.own[key] = self._no_room.reason(request, group.shape, key[1])
        return group.own[key]

    def _group(self, request: Request) -> Group:
        rights = self._rules.rights(request)
        closed = self._prospects.closed(request) if self._closes else NOWHERE
        key = (kind_of(request), closed, rights, self._closes and request.recovers)
        group = self._groups.get(key)
        if group is None:
            self._groups[key] = group = Group(
                Shape.of(request, self._snapshot.pool.allow_heterogeneous_fits, closed),
                self._prospects.hopeless(request),
                rights,
                borrows=self._rules.borrows(request),
                reserves=request.slots > 1 and self._rules.reserves(request),
            )
        return group

    def _over_limit(self, request: Request) -> Reason | None:
        if request.at_once is not None and self._elements[request.job_id] >= request.at_once[0]:
            return reasons.at_once(*request.at_once)
        too_long = self._prospects.too_long(request)
        if too_long is not None or request.slots == 0:
            return too_long
        if self._room is not None and (lacking := self._room.lacking(request)) is not None:
            return lacking
        most = self._snapshot.pool.unpreemptible_slots
        if most is not None and not request.preemptible and self._unpreemptible + request.slots > most:
            return reasons.unpreemptible(self._unpreemptible, request.slots, most)
        if request.max_slots is None:
            return None
        if request.slots > request.max_slots:
            return reasons.over_max_slots(request.slots, request.max_slots)
        held = self._held_by_job.get(request.job_id, 0)
        over = held + request.slots > request.max_slots
        return reasons.max_slots(held, request.slots, request.max_slots) if over else None

    def _start(self, request: Request, parts: Parts | None, on_sufferance: bool) -> bool:
        if parts is None:
            return False
        self._note(request, parts)
        self.hasty |= request.task_id in self._board.stopping_for
        hosts = tuple((host.view.id, self._board.take(host, count)) for host, count in parts)
        on_sufferance = on_sufferance or self._rules.always_on_sufferance(request)
        self.starts.append(Start(request.task_id, hosts, on_sufferance))
        self._ends.starts(request, [host.index for host, _ in parts])
        self._running[request.job_id] = self._running.get(request.job_id, 0) + request.slots
        if not on_sufferance:
            self.settled.add(request.task_id)
        self._count(request)
        return True

    def _elsewhere(self, request: Request, shape: Shape, find: Callable[[Shape], T | None]) -> T | None:
        """What is found, in a patient pass if possible without the hosts where work is being stopped for others."""
        if self.patient:
            promised = self._board.promised(request.task_id)
            found = find(replace(shape, avoid=shape.avoid | promised)) if promised else None
            if found is not None:
                return found
        return find(shape)

    def _note(self, request: Request, parts: Parts) -> None:
        """Is it hasty to take or claim these?"""
        if self._board.stopping_for and not self.hasty:
            promised = self._board.promised(request.task_id)
            self.hasty = any(host.view.id in promised for host, _ in parts)

    def _count(self, request: Request) -> None:
        """What is about to be held counts against the limits like what is held."""
        self._held_by_job[request.job_id] = self._held_by_job.get(request.job_id, 0) + request.slots
        if request.at_once is not None:
            self._elements[request.job_id] += 1
        if not request.preemptible:
            self._unpreemptible += request.slots
        if self._room is not None:
            self._room.take(request)

    def _await_first(
        self, request: Request, shape: Shape, own: Collection[Host], *, lent: bool
    ) -> Reason | None:
        """In a patient pass: wait for one's own stops, and start at the end if that is possible still."""
        parts = fitting.after_own_stops(self._board, shape, own, lent=lent)
        if parts is None or all(not host.coming for host, _ in parts):
            return None
        self._deferred.append((request, shape, parts, lent))
        return self._pledge(request, parts)

    def _await_stops(self, request: Request, shape: Shape, own: Collection[Host]) -> Reason | None:
        parts = self._elsewhere(request, shape, lambda shape: fitting.after_stops(self._board, shape, own))
        return None if parts is None else self._pledge(request, parts)

    def _pledge(self, request: Request, parts: Parts) -> Reason:
        """Claim slots that are free or being freed: nobody else may use them."""
        self.settled.add(request.task_id)
        return reasons.coming_free(request.slots, *self._claimed(request, parts, pledged=True))

    def _claimed(
        self, request: Request, parts: Parts, *, pledged: bool
    ) -> tuple[list[tuple[str, int, int]], list[str]]:
        """Claim these parts. (host, slots free there, slots awaited), and what the awaited runs are called."""
        self._note(request, parts)
        shown, by = [], dict[str, None]()
        for host, count in parts:
            awaited = min(count, host.coming) if pledged else count - max(0, min(count, host.soon))
            shown.append((host.view.name, count - awaited, awaited))
            runs = host.stopping if pledged else host.runs
            by.update((run.request.called_to(request.job_id), None) for run in runs)
            self._board.claim(host, count, request, pledged=pledged)
        self._count(request)
        return shown, list(by)

    def _stop_others(self, request: Request, group: Group, own: Collection[Host]) -> Reason | None:
        if group.rights is NO_RIGHTS:
            return None
        found = self._victims(request, group, own)
        if found is None:
            return None
        parts, victims = found
        self._board.stop(victims, request.task_id)
        for run in victims:
            self.releases.append(Release(run.placement.allocation_id, run.request.task_id, request.task_id))
        reason = self._pledge(request, parts)
        self._board.ease(victims)
        return reason

    def _victims(
        self, request: Request, group: Group, own: Collection[Host]
    ) -> tuple[Parts, list[HeldRun]] | None:
        """Whom to stop, and for which slots: those of hosts kept for a gang only if no others can be had.

        A reservation does not protect what runs there, but who may not be stopped again cannot use it.
        """
        find = partial(self._stopping.best, standing(request), group.shape, group.rights)
        if not group.borrows:
            return find(lent=False)
        if own:
            lent = find(lent=True)
            if lent is not None and not lent[1]:
                return lent  # what is being stopped for it on a host kept for a gang is enough
        return find(lent=False) or find(lent=True)

    def _reserve(self, request: Request, group: Group) -> Reason | None:
        """Keep the hosts where a gang can start soonest. One slot needs none: it gets what comes free."""
        kind = self._prospects.alike(request)
        too_early = self._patience.known(request, (group, kind))
        if too_early is not None or kind in group.fruitless:
            return too_early
        found = self._elsewhere(request, group.shape, partial(self._open_hosts, request, group.rights))
        if found is None:
            # and none of the group ever will, since claims are only added; unless it is for this one's window
            group.fruitless.add(kind)
            group.reserves = len(group.fruitless) < _MOST_FRUITLESS and not self._all_claimed(request, group)
            return None
        (_, latest), parts = found
        if too_early := self._patience.refusal(request, (group, kind), latest, len(parts)):
            return too_early
        self.reservations[request.task_id] = tuple(host.view.id for host, _ in parts)
        notes, claimed = self._prospects.note_of_spares(request), self._claimed(request, parts, pledged=False)
        return reasons.held(request.slots, *claimed, notes)

    def _all_claimed(self, request: Request, group: Group) -> bool:
        """Does no host remain, whatever windows will close?"""
        if self._prospects.closings is None:
            return True
        return self._reserving.soonest(standing(request), group.shape, group.rights.reserving()) is None

    def _open_hosts(self, request: Request, rights: Rights, shape: Shape) -> tuple[Span, Parts] | None:
        """When, and the unclaimed hosts where it can start first and which no window will close to it by then.

        If nobody knows when it can start, hosts that will be closed at some time are the second choice.
        """
        second: tuple[Span, Parts] | None = None
        while found := self._reserving.soonest(standing(request), shape, rights.reserving()):
            (at, _), parts = found
            closed = self._prospects.closed_at(request, at)
            if not closed or not any(host.view.id in closed for host, _ in parts):
                return found
            second = second or (found if at == inf else None)
            shape = replace(shape, avoid=shape.avoid | closed)
        return second
