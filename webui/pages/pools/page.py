"""Resource pools: what of each is used, where its slots stand and who holds them, how long jobs waited, its rules."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.utils import timezone

from accounts import rights
from accounts.refusals import FieldRefusals, Refusal
from accounts.rights import Right
from commands import group_burn_in
from hosts import pair_checks, pool_edits
from hosts.models import ResourcePool
from hosts.pools import default_pool, named
from hosts.slurm_nodes import login_name
from jobs import group_rows, queued_time
from metrics import cluster_charts
from metrics.cluster_charts import Start
from shown import audit, forecasts, pair_matrix, pool_windows, pools, reservations
from shown.audit import AuditFilters
from shown.hosts import spares
from webui.pages.frame import actor, form, or_404, page, posted, refusals_told, show, user_of
from webui.pages.hosts import page as hosts_page
from webui.pages.pools.fields import NewPoolForm, PoolForm
from webui.query import as_id, choice

TABS = ["overview", "pairs", "stats", "forecasts", "history", "configuration"]
#: kinds of changes that the history offers alone
CHANGES = [
    "priority",
    "weight",
    "max-slots",
    "moved",
    "pool",
    "submitted",
    "paused",
    "stopped",
    "edited",
    "hosts",
]
PERIODS = [7, 30]
#: above this many hosts the topology is drawn as on the page of all hosts
MOST_BOXES = 48


def find(name: str) -> ResourcePool:
    """The pool or 404."""
    return or_404(named(name), f"There is no resource pool {name}.")


@page
def listing(request: HttpRequest) -> HttpResponse:
    """All pools, the default one first."""
    default_pool()
    rows = pools.of(pools.every())
    context = {
        "pools": rows,
        "topics": " ".join(["pools", "hosts", *(f"pool:{row.pool.pk}" for row in rows)]),
        "may_act": user_of(request).is_admin,
    }
    return show(request, "pools", context, room="Pools", fragment="pools")


@page
def detail(request: HttpRequest, name: str, tab: str = "overview") -> HttpResponse:
    """One pool."""
    if tab not in TABS:
        raise Http404(f"A pool has no page {tab}; it has {', '.join(TABS)}.")
    pool = find(name)
    [row] = pools.of([pool])
    context = {
        "row": row,
        "pool": pool,
        "tab": tab,
        "tabs": TABS,
        "as_cells": len(row.hosts) > MOST_BOXES,
        "dense": len(row.hosts) > hosts_page.MOST_WORDS,
        "may_act": user_of(request).is_admin,
    }
    if tab == "overview":
        context |= {"groups": group_rows.of_pool(pool), "windows": pool_windows.of_pool(pool, timezone.now())}
        context |= {"reservations": reservations.of_pool(pool), "spares": spares.in_words(pool)}
    elif tab == "pairs":
        context |= pair_matrix.of(pool)
    elif tab == "stats":
        days = choice(request.GET, "days", PERIODS, PERIODS[0])
        context |= {
            "days": days,
            "periods": PERIODS,
            "queued_time": _by_day(pool, days),
            "chart": f"days={days}",
        }
    elif tab == "forecasts":
        found = forecasts.outcomes(pool, timezone.now())
        context |= {"record": forecasts.record(found), "days": forecasts.DAYS}
        context |= {"chart": "of=forecasts"} if found else {}
    elif tab == "history":
        context |= _history(request, pool)
    elif tab == "configuration":
        context["sections"] = PoolForm.of_pool(pool).in_words()
    return show(request, "pool", context, room="Pools", fragment="pool")


def _history(request: HttpRequest, pool: ResourcePool) -> dict[str, Any]:
    """What people did to its queue, hosts and rules."""
    viewer, change = user_of(request), choice(request.GET, "change", CHANGES, "")
    found = audit.found(AuditFilters(pool_id=pool.pk, change=change), viewer)
    after, before = (as_id(request.GET.get(name, "")) or None for name in ("after", "before"))
    return {
        "list": audit.page(found, viewer, after=after, before=before),
        "changes": [(name, audit.CHANGES[name].title) for name in CHANGES],
        "change": change,
    }


def _by_day(pool: ResourcePool, days: int) -> list[queued_time.Day]:
    return queued_time.by_day(pool, days, timezone.now())


@page
def chart(request: HttpRequest, name: str) -> JsonResponse:
    """The average queued time by day, or promised starts against real ones, as Plotly JSON."""
    if request.GET.get("of") == "forecasts":
        found = forecasts.outcomes(find(name), timezone.now())
        starts = [
            Start(
                *(
                    (at - each.promised_at).total_seconds()
                    for at in (each.earliest, each.latest, each.started_at)
                )
            )
            for each in found
            if each.started_at is not None
        ]
        return JsonResponse({"figures": [cluster_charts.forecasts_figure(starts)]})
    days = _by_day(find(name), choice(request.GET, "days", PERIODS, PERIODS[0]))
    return JsonResponse({"figures": [cluster_charts.queued_time_figure(days)]})


@posted(Right.ADMIN)
def test_pairs(request: HttpRequest, name: str) -> HttpResponse:
    """Test all pairs again."""
    pool = find(name)
    with refusals_told(request):
        rights.require_admin(user_of(request))
        pair_checks.begin(pool, actor=actor(request))
    return redirect(f"/pools/{name}/pairs")


@posted(Right.ADMIN)
def burn_in_together(request: HttpRequest, name: str) -> HttpResponse:
    """Measure the links between the hosts of the pool that can run jobs now."""
    pool = find(name)
    with refusals_told(request):
        rights.require_admin(user_of(request))
        hosts = pair_checks.ready(pool.pk).filter(enabled=True, draining=False).values_list("pk", flat=True)
        command = group_burn_in.ask(list(hosts), owner=user_of(request), actor=actor(request))
        return redirect(f"/tasks/{command.pk}")
    return redirect(f"/pools/{name}/pairs")


@form(Right.ADMIN)
def new(request: HttpRequest) -> HttpResponse:
    """The form of a new pool; POST makes it."""
    return _form(request, None)


@form(Right.ADMIN)
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
    made = pool_edits.create(name, values, actor=actor(request))
    if made.slurm:
        messages.success(request, f"Pool {name} created. The server logs in to the cluster now.")
        return redirect(f"/hosts/{login_name(name)}/adding")
    messages.success(request, f"Pool {name} created. Add hosts to it, or move some here.")
    return redirect(f"/pools/{name}")


@posted(Right.ADMIN)
def remove(request: HttpRequest, name: str) -> HttpResponse:
    """Take the pool out, if nothing is in it."""
    with refusals_told(request):
        rights.require_admin(user_of(request))
        pool_edits.remove(name, actor=actor(request))
        messages.success(request, f"Pool {name} removed.")
        return redirect("/pools")
    return redirect(f"/pools/{name}")
