"""`decide`: one snapshot in, one plan out. The same snapshot always gives the same plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeVar

from scheduling import fair_share, ranking, reasons
from scheduling.board import aux_board, slot_board
from scheduling.fair_share import FairShareRules
from scheduling.gangs import Pass
from scheduling.priority import PriorityRules
from scheduling.prospects import Prospects
from scheduling.reasons import Reason, WaitCode
from scheduling.runs import Rules
from scheduling.world import Plan, Release, Request, Snapshot, Start

T = TypeVar("T")

__all__ = ["Plan", "Release", "Start", "decide"]


def decide(snapshot: Snapshot) -> Plan:
    """What to start and stop now, and why each of the others waits.

    Slot work and zero-slot work are placed apart: neither waits for the other.
    """
    return _by_shares(snapshot) if snapshot.pool.scheduler == "fair_share" else _by_priority(snapshot)


def _by_priority(snapshot: Snapshot) -> Plan:
    rules = priority_rules(snapshot)
    waiting = [request for request in rules.queue if request.running is None]
    passes = _run(snapshot, rules, rules, waiting, held_by_job(snapshot), Prospects(snapshot))
    return _joined(passes, rules.queue, {})


def priority_rules(snapshot: Snapshot) -> PriorityRules:
    return PriorityRules(ranking.in_order(snapshot.requests), snapshot.pool.preemption)


def _run(
    snapshot: Snapshot,
    rules: Rules,
    aux_rules: Rules,
    waiting: list[Request],
    held: dict[str, int],
    prospects: Prospects,
) -> list[Pass]:
    passes = [_slot_pass(snapshot, rules, [r for r in waiting if r.slots > 0], held, prospects)]
    aux = [request for request in waiting if request.slots == 0]
    if aux:
        passes.append(Pass(snapshot, aux_board(snapshot, aux_rules), aux_rules, prospects, {}))
        passes[1].run(aux)
    return passes


def _slot_pass(
    snapshot: Snapshot, rules: Rules, waiting: list[Request], held: dict[str, int], prospects: Prospects
) -> Pass:
    """Who has work being stopped for it may yet start elsewhere, unless that costs others what was stopped for them."""
    eager = Pass(snapshot, slot_board(snapshot, rules), rules, prospects, dict(held))
    eager.run(waiting)
    if not eager.hasty:
        return eager
    patient = Pass(snapshot, slot_board(snapshot, rules), rules, prospects, dict(held), patient=True)
    patient.run(waiting)
    if len(eager.releases) != len(patient.releases):
        return min(eager, patient, key=lambda one: len(one.releases))
    for request in waiting:  # the first to whom it makes a difference
        if (request.task_id in patient.settled) != (request.task_id in eager.settled):
            return patient if request.task_id in patient.settled else eager
    return eager


def _by_shares(snapshot: Snapshot) -> Plan:
    queue = fair_share.by_age(snapshot.requests)
    prospects = Prospects(snapshot)
    granted = fair_share.grants(demand(queue, prospects), fair_share.capacity(snapshot))
    rules = FairShareRules(queue, granted)
    # zero-slot work has no share: first come, first served, and nobody is stopped for it
    nobody = PriorityRules(queue, preemption=False)
    held = held_by_job(snapshot)
    last = len(granted.order)
    waiting = [request for request in queue if request.running is None]
    waiting.sort(key=lambda request: granted.order.get(request.task_id, last))
    passes = _run(snapshot, rules, nobody, waiting, held, prospects)
    waits = passes[0].waits
    for request in waiting:
        reason = waits.get(request.task_id)
        if reason is not None and request.task_id not in granted.order and _is_share(reason):
            mine = granted.shares.get(request.job_id, 0)
            waits[request.task_id] = reasons.share(request.label, held.get(request.job_id, 0), mine)
    return _joined(passes, queue, granted.shares)


def _is_share(reason: Reason) -> bool:
    """Would it start if its job were entitled to more?"""
    return reason.code in (WaitCode.NO_ROOM, WaitCode.KEPT_FOR)


def demand(queue: Iterable[Request], prospects: Prospects) -> list[Request]:
    """The slot work that runs, and what waits and could start if it were alone."""
    return [
        request
        for request in queue
        if request.slots > 0
        and request.blocked_reason is None
        and (request.running is not None or not (prospects.hopeless(request) or prospects.too_long(request)))
    ]


def held_by_job(snapshot: Snapshot) -> dict[str, int]:
    """Job id -> slots that its tasks hold now."""
    held: dict[str, int] = {}
    for request in snapshot.requests:
        if request.running is not None:
            held[request.job_id] = held.get(request.job_id, 0) + request.slots
    return held


def _joined(passes: list[Pass], queue: Sequence[Request], shares: dict[str, int]) -> Plan:
    return Plan(
        starts=tuple(chain.from_iterable(one.starts for one in passes)),
        releases=tuple(chain.from_iterable(one.releases for one in passes)),
        waits=_merged(one.waits for one in passes),
        order=tuple([request.task_id for request in queue]),
        forecast={task: span for one in passes for task, span in one.forecast.items()},
        reservations=_merged(one.reservations for one in passes),
        shares=shares,
    )


def _merged(parts: Iterable[dict[str, T]]) -> dict[str, T]:
    whole: dict[str, T] = {}
    for part in parts:
        whole |= part
    return whole
