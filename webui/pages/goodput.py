"""What the time of held slots went to. What is shown stands in the address, as on the page of usage."""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from dispatch.keeping.usage import Unit
from shown import goodput
from webui.pages import usage
from webui.pages.frame import page, show
from webui.pages.trials.trial import find

FIRST: dict[Unit, int] = {"week": 4, "day": 14, "month": 6}
MOST: dict[Unit, int] = {"week": 53, "day": 31, "month": 36}


@page
def overview(request: HttpRequest) -> HttpResponse:
    """One bar for all slots, one for each period, and one for each pool, user or experiment."""
    view = usage.read(request.GET, FIRST, MOST, tuple(goodput.GROUPS))
    top = goodput.top(view.periods, view.group, each_period=False)
    context = {
        "view": view,
        "groups": list(goodput.GROUPS),
        "units": list(FIRST),
        "first": view.periods.names[0],
        "last": view.periods.names[-1],
        "most": MOST[view.unit],
        "total": top.total,
        "csv": f"/resources/goodput?{_query(view)}",
        "top": top if view.group != "total" else None,
    }
    return show(request, "goodput", context, room="Usage", status=400 if view.refusal else 200)


def _query(view: usage.UsageView) -> str:
    names = view.periods.names
    asked = {"start_date": names[0], "end_date": names[-1], "period": view.unit, "group_by": view.group}
    return urlencode(asked)


@page
def of_trial(request: HttpRequest, trial_id: int) -> HttpResponse:
    """The bar on a trial's overview, which fetches it by itself: it costs more than the rest of that page."""
    response = render(request, "fragments/goodput_of_trial.html", {"told": goodput.of_trial(find(trial_id))})
    response["Cache-Control"] = "no-store"
    return response
