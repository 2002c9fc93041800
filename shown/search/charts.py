"""The charts of a search: learning curves, and a metric over hyperparameters in four ways."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from django.db.models import F, Func, JSONField

from experiments.models import Experiment
from metrics import hparam_charts, learning_curves, parallel_chart, series
from metrics.comparisons import Metric
from metrics.hparam_axes import Axis, axes
from metrics.sweep import Sweep
from metrics.traces import Figure
from shown.search import tried
from shown.search.tried import SearchView

#: hyperparameters drawn at once (features.md 4.5), and those drawn unless the address names some
MOST_AXES, FIRST_AXES = 10, 6
#: so many of them have 6 or 45 pairs
FIRST_OF_A_MAP = 4
STEPS_OFFERED = 40
#: of the state of a search, which may be a megabyte
_UNITS_OF_RUNGS = Func(
    F("search"),
    template="jsonb_path_query_array(%(expressions)s, '$.brackets[*].rungs[*].units')",
    output_field=JSONField(),
)


def figures(experiment: Experiment, view: SearchView, way: str) -> list[Figure]:
    """None where there is nothing to draw yet."""
    of = tried.read(experiment, view)
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
        bars = hparam_charts.importance_bars(of, varying)
        return [bars] if bars else []
    chosen = chosen_axes(varying, view, way)
    if way == "parallel":
        return [parallel_chart.figure(of, chosen, view.bounds, is_log=_is_log(view, of))]
    if way == "heat-maps":
        return hparam_charts.heat_maps(of, chosen)
    return [hparam_charts.scatter(of, axis, is_log=_is_log(view, of)) for axis in chosen]


def chosen_axes(varying: Sequence[Axis], view: SearchView, way: str) -> list[Axis]:
    """Those that the view names; without any, the first."""
    first = FIRST_OF_A_MAP if way == "heat-maps" else FIRST_AXES
    return [axis for axis in varying if axis.name in view.axes] or list(varying[:first])


def _is_log(view: SearchView, of: Sweep) -> bool:
    """Values of zero and below have no logarithm; then the scale is linear."""
    return view.is_log and bool((of.values > 0).all())


def steps(experiment: Experiment, metric: Metric) -> list[int]:
    """Steps to choose from: the last ones of the rungs, or those that the best trial has reported."""
    rungs = Experiment.objects.filter(pk=experiment.pk).values_list(_UNITS_OF_RUNGS, flat=True).first()
    if rungs:
        return sorted({int(units) for units in rungs})
    if not experiment.best_trial_id:
        return []
    found = series.read(experiment.best_trial_id, metric.group, [metric.name], points=STEPS_OFFERED)
    return [int(step) for step in found[0].steps] if found else []
