"""Runs over each other and side by side: curves, grouped or not, and a table of what sets the runs apart.

The address holds all of it: `/compare?trials=3,7,12&metric=validation/loss`, `/compare?experiments=4,5&group=lr`, or
the filters of the list of experiments, `/compare?q=resnet&project=2&group=lr&x=relative&smooth=0.6&log=1&baseline=7`.
What is ticked on other pages comes as `trial=3&trial=7`, or as `experiment=4`, which stands for its best trial, with
`runs=all` for all of them. With `runs` an address in which nothing is ticked means no runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse, QueryDict

from metrics.comparisons import ChartView, Metric
from metrics.curves import MOST_SMOOTHING, Axis
from metrics.run_groups import POINTS, Band
from shown import comparison
from shown.comparison import BY_EXPERIMENT, MOST_GROUPS, MOST_RUNS, Asked, Comparison
from webui.pages.experiments.listing import filters_of
from webui.pages.frame import page, show, user_of
from webui.query import as_id, as_ids, as_number, as_whole, choice

AXES = {Axis.STEP: "steps", Axis.WALL: "time", Axis.RELATIVE: "time since start"}
BANDS = {Band.RANGE: "min to max", Band.DEVIATION: "± 1 standard deviation"}
#: parameters that say how the runs are shown, and not which
VIEW = ("metric", "group", "x", "smooth", "log", "band", "baseline")


@page
def compare(request: HttpRequest) -> HttpResponse:
    """The table, and places for the charts."""
    if {"trial", "experiment", "runs"} & request.GET.keys():
        return HttpResponseRedirect(_joined(request.GET))
    found = _read(request)
    known = found.metrics()
    drawn = found.drawn(known)
    table = comparison.table(found, next(iter(drawn), None))
    can_remove = found.asked.trials and not found.asked.group
    context = {
        "found": found,
        "refusals": _unreadable(request.GET) + found.refusals,
        "rows": [
            (row, _address(request.GET, [pk for pk in found.ids if pk != row.trial.pk]) if can_remove else "")
            for row in table.rows
        ],
        "table": table,
        "hparams": table.hparams,
        "experiments": len({trial.experiment_id for trial in found.trials}),
        "metrics": [(metric, metric in drawn) for metric in known],
        "first": next(iter(drawn), ""),
        "shown": len(drawn),
        "most": MOST_RUNS,
        "points": POINTS,
        "axes": AXES,
        "bands": BANDS,
        "group_by": {BY_EXPERIMENT: "experiment"} | {name: name for name in table.hparams.differing},
        "groups": [*found.asked.group, *[""] * MOST_GROUPS][:MOST_GROUPS],
        "carried": [(name, value) for name, values in request.GET.lists() for value in values if name not in VIEW],
    }  # fmt: skip
    return show(request, "compare", context, room="Experiments", fragment="compare")


@page
def chart(request: HttpRequest) -> JsonResponse:
    """The figures of the metrics that the address names, or of the first, as Plotly JSON."""
    return JsonResponse({"figures": _read(request).figures()})


def _read(request: HttpRequest) -> Comparison:
    query = request.GET
    metrics = [Metric.parse(text) for text in dict.fromkeys(query.getlist("metric"))]
    smoothing = as_number(query.get("smooth", "")) or 0.0
    view = ChartView(
        choice(query, "x", AXES, Axis.STEP),
        min(max(smoothing, 0.0), MOST_SMOOTHING),
        "log" in query,
        choice(query, "band", BANDS, Band.RANGE),
    )
    return comparison.of(
        Asked(
            trials=as_ids(_words(query, "trials")) if "trials" in query else None,
            experiments=as_ids(_words(query, "experiments")) if "experiments" in query else None,
            filters=filters_of(user_of(request), query),
            metrics=[each for each in metrics if each],
            group=list(dict.fromkeys(filter(None, query.getlist("group"))))[:MOST_GROUPS],
            view=view,
            baseline=as_id(query.get("baseline", "")),
        )
    )


def _words(query: QueryDict, name: str) -> list[str]:
    return [word.strip() for word in query.get(name, "").split(",") if word.strip()]


def _unreadable(query: QueryDict) -> list[str]:
    kinds = {"trials": "a trial", "experiments": "an experiment"}
    words = [(word, kind) for name, kind in kinds.items() for word in _words(query, name)]
    return [f"{word!r} is not the ID of {kind}." for word, kind in words if as_whole(word) is None][:3]


def _joined(query: QueryDict) -> str:
    """The address of what was ticked; trials that the form names already stand first."""
    if query.get("runs") == "all":
        return f"/compare?experiments={','.join(map(str, as_ids(query.getlist('experiment'))))}"
    named = as_ids([*query.get("trials", "").split(","), *query.getlist("trial")])
    best = filter(None, map(comparison.best_of, as_ids(query.getlist("experiment"))))
    return _address(query, dict.fromkeys([*named, *best]))


def _address(query: QueryDict, ids: Iterable[int]) -> str:
    kept = {name: query.getlist(name) for name in VIEW if name in query}
    return f"/compare?{urlencode({'trials': ','.join(map(str, ids)), **kept}, doseq=True, safe=',/')}"
