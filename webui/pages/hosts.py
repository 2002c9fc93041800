"""Hosts: their slots as lamps, who holds them, when they were last seen, the doctor's report, and actions."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import messages
from django.db.models import Prefetch, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from dispatch.server_key import fingerprint
from events.models import Event
from hosts import observe, registry
from hosts.models import Host, Slot
from jobs.models import SlotHold
from webui.pages import timeline
from webui.pages.frame import actor, page, show, user_of


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


def _holders(hosts: list[Host]) -> dict[int, dict[str, object]]:
    """Slot id -> the trial that holds it."""
    rows = SlotHold.objects.filter(released_at=None, slot__host__in=hosts).values_list(
        "slot_id",
        "member__allocation__task__job__name",
        "member__allocation__task__trial__id",
        "member__allocation__state",
    )
    return {
        slot: {"name": name, "trial": trial, "preparing": state != "RUNNING"}
        for slot, name, trial, state in rows
    }


@page
def listing(request: HttpRequest) -> HttpResponse:
    hosts = list(_hosts())
    return show(request, "hosts", _context(hosts, request), room="Hosts", fragment="hosts")


@page
def detail(request: HttpRequest, name: str) -> HttpResponse:
    host = _hosts().filter(name=name).first()
    if host is None:
        raise Http404(f"There is no host {name}.")
    context = _context([host], request) | {
        "host": host,
        "state": observe.state_of(host),
        "keys": keys_to_accept(host),
        "missing": Slot.objects.filter(host=host, missing=True),
        "entries": timeline.of(Event.objects.filter(kind=Event.Kind.HOST, subject=str(host.pk))),
    }
    return show(request, "host", context, room="Hosts", fragment="host")


def _hosts() -> QuerySet[Host]:
    slots = Prefetch("slots", Slot.objects.filter(missing=False))
    return registry.present().select_related("pool").prefetch_related(slots)


def _context(hosts: list[Host], request: HttpRequest) -> dict[str, object]:
    holders = _holders(hosts)
    states = [(host, observe.state_of(host)) for host in hosts]
    return {
        "hosts": states,
        "holders": holders,
        "slots": sum(len(host.slots.all()) for host in hosts),
        "held": len(holders),
        "not_ready": sum(1 for _, state in states if state != "ready"),
        "changed_keys": [(host, key) for host in hosts for key in keys_to_accept(host) if key.pinned],
        "may_act": user_of(request).is_admin,
    }


@page
@require_POST
def act(request: HttpRequest, name: str, action: str) -> HttpResponse:
    """Enable, disable, drain, run the doctor again, accept a key, declare lost, or remove."""
    host = registry.present().filter(name=name).first()
    if host is None:
        raise Http404(f"There is no host {name}.")
    if not user_of(request).is_admin:
        messages.error(request, "Only an admin may change hosts.")
        return redirect(f"/hosts/{name}")
    try:
        _carry_out(host, action, actor(request), request.POST.get("key", ""))
    except registry.Refused as refusal:
        messages.error(request, str(refusal))
    gone = not registry.present().filter(name=name).exists()
    return redirect("/hosts" if gone else f"/hosts/{name}")


def _carry_out(host: Host, action: str, by: str, key: str) -> None:
    if action == "enable":
        registry.enable(host.pk, actor=by)
    elif action == "disable":
        registry.disable(host.pk, actor=by)
    elif action == "drain":
        registry.drain(host.pk, actor=by)
    elif action == "lost":
        registry.declare_lost(host.pk, actor=by)
    elif action == "remove":
        registry.remove(host.pk, actor=by)
    elif action == "accept-key":
        registry.accept_key(host.pk, actor=by, key=key)
    elif action == "doctor":
        registry.examine(host.pk, actor=by)
    else:
        raise Http404(f"There is no action {action} for hosts.")
