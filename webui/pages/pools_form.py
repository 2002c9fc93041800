"""The form of a resource pool: its fields in words, with help, and each refusal beside its field."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from accounts import rights
from accounts.refusals import FieldRefusals, Refusal
from hosts import pool_edits
from hosts.models import ResourcePool
from webui.pages.frame import actor, page, show, user_of
from webui.pages.pools_fields import SECTIONS, Field


def record(pool: ResourcePool) -> dict[str, list[Field]]:
    """Every rule of the pool with its value."""
    return _filled({field.name: getattr(pool, field.name) for field in _fields()}, {})


def _fields() -> list[Field]:
    return [field for fields in SECTIONS.values() for field in fields]


def _filled(values: dict[str, Any], errors: dict[str, str]) -> dict[str, list[Field]]:
    return {
        title: [
            replace(field, value=values.get(field.name), error=errors.get(field.name, "")) for field in fields
        ]
        for title, fields in SECTIONS.items()
    }


@page
def new(request: HttpRequest) -> HttpResponse:
    """The form of a new pool; POST makes it."""
    return _form(request, None)


@page
def edit(request: HttpRequest, name: str) -> HttpResponse:
    """The form of a pool; POST changes it."""
    pool = ResourcePool.objects.filter(name=name).first()
    if pool is None:
        raise Http404(f"There is no resource pool {name}.")
    return _form(request, pool)


def _form(request: HttpRequest, pool: ResourcePool | None) -> HttpResponse:
    try:
        rights.require_admin(user_of(request))
    except Refusal as refusal:
        messages.error(request, str(refusal))
        return redirect(f"/pools/{pool.name}" if pool else "/pools")
    if request.method != "POST":
        return _show(request, pool, record(pool or ResourcePool()), "", {})
    values = {field.name: _read(field, request) for field in _fields()}
    name = pool.name if pool else request.POST.get("name", "").strip()
    try:
        if pool:
            changed = pool_edits.edit(name, values, actor=actor(request))
            said = f"{len(changed)} field{'s' if len(changed) != 1 else ''} of pool {name} changed."
        else:
            pool_edits.create(name, values, actor=actor(request))
            said = f"Pool {name} is made. Add hosts to it, or move some here."
    except FieldRefusals as refusal:
        return _show(request, pool, _filled(values, refusal.errors), name, refusal.errors)
    messages.success(request, said)
    return redirect(f"/pools/{name}/configuration" if pool else f"/pools/{name}")


def _show(
    request: HttpRequest,
    pool: ResourcePool | None,
    sections: dict[str, list[Field]],
    name: str,
    errors: dict[str, str],
) -> HttpResponse:
    context = {"pool": pool, "sections": sections, "name": name, "errors": errors, "roles": pool_edits.ROLES}
    response = show(request, "pool_form", context, room="Pools")
    response.status_code = 400 if errors else 200
    return response


def _read(field: Field, request: HttpRequest) -> object:
    """What was sent, as the value that it means; what means none is left as it is, for the one sentence about it."""
    text = request.POST.get(field.name, "").strip()
    if field.kind == "switch":
        return text == "on"
    if field.kind == "number":
        return _number(text)
    if field.kind == "floors":
        sent = {role: request.POST.get(f"{field.name}.{role}", "").strip() for role in pool_edits.ROLES}
        return {role: _number(floor) for role, floor in sent.items() if floor}
    return text


def _number(text: str) -> object:
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        return text


@page
@require_POST
def remove(request: HttpRequest, name: str) -> HttpResponse:
    """Take the pool out, if nothing is in it."""
    try:
        rights.require_admin(user_of(request))
        pool_edits.remove(name, actor=actor(request))
    except Refusal as refusal:
        messages.error(request, str(refusal))
        return redirect(f"/pools/{name}")
    messages.success(request, f"Pool {name} is removed.")
    return redirect("/pools")
