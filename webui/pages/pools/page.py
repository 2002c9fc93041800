"""Resource pools: what of each is used, where its slots stand and who holds them, how long jobs waited, its rules."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone

from events.models import Event
from hosts.models import ResourcePool
from hosts.pools import default_pool
from jobs import queued_time
from jobs.models import Allocation, Job
from jobs.states import AllocationState, JobState
from metrics import queue_charts
from shown import timeline
from shown.hosts import occupancy
from shown.hosts.occupancy import Seen, Usage
from webui.pages.frame import page, show, user_of
from webui.pages.hosts import view as hosts_filter
from webui.pages.pools import pairs
from webui.pages.pools.fields import PoolForm
from webui.query import choice

TABS = ["overview", "pairs", "stats", "configuration"]
PERIODS = [7, 30]
#: above this many hosts the topology is drawn as on the page of all hosts
MOST_BOXES = 48


@dataclass(frozen=True)
class Shown:
    """A pool with what stands in it."""

    pool: ResourcePool
    seen: list[Seen]
    usage: Usage
    #: active jobs that hold something, and that wait
    scheduled: int
    queued: int

    @property
    def badges(self) -> list[str]:
        named = {
            "default compute": self.pool.default_compute,
            "default aux": self.pool.default_aux,
            "shared account": self.pool.shared_account,
            "strict": self.pool.strict,
        }
        return [name for name, wears in named.items() if wears]

    @property
    def models(self) -> list[str]:
        return sorted({model for each in self.seen for model in each.models})

    @property
    def not_ready(self) -> int:
        return sum(1 for each in self.seen if not each.is_ready)


def find(name: str) -> ResourcePool:
    """The pool or 404."""
    pool = ResourcePool.objects.filter(name=name).first()
    if pool is None:
        raise Http404(f"There is no resource pool {name}.")
    return pool


def shown(pool: ResourcePool, seen: list[Seen]) -> Shown:
    active = Job.objects.filter(pool=pool, state=JobState.ACTIVE)
    holding = Allocation.objects.filter(task__job__in=active).exclude(state=AllocationState.TERMINATED)
    scheduled = holding.values("task__job").distinct().count()
    usage = occupancy.usage(seen, pool.aux_per_host)
    return Shown(pool, seen, usage, scheduled, active.count() - scheduled)


@page
def listing(request: HttpRequest) -> HttpResponse:
    """All pools, the default one first."""
    default_pool()
    seen = occupancy.of(occupancy.present())
    pools = ResourcePool.objects.order_by("-default_compute", "name")
    rows = [shown(pool, [each for each in seen if each.host.pool_id == pool.pk]) for pool in pools]
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
    seen = occupancy.of(occupancy.present().filter(pool=pool))
    context = {
        "row": shown(pool, seen),
        "pool": pool,
        "tab": tab,
        "tabs": TABS,
        "as_cells": len(seen) > MOST_BOXES,
        "dense": len(seen) > hosts_filter.MOST_WORDS,
        "may_act": user_of(request).is_admin,
    }
    if tab == "pairs":
        context |= pairs.of(pool)
    elif tab == "stats":
        days = choice(request.GET, "days", PERIODS, PERIODS[0])
        context |= {"days": days, "periods": PERIODS, "queued_time": _by_day(pool, days)}
    elif tab == "configuration":
        context |= {
            "sections": PoolForm.of_pool(pool).in_words(),
            "entries": timeline.of(Event.objects.filter(kind=Event.Kind.POOL, subject=str(pool.pk))),
        }
    return show(request, "pool", context, room="Pools", fragment="pool")


def _by_day(pool: ResourcePool, days: int) -> list[queued_time.Day]:
    return queued_time.by_day(pool, days, timezone.now())


@page
def chart(request: HttpRequest, name: str) -> JsonResponse:
    """The average queued time by day as Plotly JSON."""
    days = _by_day(find(name), choice(request.GET, "days", PERIODS, PERIODS[0]))
    return JsonResponse({"figures": [queue_charts.queued_time_figure(days)]})
