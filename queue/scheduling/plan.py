"""`decide`: one snapshot in, one plan out. The same snapshot always gives the same plan."""

from __future__ import annotations

from scheduling import fair_share, fitting, priority, ranking, reasons
from scheduling.board import aux_board, slot_board
from scheduling.fitting import Shape
from scheduling.gangs import Pass
from scheduling.reasons import NEVER, Reason, WaitCode
from scheduling.world import Plan, Release, Request, Snapshot, Start

__all__ = ["Plan", "Release", "Start", "decide"]


def decide(snapshot: Snapshot) -> Plan:
    """What to start and stop now, and why each of the others waits.

    Slot work and zero-slot work are placed apart: neither waits for the other.
    """
    return _by_shares(snapshot) if snapshot.pool.scheduler == "fair_share" else _by_priority(snapshot)


def _by_priority(snapshot: Snapshot) -> Plan:
    ordered = ranking.in_order(snapshot.requests)
    rules = priority.PriorityRules(snapshot.pool.preemption)
    waiting = [request for request in ordered if request.running is None]
    held = held_by_job(snapshot)
    slots = Pass(snapshot, slot_board(snapshot, priority.stop_order), rules, held)
    slots.run(request for request in waiting if request.slots > 0)
    aux = Pass(snapshot, aux_board(snapshot, priority.stop_order), rules, held)
    aux.run(request for request in waiting if request.slots == 0)
    return _joined([slots, aux], ordered, {})


def _by_shares(snapshot: Snapshot) -> Plan:
    ordered = fair_share.by_age(snapshot.requests)
    waiting = [request for request in ordered if request.running is None]
    granted = fair_share.grants(demand(snapshot, ordered), fair_share.capacity(snapshot))
    rules = fair_share.FairShareRules(granted)
    held = held_by_job(snapshot)
    last = len(granted.order)
    queue = sorted(waiting, key=lambda request: granted.order.get(request.task_id, last))
    slots = Pass(snapshot, slot_board(snapshot, fair_share.stop_order), rules, dict(held))
    slots.run(request for request in queue if request.slots > 0)
    # zero-slot work has no share: first come, first served, and nobody is stopped for it
    nobody = priority.PriorityRules(preemption=False)
    aux = Pass(snapshot, aux_board(snapshot, fair_share.stop_order), nobody, {})
    aux.run(request for request in queue if request.slots == 0)
    for request in waiting:
        reason = slots.waits.get(request.task_id)
        if reason is not None and request.task_id not in granted.order and _is_share(reason):
            mine = granted.shares.get(request.job_id, 0)
            slots.waits[request.task_id] = reasons.share(request.label, held.get(request.job_id, 0), mine)
    return _joined([slots, aux], ordered, granted.shares)


def _is_share(reason: Reason) -> bool:
    """Would it start if its job were entitled to more?"""
    return reason.code in (WaitCode.NO_ROOM, WaitCode.KEPT_FOR)


def demand(snapshot: Snapshot, ordered: list[Request]) -> list[Request]:
    """The slot work that runs, and what waits and could start if it were alone."""
    hopeless: dict[Shape, bool] = {}
    wanted = []
    for request in ordered:
        if request.slots == 0 or request.blocked_reason is not None:
            continue
        if request.running is None:
            shape = Shape.of(request, snapshot.pool.allow_heterogeneous_fits)
            if shape not in hopeless:
                off = fitting.needs_hosts_that_are_off(snapshot, shape, request.slots)
                hopeless[shape] = (off or fitting.never(snapshot, shape, request.slots)) is not None
            if hopeless[shape]:
                continue
        wanted.append(request)
    return wanted


def held_by_job(snapshot: Snapshot) -> dict[str, int]:
    """Job id -> slots that its tasks hold now."""
    held: dict[str, int] = {}
    for request in snapshot.requests:
        if request.running is not None:
            held[request.job_id] = held.get(request.job_id, 0) + request.slots
    return held


def _joined(passes: list[Pass], ordered: list[Request], shares: dict[str, int]) -> Plan:
    waits = {task: reason for one in passes for task, reason in one.waits.items()}
    forecast: dict[str, tuple[float, float] | None] = {
        task: None for task, reason in waits.items() if reason.code not in NEVER
    }
    for one in passes:
        forecast.update(one.forecast)
    return Plan(
        starts=tuple(start for one in passes for start in one.starts),
        releases=tuple(release for one in passes for release in one.releases),
        waits=waits,
        order=tuple(request.task_id for request in ordered),
        forecast=forecast,
        reservations={task: hosts for one in passes for task, hosts in one.reservations.items()},
        shares=shares,
    )
