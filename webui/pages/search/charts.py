"""The Visualization page of an experiment: learning curves, and a metric over hyperparameters in four ways.

Each way is an address of its own; `?part=figures` is what it draws, as Plotly JSON with a table for each chart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from accounts.rights import Right, declares
from experiments.models import Experiment
from metrics import learning_curves, parallel_chart
from metrics.comparisons import Metric, metrics_of
from metrics.hparam_axes import Axis, Bounds, Kind, axes
from shown.search import charts, tried
from shown.search.tried import SearchView
from webui.pages.experiments import experiment as experiment_page
from webui.pages.experiments.access import find
from webui.pages.frame import page, show
from webui.pages.search import query
from webui.pages.search.query import MARGINS


class Way(NamedTuple):
    """`fields`: what of the form it needs."""

    word: str
    about: str
    fields: frozenset[str]


_OF_VALUES = frozenset({"take", "hp"})
WAYS = {
    "curves": Way(
        "Learning curves",
        "The best trials over steps. Click a curve to open its trial.",
        frozenset({"top", "scale"}),
    ),
    "parallel": Way(
        "Parallel coordinates",
        "Each line is a trial: the best ninth is blue, the worst amber. Drag along an axis to filter by it, click the "
        "axis to clear that filter; the fields below do the same.",
        _OF_VALUES | {"scale", "bounds"},
    ),
    "scatter": Way(
        "Scatter plots",
        "Each point is a trial, and the star is the best one. Click a point to open its trial.",
        _OF_VALUES | {"scale"},
    ),
    "heat-maps": Way(
        "Heat maps",
        "Each cell is the median of the trials in it: blue is good, amber bad, on one scale for all maps.",
        _OF_VALUES,
    ),
    "importance": Way(
        "Importance",
        "Kruskal-Wallis epsilon squared: the share of the rank differences between trials that the value of one "
        "hyperparameter explains, corrected for chance; 0 is none, 1 is all. Numbers are split into five equally "
        "filled bins, so an optimum in the middle shows. Spearman's rho, in the table, shows whether the metric grows "
        "with the value. Effects of two hyperparameters together show only in heat maps.",
        frozenset({"take"}),
    ),
}


@page
def detail(request: HttpRequest, experiment_id: int, way: str = "curves") -> HttpResponse:
    """The page with its form; its charts are brought by `part=figures`."""
    experiment = find(experiment_id)
    if way not in WAYS:
        raise Http404(f"There is no view {way}; there are {', '.join(WAYS)}.")
    view = query.read(request.GET, experiment)
    if request.GET.get("part") == "figures":
        return JsonResponse({"figures": charts.figures(experiment, view, way)})
    context = experiment_page.head(request, experiment, "visualization")
    if "part" not in request.GET:
        context |= _form(experiment, view, way)
    return show(request, "sweep_charts", context, room="Experiments", fragment="experiment")


@declares({"GET": Right.OPEN})
@require_safe
def at_former_address(request: HttpRequest, **_: object) -> HttpResponse:
    """Links that were kept from before go to where the page is now, with all that they ask for."""
    return redirect(request.get_full_path().replace("/visualisation", "/visualization", 1))


def _form(experiment: Experiment, view: SearchView, way: str) -> dict[str, Any]:
    hparams = [hparams for _, hparams, _ in tried.tried(experiment)]
    varying = axes(experiment.config.get("hyperparameters") or {}, hparams)
    chosen = charts.chosen_axes(varying, view, way)
    searched = Metric("validation", experiment.searcher_metric)
    return {
        "view": view,
        "way": way,
        "ways": WAYS,
        "trials": len(hparams),
        "metrics": list(dict.fromkeys([searched, *metrics_of(tried.reporting(experiment), [searched])])),
        "steps": charts.steps(experiment, view.metric) if "take" in WAYS[way].fields else [],
        "margins": MARGINS,
        "tops": learning_curves.TOPS,
        "axes": [(axis, axis in chosen) for axis in varying],
        "brushable": [field(axis, view.bounds) for axis in chosen] if "bounds" in WAYS[way].fields else [],
        "of_metric": view.bounds.get(parallel_chart.METRIC),
    }


def field(axis: Axis, chosen: Mapping[str, Bounds]) -> dict[str, Any]:
    """What a form needs to keep only some values of a hyperparameter, as it stands now."""
    bounds = chosen.get(axis.name)
    among = bounds.among if bounds else frozenset()
    words = [(word, word in among) for word in axis.categories]
    return {"name": axis.name, "is_category": axis.kind == Kind.CATEGORY, "words": words, "bounds": bounds}
