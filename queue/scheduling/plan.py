"""`decide`: one snapshot in, one plan out. The same snapshot always gives the same plan."""

from __future__ import annotations

from itertools import chain

from scheduling import policies
from scheduling.board import aux_board, slot_board
from scheduling.gangs import Pass
from scheduling.prospects import Prospects
from scheduling.runs import Rules
from scheduling.world import Plan, Request, Snapshot


def decide(snapshot: Snapshot) -> Plan:
    """What to start and stop now, and why each of the others waits.

    Slot work and zero-slot work are placed apart: neither waits for the other.
    """
    policy, prospects, held = policies.of(snapshot.pool.scheduler), Prospects(snapshot), held_by_job(snapshot)
    rules = policy.rules(snapshot, prospects)
    waiting = rules.waiting()
    passes = [_slot_pass(snapshot, rules, [r for r in waiting if r.slots > 0], held, prospects)]
    rules.reword(passes[0].waits, held)
    if aux := [request for request in waiting if request.slots == 0]:
        aux_rules = policy.rules_without_slots(rules)
        passes.append(Pass(snapshot, aux_board(snapshot, aux_rules), aux_rules, prospects, {}))
        passes[1].run(aux)
    return Plan(
        starts=tuple(chain.from_iterable(one.starts for one in passes)),
        releases=tuple(chain.from_iterable(one.releases for one in passes)),
        waits=dict(chain.from_iterable(one.waits.items() for one in passes)),
        order=tuple([request.task_id for request in rules.queue]),
        reservations=dict(chain.from_iterable(one.reservations.items() for one in passes)),
        shares=rules.shares,
    )


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


def held_by_job(snapshot: Snapshot) -> dict[str, int]:
    """Job id -> slots that its tasks hold now."""
    held: dict[str, int] = {}
    for request in snapshot.requests:
        if request.running is not None:
            held[request.job_id] = held.get(request.job_id, 0) + request.slots
    return held
