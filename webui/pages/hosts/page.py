"""Hosts: their slots as lamps, who holds them, when they were last seen, the doctor's report, and actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from accounts import rights
from accounts.refusals import Refusal
from dispatch.ssh.server_key import fingerprint
from events.models import Event
from hosts import registry
from hosts.models import Host, ResourcePool, Slot
from jobs import held_slots
from shown import timeline
from shown.hosts import holders, rows
from webui.pages.frame import actor, back_to, or_404, page, refusals_told, show, user_of
from webui.pages.hosts import lanes, samples
from webui.pages.hosts import view as hosts_filter


@dataclass(frozen=True)
class Key:
    """A host key that waits to be accepted, of the host itself or of a jump host before it."""

    whose: str
    pinned: str
    offered: str
    key: str


def keys_to_accept(host: Host) -> list[Key]:
    """Fingerprints of what was pinned (empty: nothing yet) and of what is offered now."""
    ways = [
        (jump.get("address", ""), jump.get("host_key") or "", jump.get("offered_host_key") or "")
        for jump in host.jumps
    ]
    return [
        Key(whose, fingerprint(pinned) if pinned else "", fingerprint(offered), offered)
        for whose, pinned, offered in [*ways, (host.name, host.host_key, host.offered_host_key)]
        if offered
    ]


@page
def listing(request: HttpRequest) -> HttpResponse:
    """All hosts, as cells by pool or as a list."""
    hosts = rows.of(rows.present())
    changed = [(each.host, key) for each in hosts for key in keys_to_accept(each.host) if key.pinned]
    pools = sorted({each.host.pool_id for each in hosts})
    context = hosts_filter.context(request, hosts) | {
        "total": len(hosts),
        "totals": (totals := rows.totals(hosts)),
        "held": rows.held_of(totals),
        "slots": totals.total(),
        "changed_keys": changed,
        "topics": " ".join(["hosts", *(f"pool:{pk}" for pk in pools)]),
        "may_act": user_of(request).is_admin,
    }
    return show(request, "hosts", context, room="Hosts", fragment="hosts")


@page
def detail(request: HttpRequest, name: str) -> HttpResponse:
    """One host."""
    host = or_404(rows.present().filter(name=name).first(), f"There is no host {name}.")
    context: dict[str, Any] = {"host": host, "may_act": user_of(request).is_admin}
    parts = _PARTS if "part" not in request.GET else [_fragment(request)]
    for part in parts:
        context |= _CONTEXTS[part](host, request)
    return show(request, "host", context, room="Hosts", fragment=_fragment(request))


def _fragment(request: HttpRequest) -> str:
    """Which part of the page is asked for; the first where it has no name."""
    name = f"host_{request.GET.get('part', '')}"
    return name if name in _CONTEXTS else _PARTS[0]


def _slots(host: Host, request: HttpRequest) -> dict[str, Any]:
    [row] = rows.of([host])
    return {"row": row, "keys": keys_to_accept(host), "beside_slots": samples.beside_slots(host)}


def _measured(host: Host, request: HttpRequest) -> dict[str, Any]:
    view = samples.read(request.GET)
    return {
        "view": view,
        "ranges": list(samples.RANGES),
        "measured": samples.measured(host, view),
    }


def _runs(host: Host, request: HttpRequest) -> dict[str, Any]:
    view = samples.read(request.GET)
    runs = holders.runs(host, view.first_time, view.last_time)
    slots = [slot.index for slot in host.slots.all() if not slot.missing]
    return {
        "view": view,
        "runs": runs,
        "lanes": lanes.of(runs, slots, view.first_time, view.last_time),
        "most_runs": holders.MOST_RUNS,
    }


def _facts(host: Host, request: HttpRequest) -> dict[str, Any]:
    return {
        "entries": timeline.of(Event.objects.filter(kind=Event.Kind.HOST, subject=str(host.pk))),
        "pools": ResourcePool.objects.all(),
    }


#: the parts of the page of a host, each a fragment that is fetched anew by itself -> what it shows
_CONTEXTS: dict[str, Callable[[Host, HttpRequest], dict[str, Any]]] = {
    "host": _slots,
    "host_measured": _measured,
    "host_runs": _runs,
    "host_facts": _facts,
}
_PARTS = list(_CONTEXTS)


@page
@require_POST
def act(request: HttpRequest, name: str, action: str) -> HttpResponse:
    """Enable, disable, drain, run the doctor again, accept a key, declare lost, move to a pool, or remove."""
    host = samples.find(name)
    if action not in _STEPS and action not in registry.STEPS:
        raise Http404(f"There is no action {action} for hosts.")
    with refusals_told(request):
        rights.require_admin(user_of(request))
        if step := _STEPS.get(action):
            step(host, request)
        else:
            registry.STEPS[action](host.pk, actor=actor(request))
    gone = not registry.present().filter(name=name).exists()
    return redirect("/hosts" if gone else back_to(request, f"/hosts/{name}"))


def _move(host: Host, request: HttpRequest) -> None:
    pool = ResourcePool.objects.filter(name=request.POST.get("pool", "")).first()
    if pool is None:
        raise Refusal(f"There is no resource pool {request.POST.get('pool', '')}.", field="pool")
    registry.change_pool(host.pk, pool, actor=actor(request))
    messages.success(request, f"{host.name} is in pool {pool.name}.")


#: besides `registry.STEPS`
_STEPS: dict[str, Callable[[Host, HttpRequest], object]] = {
    "remove": lambda host, request: registry.remove(host.pk, actor=actor(request)),
    "accept-key": lambda host, request: registry.accept_key(
        host.pk, actor=actor(request), key=request.POST.get("key", "")
    ),
    "move": _move,
}
_SLOT_STEPS: dict[str, Callable[[Slot, str], object]] = {
    "enable": lambda slot, by: registry.switch_slot(slot.pk, enabled=True, actor=by),
    "drain": lambda slot, by: held_slots.disable(slot.pk, drain=True, actor=by),
    "disable": lambda slot, by: held_slots.disable(slot.pk, drain=False, actor=by),
}


@page
@require_POST
def act_on_slot(request: HttpRequest, name: str, index: int, action: str) -> HttpResponse:
    """Enable, drain or disable one slot."""
    slot = Slot.objects.filter(host__in=registry.present(), host__name=name, index=index).first()
    if slot is None or action not in _SLOT_STEPS:
        raise Http404(f"There is no action {action} for slot {index} of host {name}.")
    with refusals_told(request):
        rights.require_admin(user_of(request))
        _SLOT_STEPS[action](slot, actor(request))
    return redirect(back_to(request, f"/hosts/{name}"))
