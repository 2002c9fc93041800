"""The trials of a search as charts and filters over hyperparameters need them: with one value of one metric each."""

from __future__ import annotations

from typing import Any

from django.db.models import F
from django.db.models.fields.json import KeyTransform

from experiments.models import Experiment
from metrics.comparisons import Metric
from metrics.hparam_axes import flat
from metrics.sweep import Sweep, at_step, sweep
from metrics.values import number
from webui.pages.sweep_query import View, searcher_metric

#: groups under the names that a trial's summary has for them
_SUMMARY = {"training": "avg_metrics", "validation": "validation_metrics"}


def read(experiment: Experiment, view: View) -> Sweep:
    """All trials that have such a value, best first."""
    rows = experiment.trials.order_by("pk").values_list("pk", "hparams", value_of(experiment, view))
    tried = [(pk, flat(hparams), number(value)) for pk, hparams, value in rows]
    if view.take == "step" and view.step is not None:
        found = at_step([pk for pk, _, _ in tried], view.metric, view.step, view.margin)
        tried = [(pk, hparams, found.get(pk)) for pk, hparams, _ in tried]
    values = [(pk, value, hparams) for pk, hparams, value in tried]
    return sweep(view.metric.name, view.is_smaller_better, values, len(values))


def value_of(experiment: Experiment, view: View) -> Any:
    """The best or latest value of the metric, as JSON. A trial's best of the searcher's is what its table says."""
    searched, is_smaller = searcher_metric(experiment)
    if view.metric == searched and view.is_smaller_better == is_smaller:
        return KeyTransform(
            "searcher_metric", "latest_validation" if view.take == "latest" else "best_validation"
        )
    what = "last" if view.take == "latest" else "min" if view.is_smaller_better else "max"
    return summarised(view.metric, what)


def summarised(metric: Metric, what: str) -> Any:
    """`last`, `min`, `max` or `mean` of what a trial has reported of a metric."""
    group = KeyTransform(_SUMMARY.get(metric.group, metric.group), F("summary_metrics"))
    return KeyTransform(what, KeyTransform(metric.name, group))
