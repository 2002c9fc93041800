"""The policy of a priority pool: order by (priority, position); a higher priority may stop a lower one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import inf

from scheduling.group_rules import GroupRules, Groups, in_order_of_turns
from scheduling.policy import Key, Policy
from scheduling.prospects import Prospects, demand
from scheduling.runs import EVERYBODY, NO_RIGHTS, NOBODY, HeldRun, Rights, Rules, Standing, standing
from scheduling.world import Placement, PoolView, Request, Snapshot


class OfPriority(Rights):
    """Those of all requests: whose priority they may stop follows from their own."""

    def reaches(self, asker: Standing, grade: float) -> bool:
        return asker <= (grade, inf)


class MovedAhead(OfPriority):
    """Those of jobs that a user moved: they may stop equals behind them that started before the move.

    What started before the move is not left alone because it is young: a person wants it so.
    """

    def __init__(self, priority: int, moved_at: float, job_id: str | None) -> None:
        self._priority = priority
        self._moved_at = moved_at
        self._job_id = job_id

    def line(self, run: HeldRun) -> Standing:
        other = run.request
        if other.job_id == self._job_id and not run.placement.on_sufferance:
            return NOBODY  # it was moved with this one
        if run.started < self._moved_at and other.preemptible:
            return standing(other) if other.priority == self._priority else run.line
        return super().line(run)


class PriorityRules(Rules):
    """Who may stop whom. `queue`: all requests of the pool, in order."""

    def __init__(self, queue: Sequence[Request], pool: PoolView) -> None:
        super().__init__(queue)
        self._preemption = pool.preemption
        self._leaves_alone = bool(pool.min_runtime)
        self._usual = OfPriority()
        self._moved: dict[tuple[int, float, str | None], Rights] = {}

    def grade(self, run: Request) -> float:
        """What yields is stopped before all others, whatever its priority."""
        return inf if run.yields else run.priority

    def line(self, run: Request, placement: Placement) -> Standing:
        """Every higher priority may stop it; equals before it only if it is lent its slots, or was moved."""
        if not (self._preemption and run.preemptible):
            return NOBODY
        if run.yields:
            return EVERYBODY
        if placement.on_sufferance or (run.moved_at is not None and run.moved_at > placement.started_at):
            return standing(run)
        return (run.priority,)

    def protects(self, request: Request, placement: Placement) -> bool:
        moved = request.moved_at is not None and request.moved_at > placement.started_at
        return not moved and super().protects(request, placement)

    def rights(self, request: Request) -> Rights:
        if request.yields:
            return NO_RIGHTS
        moved_at = request.moved_at
        if moved_at is None or not self._preemption:
            return self._usual
        oldest = (
            min(self._started.values(), default=inf)
            if self._leaves_alone
            else self._started.get(request.priority, inf)
        )
        if moved_at <= oldest:
            return self._usual
        job_id = request.job_id if request.job_id in self._running else None
        key = (request.priority, moved_at, job_id)
        if key not in self._moved:
            self._moved[key] = MovedAhead(*key)
        return self._moved[key]

    @cached_property
    def _started(self) -> dict[int, float]:
        """Priority -> when the oldest run of that priority started."""
        oldest: dict[int, float] = {}
        for request in self.queue:
            if request.running is not None and request.preemptible:
                since = request.running.started_at
                oldest[request.priority] = min(since, oldest.get(request.priority, since))
        return oldest

    @cached_property
    def _running(self) -> frozenset[str]:
        """Jobs with a run: of their own they stop none."""
        return frozenset(request.job_id for request in self.queue if request.running is not None)

    def borrows(self, request: Request) -> bool:
        return self._preemption and request.preemptible

    def why_not(self, request: Request, run: HeldRun) -> str:
        if self.rights(request).may_stop(request, run):
            return "preemptible, but stopping it is not enough here"
        if run.request.priority == request.priority:
            return "same priority"
        return f"priority {run.request.priority}, ahead of it"


class Priority(Policy):
    """Jobs are served by their priority, those of the same priority by their position."""

    name = "priority"
    label = "Priority"
    summary = "by priority, then position"
    hint = "1 is the highest priority; positions count within one priority"
    dialect = "SCHEDULER_TYPE_PRIORITY"
    knobs = ("priority", "position")
    order = ("priority", "position", "id")

    def rules(self, snapshot: Snapshot, prospects: Prospects) -> Rules:
        if not snapshot.pool.shares:
            return PriorityRules(sorted(snapshot.requests, key=standing), snapshot.pool)
        rules = PriorityRules(in_order_of_turns(snapshot.requests), snapshot.pool)
        return GroupRules(rules, Groups(snapshot, rules, demand(rules.queue, prospects), prospects.spares))

    def rules_without_slots(self, rules: Rules) -> Rules:
        return rules.inner if isinstance(rules, GroupRules) else rules

    def turn(self, request: Request, held: float, firm: bool, place: int) -> Key:
        return (request.priority, not firm, place)

    def turn_of_next(self, request: Request) -> Key:
        return (request.priority, True, inf)
