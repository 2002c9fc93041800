"""The form of a resource pool, with each refusal beside its field."""

from __future__ import annotations

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
from webui.pages.pools.fields import NewPoolForm, PoolForm


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
    kind, of = (PoolForm, pool) if pool else (NewPoolForm, ResourcePool())
    form = kind.of_pool(of, request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            return _kept(request, pool, {**form.cleaned_data})
        except FieldRefusals as refusal:
            for field, sentence in refusal.errors.items():
                form.add_error(field, sentence)
    response = show(request, "pool_form", {"pool": pool, "form": form}, room="Pools")
    response.status_code = 400 if form.errors else 200
    return response


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
    messages.success(request, f"Pool {name} removed.")
    return redirect("/pools")
