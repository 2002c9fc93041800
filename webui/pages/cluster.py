"""The cluster on one page: slots in use and the queue over time, hosts by state, idle GPUs, and who used what today."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.utils import timezone

from dispatch import figures, pool_history, usage, usage_periods
from dispatch.figures import PoolFigures
from jobs import idle_slots
from jobs.models import PoolCount
from metrics import cluster_charts
from metrics.cluster_charts import Count
from webui.pages import hosts_filter, words
from webui.pages.frame import page, show
from webui.pages.hosts_occupancy import HOLDER_FIELDS, Holder, holder_of, slots_in_words
from webui.templatetags.console import spell

#: word in the address -> its length
RANGES = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
MOST_USERS = 8
MOST_IDLE = 50
HOUR_SECONDS = 3600


@dataclass(frozen=True)
class View:
    """What the address asks for."""

    range: str
    first: datetime
    last: datetime


@dataclass(frozen=True)
class Idle:
    """GPUs of one host that a run holds and does not use, for as long as the first of them."""

    host: str
    slots: list[int]
    since: datetime
    holder: Holder

    @property
    def slots_in_words(self) -> str:
        return slots_in_words(sorted(self.slots))


@dataclass(frozen=True)
class Line:
    """One pool over the range, in words: the mean and the most of its slots in use and of what waited."""

    pool: str
    usable: float
    used_mean: float
    used_most: float
    waiting_mean: float
    waiting_most: float


def read(query: QueryDict) -> View:
    name = query.get("range", "")
    name = name if name in RANGES else "day"
    now = timezone.now()
    return View(name, now - RANGES[name], now)


def idle() -> list[Idle]:
    """The longest first."""
    rows = idle_slots.held().order_by("slot__idle_since", "slot__host__name", "slot__index")
    fields = [name.format("member__") for name in HOLDER_FIELDS]
    found: dict[tuple[str, str], Idle] = {}
    for host, slot, since, *rest in rows.values_list(
        "slot__host__name", "slot__index", "slot__idle_since", *fields
    ):
        holder = holder_of(tuple(rest))
        found.setdefault((host, holder.href), Idle(host, [], since, holder)).slots.append(slot)
    return list(found.values())


def idle_rule() -> str:
    """When a GPU is flagged, in words."""
    if settings.IDLE_GPU_SECONDS <= 0:
        return "GPUs that are held and do nothing are not looked for (TRAINMASTER_IDLE_GPU_SECONDS is 0)."
    return (
        f"Held by a run, and under {settings.IDLE_GPU_PERCENT:g} % for"
        f" {spell(settings.IDLE_GPU_SECONDS)}; looked at once a minute."
    )


def by_state(pools: Sequence[PoolFigures]) -> list[tuple[str, str, int]]:
    """(state, its word, hosts), without states that no host is in."""
    found: Counter[str] = Counter()
    for pool in pools:
        found.update(pool.hosts)
    return [(state, words.host_state(state).text, count) for state, count in found.items() if count]


def counts(view: View) -> list[Count]:
    return [_count(row) for row in pool_history.between(view.first, view.last)]


def _count(row: PoolCount) -> Count:
    return Count(
        row.pool.name,
        row.at.timestamp(),
        row.seconds,
        row.usable_slots,
        row.used_slots,
        row.waiting_tasks,
        row.wanted_slots,
    )


def lines(found: Sequence[Count]) -> list[Line]:
    """By pool."""
    by_pool: dict[str, list[Count]] = {}
    for each in found:
        by_pool.setdefault(each.pool, []).append(each)
    return [_line(pool, rows) for pool, rows in by_pool.items()]


def _line(pool: str, rows: Sequence[Count]) -> Line:
    seconds = sum(row.seconds for row in rows)
    used = sum(row.used * row.seconds for row in rows) / seconds
    waiting = sum(row.waiting * row.seconds for row in rows) / seconds
    most_used, most_waiting = max(row.used for row in rows), max(row.waiting for row in rows)
    return Line(pool, rows[-1].usable, used, most_used, waiting, most_waiting)


@page
def overview(request: HttpRequest) -> HttpResponse:
    """The numbers now, and the charts' places; `?part=over_time` is what stands below them."""
    view = read(request.GET)
    part = request.GET.get("part")
    context: dict[str, Any] = {"view": view, "ranges": list(RANGES)}
    if part != "over_time":
        context |= _now()
    if part is None or part == "over_time":
        found = counts(view)
        newest = max((row.at for row in found), default=None)
        context |= {"lines": lines(found), "counted_at": newest}
    fragment = "cluster_over_time" if part == "over_time" else "cluster"
    return show(request, "cluster", context, room="Cluster", fragment=fragment)


def _now() -> dict[str, Any]:
    pools = figures.pools()
    stand_idle = idle()
    today = usage.sums(usage_periods.latest("day", 1, timezone.now()))[0]
    return {
        "used": sum(pool.used_slots for pool in pools),
        "usable": sum(pool.usable_slots for pool in pools),
        "waiting": sum(pool.tasks["waiting"] for pool in pools),
        "wanted": sum(pool.wanted_slots for pool in pools),
        "running": sum(pool.tasks["running"] for pool in pools),
        "hosts": by_state(pools),
        "filters": list(hosts_filter.KINDS),
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
    found = counts(view)
    window = (view.first.timestamp(), view.last.timestamp())
    return JsonResponse({"figures": cluster_charts.figures(found, *window) if found else []})
