"""Hosts: their slots as lamps, who holds them, when they were last seen, the doctor's report, and actions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

import commands.burn_in
from accounts import rights
from accounts.refusals import Refusal
from accounts.rights import Right
from events.models import Event
from hosts import registry
from hosts.models import Host, Slot
from jobs import held_slots, quarantine
from shown import timeline, words
from shown.hosts import actions, burn_in, filters, group_burn_in, health, holders, keys, lanes, rows
from shown.hosts.rows import HostRow
from webui.pages.frame import actor, back_to, or_404, page, posted, refusals_told, show, user_of
from webui.pages.hosts import samples
from webui.query import choices

_MARKS = {name: words.host_state(name).lamp for name in ("silent", "draining", "disabled")}
#: from this many hosts on, cells come before the list
CELLS_FROM = 13
#: up to this many, cells have room for a word; above, a mark stands for it, whose word is in the filters
MOST_WORDS = 96
VIEWS = ["cells", "list"]


def _listed(request: HttpRequest, rows: list[HostRow]) -> dict[str, Any]:
    """What the page of all hosts shows: the hosts that fit, by pool, and the filters with their counts."""
    asked, wrong = choices(request.GET, {"show": filters.KINDS, "view": VIEWS})
    asked["q"], kind = asked.get("q", "").strip(), asked.get("show", "")
    others = [each for each in rows if filters.matches(each, asked)]
    fitting = [each for each in others if not kind or filters.KINDS[kind](each)]
    kinds = [(name, sum(1 for each in others if fits(each))) for name, fits in filters.KINDS.items()]
    return {
        "wrong": wrong,
        "chosen": asked,
        "shown": fitting,
        "all": len(others),
        "kinds": [(name, count, _MARKS.get(name, "")) for name, count in kinds if count or name == kind],
        "models": sorted({model for each in rows for model in each.models}),
        "pools": sorted({each.host.pool.name for each in rows}),
        "by_pool": filters.by_pool(fitting),
        "dense": len(fitting) > MOST_WORDS,
        "view": asked.get("view") or VIEWS[len(rows) < CELLS_FROM],
        "views": VIEWS,
    }


@page
def listing(request: HttpRequest) -> HttpResponse:
    """All hosts, as cells by pool or as a list."""
    hosts = rows.of(rows.present())
    changed = [(each.host, key) for each in hosts for key in keys.to_accept(each.host) if key.pinned]
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
    return {"row": row, "keys": keys.to_accept(host), "beside_slots": samples.beside_slots(host)}


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
        "health": health.of(host),
        "burn_in": burn_in.of(host),
        "together": group_burn_in.newest_of(host),
        "entries": timeline.of(Event.objects.filter(kind=Event.Kind.HOST, subject=str(host.pk))),
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
    """Enable, disable, drain, quarantine, run the doctor again, accept a key, declare lost, or remove."""
    host = samples.find(name)
    if action not in _STEPS and action not in registry.STEPS:
        raise Http404(f"There is no action {action} for hosts.")
    with refusals_told(request):
        rights.require_admin(user_of(request))
        if step := _STEPS.get(action):
            step(host, request)
        else:
            registry.STEPS[action](host.pk, actor=actor(request))
    where = back_to(request, home := f"/hosts/{name}")
    gone = where.startswith(home) and not registry.present().filter(name=name).exists()
    return redirect("/hosts" if gone else where)


def _accept(host: Host, request: HttpRequest) -> None:
    """With `join` the host gets work as soon as the doctor has found it in order, with what was chosen for it."""
    with transaction.atomic():
        registry.accept_key(host.pk, actor=actor(request), key=request.POST.get("key", ""))
        if "join" in request.POST:
            registry.enable(host.pk, actor=actor(request))


def _examine(host: Host, request: HttpRequest) -> None:
    registry.examine(host.pk, actor=actor(request))
    messages.info(request, f"The doctor is checking {host.name}.")


def _quarantine(host: Host, request: HttpRequest) -> None:
    """The whole host, or the slot that was chosen."""
    slot = request.POST.get("slot", "")
    reason = request.POST.get("reason", "")
    done = quarantine.by_hand(host.pk, int(slot) if slot.isdecimal() else None, reason, actor=actor(request))
    messages.success(request, done)


def _release(host: Host, request: HttpRequest) -> None:
    """The whole host, or the slot that was chosen; with hours for a time, whatever is reported of it."""
    slot, hours = request.POST.get("slot", ""), request.POST.get("hours", "").strip()
    if slot and not slot.isdecimal():
        raise Refusal(
            f"Found slot {slot!r}, allowed: a number, such as 1, or nothing for the whole host.", field="slot"
        )
    if hours and not _HOURS.fullmatch(hours):
        raise Refusal(f"Found {hours!r} hours, allowed: a number, such as 4.", field="hours")
    quarantine.release(
        host.pk, int(slot) if slot else None, actor=actor(request),
        hours=float(hours) if hours else None, reason=request.POST.get("reason", ""),
    )  # fmt: skip


def _burn_in(host: Host, request: HttpRequest) -> None:
    commands.burn_in.ask(host.pk, owner=user_of(request), actor=actor(request))
    messages.success(request, f"The burn-in of {host.name} starts once all its slots are free.")


_HOURS = re.compile(r"\d{1,4}(\.\d{1,3})?")
#: besides `registry.STEPS`
_STEPS: dict[str, Callable[[Host, HttpRequest], object]] = {
    "quarantine": lambda host, request: _quarantine(host, request),
    "release": lambda host, request: _release(host, request),
    "remove": lambda host, request: registry.remove(host.pk, actor=actor(request)),
    "accept-key": _accept,
    "burn-in": _burn_in,
    "doctor": _examine,
}
_SLOT_STEPS: dict[str, Callable[[Slot, str], object]] = {
    "release": lambda slot, by: quarantine.release(slot.host_id, slot.index, actor=by),
    "enable": lambda slot, by: registry.switch_slot(slot.pk, enabled=True, actor=by),
    "drain": lambda slot, by: held_slots.disable(slot.pk, drain=True, actor=by),
    "disable": lambda slot, by: held_slots.disable(slot.pk, drain=False, actor=by),
}


@posted(Right.ADMIN)
def act_on_slot(request: HttpRequest, name: str, index: int, action: str) -> HttpResponse:
    """Enable, drain, disable or release one slot."""
    slot = Slot.objects.filter(host__in=registry.present(), host__name=name, index=index).first()
    if slot is None or action not in _SLOT_STEPS:
        raise Http404(f"There is no action {action} for slot {index} of host {name}.")
    with refusals_told(request):
        rights.require_admin(user_of(request))
        _SLOT_STEPS[action](slot, actor(request))
    return redirect(back_to(request, f"/hosts/{name}"))


@page
def menu(request: HttpRequest, name: str, index: int | None = None) -> HttpResponse:
    """The menu of a host's row, or of a slot's: behind the three dots, and as a page."""
    host = or_404(rows.present().filter(name=name).first(), f"There is no host {name}.")
    [row] = rows.of([host])
    title = f"slot {index} of {name}" if index is not None else name
    if index is None:
        entries = list(actions.of_host(row, user_of(request)))
    else:
        slot = or_404(
            next((each for each in row.slots if each.slot.index == index), None), f"There is no {title}."
        )
        entries = list(actions.of_slot(row, slot, user_of(request)))
    context = {"title": title, "entries": entries, "back": back_to(request, "/hosts")}
    if request.headers.get("HX-Request") == "true":
        return render(request, "fragments/host_menu.html", context)
    return show(request, "host_menu", context, room="Hosts")
