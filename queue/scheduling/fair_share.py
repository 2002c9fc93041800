"""Weighted max-min fair share over slots: who is entitled to what, and the rules that follow from it.

Slots are granted request by request, always to the job that has the least for its weight (of equals, to the one with
the largest weight, then to the oldest), until nothing more fits: so what one job cannot use goes to the others, a gang
is granted whole or not at all, and the grants depend on the demand, never on what happens to run. Work that is not
granted may run where room is left and is stopped when a granted request needs the room; if it is granted meanwhile, it
is stopped last.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter

from scheduling import reasons
from scheduling.group_shares import Path, Room, guarantees, load, path_of
from scheduling.policy import Key, Policy
from scheduling.prospects import Prospects, demand
from scheduling.reasons import Reason, WaitCode
from scheduling.runs import EVERYBODY, NO_RIGHTS, NOBODY, HeldRun, Rights, Rules, Standing
from scheduling.spares import RECOVERIES, Spares
from scheduling.world import GroupShare, Placement, PoolView, Request, Snapshot


@dataclass(frozen=True, slots=True)
class Grants:
    """`order`: ids of the granted tasks, first granted first. `shares`: job id -> slots granted."""

    order: dict[str, int]
    shares: dict[str, int]


def by_age(requests: Iterable[Request]) -> list[Request]:
    """Oldest job first, its tasks together."""
    requests = list(requests)
    first: dict[str, float] = {}
    for request in requests:
        first[request.job_id] = min(request.submitted_at, first.get(request.job_id, request.submitted_at))
    return sorted(requests, key=lambda r: (first[r.job_id], r.job_id, r.submitted_at, r.task_id))


def capacity(snapshot: Snapshot, owners: Mapping[str, str] = {}) -> tuple[int, dict[str, int]]:
    """Slots that anybody may use now, with those that running work holds elsewhere; and those reserved, by group.

    `owners`: host id -> group that it is reserved for. What yields to all holds nothing of a spare.
    """
    groups = {
        each.running.allocation_id: (*each.groups, RECOVERIES) if each.yields else each.groups
        for each in snapshot.requests
        if owners and each.running
    }
    free, reserved = 0, Counter[str]()
    for host in snapshot.hosts:
        on, owner = host.off is None, owners.get(host.id)
        for slot in host.slots:
            if slot.held_by is None and not (on and slot.usable):
                continue
            if owner is None or (slot.held_by and owner not in groups.get(slot.held_by, ())):
                free += 1
            elif owner:
                reserved[owner] += 1
    return free, reserved


def grants(
    requests: list[Request],
    slots: int,
    shares: Mapping[str, GroupShare] | None = None,
    reserved: Mapping[str, int] = {},
    owners: Mapping[str, str] = {},
    spares: Spares | None = None,
) -> Grants:
    """Share `slots` among the jobs of `requests` (in order of age; those that can start one day).

    `shares`: what groups are given. Each first gets what it is guaranteed, then always the group that has the least for
    its weight is granted one more request. `reserved`: group -> slots that requests of it alone are granted, too.
    `owners`: host id -> group that it is reserved for. `spares`: of the pool, which only recoveries are granted.
    """
    granting = _Granting(slots, shares or {}, reserved, owners, spares)
    left = granting.firm(requests)
    if not shares:
        granting.share(left)
        return Grants(granting.order, granting.shares)
    guaranteed = guarantees(shares)
    lines: tuple[dict[str, list[Request]], dict[str, list[Request]]] = {}, {}
    for request in left:
        for line, name in zip(lines, path_of(request), strict=True):
            line.setdefault(name, []).append(request)
    for by_name in reversed(lines):
        for name in sorted(guaranteed.keys() & by_name.keys()):
            if (most := guaranteed[name] - granting.of_groups[name]) > 0:
                granting.share(granting.without(by_name[name]), most)
    granting.in_turn(granting.without(left))
    return Grants(granting.order, granting.shares)


#: jobs with what they have for their weight, and what they still want
Jobs = list[tuple[float, float, int, Iterator[Request]]]


class _Granting:
    def __init__(
        self,
        slots: int,
        groups: Mapping[str, GroupShare],
        reserved: Mapping[str, int],
        owners: Mapping[str, str],
        spares: Spares | None,
    ) -> None:
        self.order: dict[str, int] = {}
        self.shares: dict[str, int] = {}
        self.of_groups = Counter[str]()
        self._left = slots  # for everybody
        self._reserved = Counter(reserved)
        self._owners = owners
        self._names_of = spares.shares_of if spares is not None else attrgetter("groups")
        self._groups = groups

    def firm(self, requests: Iterable[Request]) -> list[Request]:
        """Grant what runs and cannot be taken back; the others."""
        others = []
        for request in requests:
            self.shares.setdefault(request.job_id, 0)
            if request.running is not None and not request.preemptible:
                self._grant(request)
            else:
                others.append(request)
        return others

    def without(self, requests: Iterable[Request]) -> list[Request]:
        return [request for request in requests if request.task_id not in self.order]

    def share(self, requests: Iterable[Request], most: float = inf) -> None:
        """Grant these as long as there are slots, or `most` of them."""
        jobs = self._jobs(requests)
        while jobs and self._has_slots and most > 0:
            request = self._next(jobs, most)
            most -= request.slots if request else 0

    def in_turn(self, requests: Iterable[Request]) -> None:
        """Grant one request after the other, of the group that has the least for its weight."""
        lines: dict[Path, list[Request]] = {}
        for request in requests:
            lines.setdefault(path_of(request), []).append(request)
        jobs = {path: self._jobs(line) for path, line in lines.items()}
        turns = [(self._load(path), place, path) for place, path in enumerate(jobs)]
        heapq.heapify(turns)
        while turns and self._has_slots:
            known, place, path = turns[0]
            load_now = self._load(path)
            if known != load_now:  # it, or another team of its department, has been granted more
                heapq.heapreplace(turns, (load_now, place, path))
            elif jobs[path]:
                self._next(jobs[path], inf)
            else:
                heapq.heappop(turns)

    @property
    def _has_slots(self) -> bool:
        return self._left > 0 or any(slots > 0 for slots in self._reserved.values())

    def _left_for(self, request: Request) -> int:
        own = sum(self._reserved[name] for name in self._names_of(request)) if self._reserved else 0
        return max(0, self._left) + own

    def _load(self, path: Path) -> tuple[float, ...]:
        return tuple([load(self._groups, name, self.of_groups[name]) for name in path])

    def _jobs(self, requests: Iterable[Request]) -> Jobs:
        jobs: dict[str, list[Request]] = {}
        for request in requests:
            jobs.setdefault(request.job_id, []).append(request)
        least = [
            (self.shares[job_id] / wanted[0].weight, -wanted[0].weight, age, iter(wanted))
            for age, (job_id, wanted) in enumerate(jobs.items())
        ]
        heapq.heapify(least)
        return least

    def _next(self, jobs: Jobs, most: float) -> Request | None:
        """Grant the next request of the job that has the least; None if it wants none that fits, and is left out."""
        *_, age, wanted = heapq.heappop(jobs)
        for request in wanted:
            holds = self.shares[request.job_id] + request.slots
            if (
                request.slots <= self._left_for(request)
                and request.slots <= most
                and (request.max_slots is None or holds <= request.max_slots)
                and not (self._groups and self._is_over(request))
            ):
                self._grant(request)
                has = self.shares[request.job_id] / request.weight
                heapq.heappush(jobs, (has, -request.weight, age, wanted))
                return request
        return None

    def _is_over(self, request: Request) -> bool:
        """Would a group have more than its limit?"""
        limits = ((name, share.limit) for name in request.groups if (share := self._groups.get(name)))
        return any(
            limit is not None and self.of_groups[name] + request.slots > limit for name, limit in limits
        )

    def _grant(self, request: Request) -> None:
        self._take(request)
        self.shares[request.job_id] += request.slots
        self.order[request.task_id] = len(self.order)
        if self._groups:
            for name in path_of(request):
                self.of_groups[name] += request.slots

    def _take(self, request: Request) -> None:
        """What is reserved for it first; of a run that cannot be taken back, only what it holds there."""
        slots = request.slots
        for name in self._names_of(request) if self._reserved else ():
            own = min(self._held_there(request, name), slots, self._reserved[name])
            self._reserved[name] -= own
            slots -= own
        self._left -= slots

    def _held_there(self, request: Request, group: str) -> int:
        if request.running is None or request.preemptible:
            return request.slots
        held = request.running.slots.items()
        return sum(len(ids) for host, ids in held if self._owners.get(host) == group)


class OfJob(Rights):
    """Those of a job that runs work above its share: it stops none of its own, but what is lent its slots."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id

    def line_once_old(self, run: HeldRun) -> Standing:
        own = run.request.job_id == self._job_id and not run.placement.on_sufferance
        return NOBODY if own else run.line


class FairShareRules(Rules):
    """Granted requests may stop work that is not granted, or was not when it started.

    `queue`: all requests of the pool, the oldest job first.
    """

    def __init__(
        self, queue: Sequence[Request], granted: Grants, pool: PoolView, room: Room | None = None
    ) -> None:
        super().__init__(queue)
        self._pool = pool
        self.room = room
        self.shares = granted.shares
        self._granted = granted.order
        self._usual = Rights()
        self._of_job = {
            request.job_id: OfJob(request.job_id)
            for request in queue
            if request.running is not None and self.line(request, request.running) is EVERYBODY
        }

    def waiting(self) -> list[Request]:
        """First what is granted, in the order of the grants."""
        last = len(self._granted)
        return sorted(super().waiting(), key=lambda request: self._granted.get(request.task_id, last))

    def grade(self, run: Request) -> float:
        """What is not granted is stopped before what is, and what yields to all before that."""
        return 2 if run.yields else 0 if run.task_id in self._granted else 1

    def line(self, run: Request, placement: Placement) -> Standing:
        """A grant that comes later does not undo the condition on which it started: else what is lent the hosts kept
        for a gang would hold them for good, and the gang would starve."""
        firm = run.task_id in self._granted and not placement.on_sufferance
        return NOBODY if firm or not run.preemptible else EVERYBODY

    def protects(self, request: Request, placement: Placement) -> bool:
        """Every young run, also one above its share. In return, such work gets no slots reserved for a gang.

        But what yields to all is not left alone.
        """
        return not request.yields

    def rights(self, request: Request) -> Rights:
        if request.task_id not in self._granted:
            return NO_RIGHTS
        return self._of_job.get(request.job_id, self._usual)

    def borrows(self, request: Request) -> bool:
        return request.preemptible and not self._pool.min_runtime_of(request.priority)

    def reserves(self, request: Request) -> bool:
        return request.task_id in self._granted

    def always_on_sufferance(self, request: Request) -> bool:
        return request.preemptible and request.task_id not in self._granted

    def reword(self, waits: dict[str, Reason], held: Mapping[str, int]) -> None:
        """What would start if its job were entitled to more waits for its share."""
        for request in self.queue:
            reason = waits.get(request.task_id)
            if reason is None or request.task_id in self._granted:
                continue
            if reason.code in (WaitCode.NO_ROOM, WaitCode.KEPT_FOR):
                holds, entitled = held.get(request.job_id, 0), self.shares.get(request.job_id, 0)
                waits[request.task_id] = reasons.share(request.label, holds, entitled)

    def why_not(self, request: Request, run: HeldRun) -> str:
        if run.request.job_id == request.job_id:
            return "same job"
        lent = run.placement.on_sufferance
        return "above its share, but stopping it is not enough here" if lent else "within its share"


class FairShare(Policy):
    """Jobs share the slots by their weights; the queue has no positions."""

    name = "fair_share"
    label = "Fair Share"
    summary = "slots by weight, no positions"
    hint = "slots are shared by weight"
    dialect = "SCHEDULER_TYPE_FAIR_SHARE"
    knobs = ("weight",)
    has_shares = True
    preempts = True

    def rules(self, snapshot: Snapshot, prospects: Prospects) -> Rules:
        queue = by_age(snapshot.requests)
        owners, spares = prospects.owners, prospects.spares
        slots, reserved = capacity(snapshot, owners)
        granted = grants(demand(queue, prospects), slots, snapshot.pool.shares, reserved, owners, spares)
        room = Room(snapshot, spares) if snapshot.pool.shares else None
        return FairShareRules(queue, granted, snapshot.pool, room)

    def rules_without_slots(self, rules: Rules) -> Rules:
        """They have no share: first come, first served, and nothing is stopped for them."""
        return Rules(rules.queue)

    def turn(self, request: Request, held: float, firm: bool, place: int) -> Key:
        return (held / request.weight, -request.weight, place)

    def turn_of_next(self, request: Request) -> Key:
        return (0, -request.weight, inf)
