"""The form of a window: maintenance of hosts, or a reservation for a group."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from accounts import rights
from accounts.refusals import FieldRefusals, Refusal
from accounts.rights import Right
from hosts import pool_windows
from hosts.pool_windows import Window
from webui.forms import Form
from webui.pages.frame import actor, form, or_404, posted, refusals_told, show, user_of
from webui.pages.pools.fields import Number, Rule
from webui.pages.pools.page import find


class WindowForm(Form):
    name = Rule("Name", "Letters, digits, '.', '_' and '-'.")
    starts = Rule(
        "Starts", "Such as 2026-12-01T06:00, in the time zone below. For a weekly window, its first time."
    )
    ends = Rule("Ends", "Such as 2026-12-01T08:00.")
    time_zone = Rule(
        "Time zone", "Such as Europe/Berlin. Weekly windows keep its clock, also in summer time."
    )
    weekly = forms.BooleanField(label="Every week", required=False)
    hosts = Rule("Hosts", "Names with spaces between them. Empty: a number of slots.")
    slots = Number("Slots", "Whole hosts that have this many are chosen, as few as possible.")
    group = Rule("For group", "Only its jobs use these hosts in this time. Empty: nobody does (maintenance).")

    def values(self) -> dict[str, Any]:
        """As `hosts.pool_windows` takes them."""
        given = dict(self.cleaned_data)
        return {**given, "hosts": given["hosts"].replace(",", " ").split()}


@form(Right.ADMIN)
def new(request: HttpRequest, name: str) -> HttpResponse:
    """The form of a new window; POST adds it."""
    return _form(request, name, None)


@form(Right.ADMIN)
def edit(request: HttpRequest, name: str, window: str) -> HttpResponse:
    """The form of a window; POST changes it."""
    found = next((each for each in pool_windows.of_pool(find(name)) if each.name == window), None)
    return _form(request, name, or_404(found, f"Pool {name} has no window {window}."))


@posted(Right.ADMIN)
def remove(request: HttpRequest, name: str, window: str) -> HttpResponse:
    """Take a window out."""
    with refusals_told(request):
        rights.require_admin(user_of(request))
        pool_windows.remove(name, window, actor=actor(request))
        messages.success(request, f"Window {window} removed.")
    return redirect(f"/pools/{name}")


def _form(request: HttpRequest, name: str, window: Window | None) -> HttpResponse:
    pool = find(name)
    try:
        rights.require_admin(user_of(request))
    except Refusal as refusal:
        messages.error(request, str(refusal))
        return redirect(f"/pools/{name}")
    record = window.record() if window else {"time_zone": "UTC"}
    initial = {**record, "hosts": " ".join(record.get("hosts", []))}
    form = WindowForm(request.POST if request.method == "POST" else None, initial=initial)
    if form.is_valid():
        try:
            kept = pool_windows.save(
                name, form.values(), actor=actor(request), replaces=window.name if window else ""
            )
        except FieldRefusals as refusal:
            for field, sentence in refusal.errors.items():
                form.add_error(field, sentence)
        else:
            messages.success(request, f"Window {kept.name} saved. Its runs are listed below.")
            return redirect(f"/pools/{name}")
    context = {"pool": pool, "form": form, "window": window}
    return show(request, "pool_window", context, room="Pools", status=400 if form.errors else 200)
