"""The form of a resource pool, with each refusal beside its field."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from accounts import rights
from accounts.refusals import FieldRefusals, Refusal
from hosts import pool_edits
from hosts.models import ResourcePool
from webui.pages.frame import actor, page, posted, refusals_told, show, user_of
from webui.pages.pools.fields import NewPoolForm, PoolForm
from webui.pages.pools.page import find


@page
def new(request: HttpRequest) -> HttpResponse:
    """The form of a new pool; POST makes it."""
    return _form(request, None)


@page
def edit(request: HttpRequest, name: str) -> HttpResponse:
    """The form of a pool; POST changes it."""
    return _form(request, find(name))


def _form(request: HttpRequest, pool: ResourcePool | None) -> HttpResponse:
    try:
        rights.require_admin(user_of(request))
    except Refusal as refusal:
        messages.error(request, str(refusal))
        return redirect(f"/pools/{pool.name}" if pool else "/pools")
    kind, of = (PoolForm, pool) if pool else (NewPoolForm, ResourcePool())
    form = kind.of_pool(of, request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            return _kept(request, pool, {**form.cleaned_data})
        except FieldRefusals as refusal:
            for field, sentence in refusal.errors.items():
                form.add_error(field, sentence)
    context = {"pool": pool, "form": form}
    return show(request, "pool_form", context, room="Pools", status=400 if form.errors else 200)


def _kept(request: HttpRequest, pool: ResourcePool | None, values: dict[str, Any]) -> HttpResponse:
    """The page of the pool that was changed or made. Raises FieldRefusals."""
    if pool:
        changed = pool_edits.edit(pool.name, values, actor=actor(request))
        said = f"{len(changed)} field{'s' if len(changed) != 1 else ''} of pool {pool.name} changed."
        messages.success(request, said)
        return redirect(f"/pools/{pool.name}/configuration")
    name = values.pop("name")
    pool_edits.create(name, values, actor=actor(request))
    messages.success(request, f"Pool {name} created. Add hosts to it, or move some here.")
    return redirect(f"/pools/{name}")


@posted
def remove(request: HttpRequest, name: str) -> HttpResponse:
    """Take the pool out, if nothing is in it."""
    with refusals_told(request):
        rights.require_admin(user_of(request))
        pool_edits.remove(name, actor=actor(request))
        messages.success(request, f"Pool {name} removed.")
        return redirect("/pools")
    return redirect(f"/pools/{name}")
