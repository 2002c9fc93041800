"""Hosts: their slots as lamps, who holds them, when they were last seen, the doctor's report, and actions."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from events.models import Event
from hosts import observe, registry
from hosts.models import Host
from jobs.models import SlotHold
from webui.pages import timeline
from webui.pages.frame import actor, page, show, user_of


def _holders(hosts: list[Host]) -> dict[int, dict[str, object]]:
    """Slot id -> the experiment that holds it."""
    rows = SlotHold.objects.filter(released_at=None, slot__host__in=hosts).values_list(
        "slot_id",
        "member__allocation__task__name",
        "member__allocation__task__trial__id",
        "member__allocation__state",
    )
    return {
        slot: {"name": name, "trial": trial, "preparing": state != "RUNNING"}
        for slot, name, trial, state in rows
    }


@page
def listing(request: HttpRequest) -> HttpResponse:
    hosts = list(Host.objects.select_related("pool").prefetch_related("slots"))
    return show(request, "hosts", _context(hosts, request), room="Hosts", fragment="hosts")


@page
def detail(request: HttpRequest, name: str) -> HttpResponse:
    host = Host.objects.select_related("pool").prefetch_related("slots").filter(name=name).first()
    if host is None:
        raise Http404(f"There is no host {name}.")
    context = _context([host], request) | {
        "host": host,
        "state": observe.state_of(host),
        "entries": timeline.of(Event.objects.filter(kind=Event.Kind.HOST, subject=str(host.pk))),
    }
    return show(request, "host", context, room="Hosts", fragment="host")


def _context(hosts: list[Host], request: HttpRequest) -> dict[str, object]:
    return {
        "hosts": [(host, observe.state_of(host)) for host in hosts],
        "holders": _holders(hosts),
        "may_act": user_of(request).is_admin,
    }


@page
@require_POST
def act(request: HttpRequest, name: str, action: str) -> HttpResponse:
    """Enable, disable, drain, run the doctor again, accept a key, declare lost, or remove."""
    host = Host.objects.filter(name=name).first()
    if host is None:
        raise Http404(f"There is no host {name}.")
    if not user_of(request).is_admin:
        messages.error(request, "Only an admin may change hosts.")
        return redirect(f"/hosts/{name}")
    try:
        _carry_out(host, action, actor(request))
    except registry.Refused as refusal:
        messages.error(request, str(refusal))
    gone = not Host.objects.filter(name=name).exists()
    return redirect("/hosts" if gone else f"/hosts/{name}")


def _carry_out(host: Host, action: str, by: str) -> None:
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
        registry.accept_key(host.pk, actor=by)
    elif action == "doctor":
        registry.examine(host.pk, actor=by)
    else:
        raise Http404(f"There is no action {action} for hosts.")
