"""Hosts: their slots as lamps, who holds them, when they were last seen, the doctor's report, and actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect

from accounts import rights
from accounts.refusals import Refusal
from accounts.rights import Right
from dispatch.ssh.server_key import fingerprint
from events.models import Event
from hosts import registry
from hosts.models import Host, ResourcePool, Slot
from jobs import held_slots
from shown import timeline, words
from shown.hosts import holders, lanes, rows
from shown.hosts.rows import HostRow
from webui.pages.frame import actor, back_to, or_404, page, posted, refusals_told, show, user_of
from webui.pages.hosts import samples
from webui.query import choices

#: the filters beside "all", each with what it lets through
KINDS: dict[str, Callable[[HostRow], bool]] = {
    "silent": lambda row: row.state == "silent",
    "draining": lambda row: row.state == "draining" or any(each.slot.draining for each in row.slots),
    "disabled": lambda row: row.state == "disabled" or any(not each.slot.enabled for each in row.slots),
    "outsiders": lambda row: row.outsiders,
    "free": lambda row: row.counts["free"] > 0,
    "not ready": lambda row: not row.is_ready,
}
_MARKS = {name: words.host_state(name).lamp for name in ("silent", "draining", "disabled")}
#: from this many hosts on, cells come before the list
CELLS_FROM = 13
#: up to this many, cells have room for a word; above, a mark stands for it, whose word is in the filters
MOST_WORDS = 96
VIEWS = ["cells", "list"]


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


def _matches(row: HostRow, asked: QueryDict) -> bool:
    """Whether the filters other than that by kind let the host through."""
    model, pool, text = (asked.get(name, "") for name in ("model", "pool", "q"))
    return (
        (not model or model in row.models)
        and (not pool or pool == row.host.pool.name)
        and (text.lower() in row.host.name.lower() or text.lower() in row.host.address.lower())
    )


def _listed(request: HttpRequest, rows: list[HostRow]) -> dict[str, Any]:
    """What the page of all hosts shows: the hosts that fit, by pool, and the filters with their counts."""
    asked, wrong = choices(request.GET, {"show": KINDS, "view": VIEWS})
    asked["q"], kind = asked.get("q", "").strip(), asked.get("show", "")
    others = [each for each in rows if _matches(each, asked)]
    fitting = [each for each in others if not kind or KINDS[kind](each)]
    kinds = [(name, sum(1 for each in others if fits(each))) for name, fits in KINDS.items()]
    return {
        "wrong": wrong,
        "chosen": asked,
        "shown": fitting,
        "all": len(others),
        "kinds": [(name, count, _MARKS.get(name, "")) for name, count in kinds if count or name == kind],
        "models": sorted({model for each in rows for model in each.models}),
        "pools": sorted({each.host.pool.name for each in rows}),
        "by_pool": _by_pool(fitting),
        "dense": len(fitting) > MOST_WORDS,
        "view": asked.get("view") or VIEWS[len(rows) < CELLS_FROM],
        "views": VIEWS,
    }


def _by_pool(rows: list[HostRow]) -> list[tuple[str, list[HostRow], int, int]]:
    """(pool, its hosts, slots held, slots) by the pool's name."""
    found: dict[str, list[HostRow]] = {}
    for each in rows:
        found.setdefault(each.host.pool.name, []).append(each)
    return [
        (name, hosts, sum(each.held for each in hosts), sum(len(each.slots) for each in hosts))
        for name, hosts in sorted(found.items())
    ]


@page
def listing(request: HttpRequest) -> HttpResponse:
    """All hosts, as cells by pool or as a list."""
    hosts = rows.of(rows.present())
    changed = [(each.host, key) for each in hosts for key in keys_to_accept(each.host) if key.pinned]
    pools = sorted({each.host.pool_id for each in hosts})
    context = _listed(request, hosts) | {
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


@posted(Right.ADMIN)
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


@posted(Right.ADMIN)
def act_on_slot(request: HttpRequest, name: str, index: int, action: str) -> HttpResponse:
    """Enable, drain or disable one slot."""
    slot = Slot.objects.filter(host__in=registry.present(), host__name=name, index=index).first()
    if slot is None or action not in _SLOT_STEPS:
        raise Http404(f"There is no action {action} for slot {index} of host {name}.")
    with refusals_told(request):
        rights.require_admin(user_of(request))
        _SLOT_STEPS[action](slot, actor(request))
    return redirect(back_to(request, f"/hosts/{name}"))
