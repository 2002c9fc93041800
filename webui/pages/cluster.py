"""The cluster on one page: slots in use and the queue over time, hosts by state, idle GPUs, and who used what today."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.utils import timezone

from dispatch.keeping import figures, pool_history, usage
from dispatch.keeping.figures import PoolFigures
from metrics import cluster_charts
from metrics.cluster_charts import PoolSpan
from shown import words
from shown.hosts import filters, holders
from trainmaster.quantities import duration
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


@dataclass(frozen=True)
class PoolLine:
    """One pool over the range, in words: the mean and the most of its slots in use and of what waited."""

    pool: str
    usable: float
    used_mean: float
    used_most: float
    waiting_mean: float
    waiting_most: float


def read(query: QueryDict) -> ClusterView:
    name = choice(query, "range", RANGES, "day")
    now = timezone.now()
    return ClusterView(name, now - RANGES[name], now)


def idle_rule() -> str:
    """When a GPU is flagged, in words."""
    if settings.IDLE_GPU_SECONDS <= 0:
        return "Idle GPUs are not detected (TRAINMASTER_IDLE_GPU_SECONDS is 0)."
    return (
        f"Idle: held by a run, and under {settings.IDLE_GPU_PERCENT:g} % for"
        f" {duration(settings.IDLE_GPU_SECONDS)}; checked once a minute."
    )


def by_state(pools: Sequence[PoolFigures]) -> list[tuple[str, str, int]]:
    """(state, its word, hosts), without states that no host is in."""
    found: Counter[str] = Counter()
    for pool in pools:
        found.update(pool.hosts)
    return [(state, words.host_state(state).text, count) for state, count in found.items() if count]


def _line(pool: str, rows: Sequence[PoolSpan]) -> PoolLine:
    return PoolLine(
        pool,
        usable=rows[-1].usable,
        used_mean=fmean(row.used for row in rows),
        used_most=max(row.most_used for row in rows),
        waiting_mean=fmean(row.waiting for row in rows),
        waiting_most=max(row.most_waiting for row in rows),
    )


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
            "lines": [_line(*each) for each in cluster_charts.by_pool(spans).items()],
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
        "hosts": by_state(pools),
        "filters": list(filters.KINDS),
        "idle": stand_idle[:MOST_IDLE],
        "idle_gpus": sum(len(each.slots) for each in stand_idle),
        "idle_rule": idle_rule(),
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
