"""`decide`: one snapshot in, one plan out, always the same one; then the world after it, for a replay to continue."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import chain

from scheduling import giving_back, policies, windows
from scheduling.board import aux_board, slot_board
from scheduling.gangs import Pass
from scheduling.prospects import Prospects
from scheduling.runs import Rules
from scheduling.windows import Closings
from scheduling.world import HostView, Placement, Plan, Request, Snapshot, Spare, Start


def decide(snapshot: Snapshot) -> Plan:
    """What to start and stop now, and why each of the others waits.

    Slot work and zero-slot work are placed apart: neither waits for the other. What a job holds above its `max_slots`
    is given back first, and what a window takes is stopped in time to save.
    """
    given_back = giving_back.releases(snapshot)
    closings = Closings.of(snapshot)
    if closings is not None:
        known = {release.allocation_id for release in given_back}
        given_back += [one for one in windows.releases(snapshot, closings) if one.allocation_id not in known]
    if given_back:
        stops = {release.allocation_id: None for release in given_back}
        requests = tuple(
            [
                request if request.running is None else _next(request, {}, stops, snapshot.now)
                for request in snapshot.requests
            ]
        )
        snapshot = replace(snapshot, requests=requests)
    if closings is not None:
        snapshot = replace(snapshot, hosts=closings.in_order(snapshot.hosts))
    policy, held = policies.of(snapshot.pool.scheduler), held_by_job(snapshot)
    prospects = Prospects(snapshot, closings=closings)
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
        releases=(*given_back, *chain.from_iterable(one.releases for one in passes)),
        waits=dict(chain.from_iterable(one.waits.items() for one in passes)),
        order=tuple([request.task_id for request in rules.in_order()]),
        reservations=dict(chain.from_iterable(one.reservations.items() for one in passes)),
        shares=rules.shares,
        spares=_spares(snapshot, prospects, passes[0].starts),
    )


def _spares(snapshot: Snapshot, prospects: Prospects, starts: Iterable[Start]) -> tuple[Spare, ...]:
    """The hosts that are kept, with what has just started there."""
    if prospects.spares is None:
        return ()
    labels = {each.task_id: each.label for each in snapshot.requests if not each.yields}
    started = {
        host_id: labels[start.task_id]
        for start in starts
        if start.task_id in labels
        for host_id, _ in start.hosts
    }
    return prospects.spares.found(started)


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


def applied(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """`snapshot` with the plan's starts running and its releases stopping. A new allocation is `<task>.<now>`."""
    starts = {start.task_id: start for start in plan.starts}
    stops = {release.allocation_id: release.for_task_id for release in plan.releases}
    requests = tuple(_next(request, starts, stops, snapshot.now) for request in snapshot.requests)
    return _held(replace(snapshot, requests=requests))


def ended(snapshot: Snapshot, allocation_ids: Collection[str], waits_again: bool, now: float) -> Snapshot:
    """`snapshot` at `now`, these allocations over: their tasks wait again (they were stopped) or are gone."""
    requests = []
    for request in snapshot.requests:
        if request.running is None or request.running.allocation_id not in allocation_ids:
            requests.append(request)
        elif waits_again:
            requests.append(replace(request, running=None))
    return _held(replace(snapshot, requests=tuple(requests), now=now))


def _next(
    request: Request, starts: Mapping[str, Start], stops: Mapping[str, str | None], now: float
) -> Request:
    start = starts.get(request.task_id)
    if start is not None:
        allocation_id = f"{request.task_id}.{now:g}"
        running = Placement(
            allocation_id, dict(start.hosts), now, on_sufferance=start.on_sufferance, running_since=now
        )
        return replace(request, running=running)
    if request.running is not None and request.running.allocation_id in stops:
        whom = stops[request.running.allocation_id]
        stopped = replace(request.running, stopping=True, stopping_for=whom, waits_again=True)
        return replace(request, running=stopped)
    return request


def _held(snapshot: Snapshot) -> Snapshot:
    """The hosts as the snapshot's requests hold them; nobody else holds anything."""
    holders: dict[int, str] = {}
    aux: dict[str, int] = {}
    for request in snapshot.requests:
        if request.running is not None:
            for host_id, ids in request.running.slots.items():
                holders.update(dict.fromkeys(ids, request.running.allocation_id))
                if request.slots == 0:
                    aux[host_id] = aux.get(host_id, 0) + 1
    return replace(snapshot, hosts=tuple(_host(host, holders, aux) for host in snapshot.hosts))


def _host(host: HostView, holders: Mapping[int, str], aux: Mapping[str, int]) -> HostView:
    slots = tuple(
        slot if slot.held_by == holders.get(slot.id) else replace(slot, held_by=holders.get(slot.id))
        for slot in host.slots
    )
    return replace(host, slots=slots, aux_held=aux.get(host.id, 0))
