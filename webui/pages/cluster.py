"""The cluster on one page: slots in use and the queue over time, hosts by state, idle GPUs, and who used what today."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.utils import timezone

from dispatch.keeping import figures, pool_history, usage
from metrics import cluster_charts
from shown import cluster as shown_cluster
from shown.hosts import filters, holders
from webui.pages.frame import page, show
from webui.query import choice

#: word in the address -> its length
RANGES = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
MOST_USERS = 8
MOST_IDLE = 50
HOUR_SECONDS = 3600


@dataclass(frozen=True)
class ClusterView:
    """What the address asks for."""

    range: str
    first: datetime
    last: datetime

    @property
    def span_seconds(self) -> int:
        """What one point of its charts stands for."""
        return cluster_charts.span_seconds((self.last - self.first).total_seconds())


def read(query: QueryDict) -> ClusterView:
    name = choice(query, "range", RANGES, "day")
    now = timezone.now()
    return ClusterView(name, now - RANGES[name], now)


@page
def overview(request: HttpRequest) -> HttpResponse:
    """The numbers now, and the charts' places; `?part=over_time` is what stands below them."""
    view = read(request.GET)
    part = request.GET.get("part")
    context: dict[str, Any] = {"view": view, "ranges": list(RANGES)}
    if part != "over_time":
        context |= _now()
    if part is None or part == "over_time":
        spans = pool_history.by_pool(view.first, view.last, view.span_seconds)
        context |= {
            "lines": [shown_cluster.line_of(*each) for each in cluster_charts.by_pool(spans).items()],
            "counted_at": pool_history.counted_at(),
        }
    fragment = "cluster_over_time" if part == "over_time" else "cluster"
    return show(request, "cluster", context, room="Cluster", fragment=fragment)


def _now() -> dict[str, Any]:
    pools = figures.pools()
    stand_idle = holders.idle()
    today = usage.sums(usage.latest("day", 1, timezone.now()))[0]
    return {
        "used": sum(pool.used_slots for pool in pools),
        "usable": sum(pool.usable_slots for pool in pools),
        "waiting": sum(pool.tasks["waiting"] for pool in pools),
        "wanted": sum(pool.wanted_slots for pool in pools),
        "running": sum(pool.tasks["running"] for pool in pools),
        "hosts": shown_cluster.by_state(pools),
        "filters": list(filters.KINDS),
        "idle": stand_idle[:MOST_IDLE],
        "idle_gpus": sum(len(each.slots) for each in stand_idle),
        "idle_rule": shown_cluster.idle_rule(),
        "today": [(name, seconds / HOUR_SECONDS) for name, seconds in today.by_user.most_common(MOST_USERS)],
        "users": len(today.by_user),
    }


@page
def chart(request: HttpRequest) -> JsonResponse:
    """The figures as Plotly JSON; none where nothing was counted."""
    view = read(request.GET)
    asked = (view.first, view.last, view.span_seconds)
    drawn = cluster_charts.figures(
        pool_history.by_pool(*asked),
        pool_history.totals(*asked),
        view.first.timestamp(),
        view.last.timestamp(),
    )
    return JsonResponse({"figures": drawn})
