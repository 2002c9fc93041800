"""History of the use of slots: slot-hours by day or month, and whose they were. What is shown stands in the address."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.utils import timezone

from accounts.refusals import Refusal
from dispatch.keeping import usage
from dispatch.keeping.usage import Periods, Unit
from metrics import cluster_charts
from shown import usage as shown_usage
from webui.api.resource_usage import PERIODS
from webui.pages.frame import page, show
from webui.query import choice

HOUR_SECONDS = 3600
#: how many are shown at first, and at most (features.md section 6)
FIRST: dict[Unit, int] = {"day": 14, "month": 6}
MOST: dict[Unit, int] = {"day": 31, "month": 36}
GROUPS = {"user": "user", "pool": "resource pool", "group": "group", "label": "label", "total": "total"}


@dataclass(frozen=True)
class UsageView:
    """What the address asks for. `refusal`: why its period is not shown, which is then the usual one."""

    periods: Periods
    group: str
    refusal: str = ""

    @property
    def unit(self) -> Unit:
        return self.periods.unit

    @property
    def title(self) -> str:
        by = f" by {GROUPS[self.group]}" if self.group != "total" else ""
        return f"Slot-hours{by}"


def read(
    query: QueryDict,
    at_first: Mapping[Unit, int] = FIRST,
    most: Mapping[Unit, int] = MOST,
    groups: Collection[str] = tuple(GROUPS),
) -> UsageView:
    """The first unit and the first group are the usual ones."""
    unit: Unit = choice(query, "by", at_first, next(iter(at_first)))
    group = choice(query, "group", groups, next(iter(groups)))
    usual = usage.latest(unit, at_first[unit], timezone.now())
    first, last = str(query.get("from") or usual.names[0]), str(query.get("to") or usual.names[-1])
    try:
        return UsageView(usage.between(unit, first, last, most=most[unit]), group)
    except Refusal as error:
        return UsageView(usual, group, str(error))


@page
def overview(request: HttpRequest) -> HttpResponse:
    """The chart's place, the numbers beside it, and the files."""
    view = read(request.GET)
    sums = usage.sums(view.periods)
    names = view.periods.names
    seconds = sum(each.seconds for each in sums)
    until = min(view.periods.before, timezone.now())
    context = {
        "view": view,
        "groups": GROUPS,
        "units": list(FIRST),
        "first": names[0],
        "last": names[-1],
        "most": MOST[view.unit],
        "lines": shown_usage.lines(view.group, sums),
        "hours": seconds / HOUR_SECONDS,
        "users": len({name for each in sums for name in each.by_user}),
        "mean": seconds / max(1.0, (until - view.periods.after).total_seconds()),
        "sums": [(each.period, each.seconds / HOUR_SECONDS) for each in reversed(sums)],
        "period": next(name for name, unit in PERIODS.items() if unit == view.unit),
        "figures": f"/usage/chart?by={view.unit}&from={names[0]}&to={names[-1]}&group={view.group}",
        "after": view.periods.after.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "before": view.periods.before.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return show(request, "usage", context, room="Usage", status=400 if view.refusal else 200)


@page
def chart(request: HttpRequest) -> JsonResponse:
    """The figure as Plotly JSON; none where nothing was used."""
    view = read(request.GET)
    found = shown_usage.lines(view.group, usage.sums(view.periods))
    stacks = [(line.name, line.by_period) for line in found]
    figure = cluster_charts.usage_figure(view.title, view.unit, view.periods.names, stacks)
    return JsonResponse({"figures": [figure] if found else []})
