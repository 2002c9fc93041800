"""The world after a plan: what a preview shows and what a replay goes on from. Pure, like the plan itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from scheduling.world import HostView, Placement, Plan, Request, Snapshot, Start


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


def _next(request: Request, starts: Mapping[str, Start], stops: Mapping[str, str], now: float) -> Request:
    start = starts.get(request.task_id)
    if start is not None:
        allocation_id = f"{request.task_id}.{now:g}"
        running = Placement(allocation_id, dict(start.hosts), now, on_sufferance=start.on_sufferance)
        return replace(request, running=running)
    if request.running is not None and request.running.allocation_id in stops:
        whom = stops[request.running.allocation_id]
        return replace(request, running=replace(request.running, stopping=True, stopping_for=whom))
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
