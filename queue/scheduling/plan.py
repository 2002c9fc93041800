"""`decide`: one snapshot in, one plan out. The same snapshot always gives the same plan."""

from __future__ import annotations

from scheduling.board import aux_board, slot_board
from scheduling.gangs import Pass
from scheduling.priority import PriorityRules, stop_order
from scheduling.ranking import in_order
from scheduling.world import Plan, Release, Request, Snapshot, Start

__all__ = ["Plan", "Release", "Start", "decide"]


def decide(snapshot: Snapshot) -> Plan:
    """What to start and stop now, and why each of the others waits.

    Slot work and zero-slot work are placed apart: neither waits for the other.
    """
    ordered = in_order(snapshot.requests)
    rules = PriorityRules(snapshot.pool.preemption)
    held: dict[str, int] = {}
    for request in snapshot.requests:
        if request.running is not None:
            held[request.job_id] = held.get(request.job_id, 0) + request.slots
    waiting = [request for request in ordered if request.running is None]
    with_slots = Pass(snapshot, slot_board(snapshot, stop_order), rules, held)
    with_slots.run(request for request in waiting if request.slots > 0)
    without = Pass(snapshot, aux_board(snapshot, stop_order), rules, held)
    without.run(request for request in waiting if request.slots == 0)
    return _joined([with_slots, without], ordered)


def _joined(passes: list[Pass], ordered: list[Request]) -> Plan:
    return Plan(
        starts=tuple(start for one in passes for start in one.starts),
        releases=tuple(release for one in passes for release in one.releases),
        waits={task: reason for one in passes for task, reason in one.waits.items()},
        order=tuple(request.task_id for request in ordered),
        forecast={task: when for one in passes for task, when in one.forecast.items()},
        reservations={task: hosts for one in passes for task, hosts in one.reservations.items()},
    )
