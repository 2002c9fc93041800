"""The Visualisation page of an experiment: learning curves, and a metric over hyperparameters in four ways.

Each way is an address of its own; `?part=figures` is what it draws, as Plotly JSON with a table for each chart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from django.db.models import F, Func, JSONField
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse

from experiments.models import Experiment
from metrics import hparam_charts, importance, learning_curves, parallel_chart, series
from metrics.comparisons import Metric, metrics_of
from metrics.hparam_axes import Axis, Bounds, Kind, axes
from metrics.sweep import Sweep
from metrics.traces import Figure
from webui.pages.experiments import experiment as experiment_page
from webui.pages.experiments.access import find
from webui.pages.frame import page, show
from webui.pages.search import query, rows
from webui.pages.search.query import FIRST_AXES, FIRST_OF_A_MAP, MARGINS, View

#: metrics to choose from are those of so many trials, the best among them
TRIALS_ASKED_FOR_NAMES = 50
STEPS_OFFERED = 40
#: of the state of a search, which may be a megabyte
_UNITS_OF_RUNGS = Func(
    F("search"),
    template="jsonb_path_query_array(%(expressions)s, '$.brackets[*].rungs[*].units')",
    output_field=JSONField(),
)


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
        return JsonResponse({"figures": figures(experiment, view, way)})
    context = experiment_page.head(request, experiment, "visualisation")
    if "part" not in request.GET:
        context |= _form(experiment, view, way)
    return show(request, "sweep_charts", context, room="Experiments", fragment="experiment")


def figures(experiment: Experiment, view: View, way: str) -> list[Figure]:
    """None where there is nothing to draw yet."""
    of = rows.read(experiment, view)
    if not len(of):
        return []
    varying = axes(experiment.config.get("hyperparameters") or {}, of.hparams)
    if way == "curves":
        names = [axis.name for axis in varying[:FIRST_AXES]]
        best = of.taken(np.arange(min(view.top, len(of))))
        curves = learning_curves.figure(best, view.metric, names, is_log=_is_log(view, of))
        return [curves] if curves else []
    if not varying or len(of) < 2:
        return []
    if way == "importance":
        bars = importance.figure(of, varying)
        return [bars] if bars else []
    chosen = chosen_axes(varying, view, FIRST_OF_A_MAP if way == "heat-maps" else FIRST_AXES)
    if way == "parallel":
        return [parallel_chart.figure(of, chosen, view.bounds, is_log=_is_log(view, of))]
    if way == "heat-maps":
        return hparam_charts.heat_maps(of, chosen)
    return [hparam_charts.scatter(of, axis, is_log=_is_log(view, of)) for axis in chosen]


def chosen_axes(varying: Sequence[Axis], view: View, first: int) -> list[Axis]:
    """Those that the address names; without any, the first."""
    return [axis for axis in varying if axis.name in view.axes] or list(varying[:first])


def _is_log(view: View, of: Sweep) -> bool:
    """Values of zero and below have no logarithm; then the scale is linear."""
    return view.is_log and bool((of.values > 0).all())


def _form(experiment: Experiment, view: View, way: str) -> dict[str, Any]:
    hparams = [hparams for _, hparams, _ in rows.tried(experiment)]
    varying = axes(experiment.config.get("hyperparameters") or {}, hparams)
    chosen = chosen_axes(varying, view, FIRST_OF_A_MAP if way == "heat-maps" else FIRST_AXES)
    some = list(experiment.trials.exclude(summary_metrics={}).order_by("pk").values_list("pk", flat=True))
    asked = some[:TRIALS_ASKED_FOR_NAMES]
    if experiment.best_trial_id:
        asked.append(experiment.best_trial_id)
    searched = query.searcher_metric(experiment)[0]
    return {
        "view": view,
        "way": way,
        "ways": WAYS,
        "trials": len(hparams),
        "metrics": list(dict.fromkeys([searched, *metrics_of(asked, [searched])])),
        "steps": _steps(experiment, view.metric) if "take" in WAYS[way].fields else [],
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


def _steps(experiment: Experiment, metric: Metric) -> list[int]:
    """Steps to choose from: the last ones of the rungs, or those that the best trial has reported."""
    rungs = Experiment.objects.filter(pk=experiment.pk).values_list(_UNITS_OF_RUNGS, flat=True).first()
    if rungs:
        return sorted({int(units) for units in rungs})
    if not experiment.best_trial_id:
        return []
    found = series.read(experiment.best_trial_id, metric.group, [metric.name], points=STEPS_OFFERED)
    return [int(step) for step in found[0].steps] if found else []
