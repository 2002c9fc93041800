"""Weighted max-min fair share over slots: who is entitled to what, and the rules that follow from it.

Slots are granted request by request, always to the job that has the least for its weight (of equals, to the one with
the largest weight, then to the oldest), until nothing more fits: so what one job cannot use goes to the others, a gang
is granted whole or not at all, and the grants depend on the demand, never on what happens to run. Work that is not
granted may run where room is left and is stopped when a granted request needs the room; if it is granted meanwhile, it
is stopped last.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from scheduling import reasons
from scheduling.policy import Key, Policy
from scheduling.prospects import Prospects
from scheduling.reasons import Reason, WaitCode
from scheduling.runs import EVERYBODY, NO_RIGHTS, NOBODY, HeldRun, Rights, Rules, Standing
from scheduling.world import Placement, PoolView, Request, Snapshot


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


def capacity(snapshot: Snapshot) -> int:
    """Slots that may be used now, and those that running work holds on hosts that are off."""
    return sum(
        slot.held_by is not None or (host.off is None and slot.usable)
        for host in snapshot.hosts
        for slot in host.slots
    )


def grants(requests: list[Request], slots: int) -> Grants:
    """Share `slots` among the jobs of `requests` (in order of age; those that can start one day)."""
    jobs: dict[str, list[Request]] = {}
    order: dict[str, int] = {}
    shares: dict[str, int] = {}
    left = slots
    for request in requests:
        shares.setdefault(request.job_id, 0)
        if request.running is not None and not request.preemptible:  # cannot be taken back
            left -= request.slots
            shares[request.job_id] += request.slots
            order[request.task_id] = len(order)
        else:
            jobs.setdefault(request.job_id, []).append(request)
    least = [
        (shares[job_id] / wanted[0].weight, -wanted[0].weight, age, iter(wanted))
        for age, (job_id, wanted) in enumerate(jobs.items())
    ]
    heapq.heapify(least)
    while least and left > 0:
        *_, age, wanted = heapq.heappop(least)
        for request in wanted:
            holds = shares[request.job_id] + request.slots
            if request.slots <= left and (request.max_slots is None or holds <= request.max_slots):
                left -= request.slots
                shares[request.job_id] += request.slots
                order[request.task_id] = len(order)
                has = shares[request.job_id] / request.weight
                heapq.heappush(least, (has, -request.weight, age, wanted))
                break
    return Grants(order, shares)


def demand(queue: Iterable[Request], prospects: Prospects) -> list[Request]:
    """The slot work that runs, and what waits and could start if it were alone."""
    return [
        request
        for request in queue
        if request.slots > 0
        and request.blocked is None
        and (request.running is not None or not (prospects.hopeless(request) or prospects.too_long(request)))
    ]


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

    def __init__(self, queue: Sequence[Request], granted: Grants, pool: PoolView) -> None:
        super().__init__(queue)
        self._pool = pool
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

    def grade(self, run: Request) -> int:
        """What is not granted is stopped before what is."""
        return 0 if run.task_id in self._granted else 1

    def line(self, run: Request, placement: Placement) -> Standing:
        """A grant that comes later does not undo the condition on which it started: else what is lent the hosts kept
        for a gang would hold them for good, and the gang would starve."""
        firm = run.task_id in self._granted and not placement.on_sufferance
        return NOBODY if firm or not run.preemptible else EVERYBODY

    def protects(self, request: Request, placement: Placement) -> bool:
        """Every young run, also one above its share. In return, such work gets no slots reserved for a gang."""
        return True

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
        return FairShareRules(queue, grants(demand(queue, prospects), capacity(snapshot)), snapshot.pool)

    def rules_without_slots(self, rules: Rules) -> Rules:
        """They have no share: first come, first served, and nothing is stopped for them."""
        return Rules(rules.queue)

    def turn(self, request: Request, held: float, firm: bool, place: int) -> Key:
        return (held / request.weight, -request.weight, place)

    def turn_of_next(self, request: Request) -> Key:
        return (0, -request.weight, inf)
