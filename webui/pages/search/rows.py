"""The trials of a search as charts and filters over hyperparameters need them: with one value of one metric each."""

from __future__ import annotations

import json
from itertools import repeat
from typing import Any

from django.db.models import F, TextField
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Cast

from experiments.models import Experiment
from metrics.comparisons import Metric
from metrics.hparam_axes import Flat, flat
from metrics.sweep import Sweep, at_step, sweep
from metrics.values import number
from webui.pages.search.query import View, searcher_metric

#: groups under the names that a trial's summary has for them
SUMMARY = {"training": "avg_metrics", "validation": "validation_metrics"}


def read(experiment: Experiment, view: View) -> Sweep:
    """All trials that have such a value, best first."""
    if view.take == "step" and view.step is not None:
        rows = tried(experiment)
        found = at_step([pk for pk, _, _ in rows], view.metric, view.step, view.margin)
        values = [(pk, found.get(pk), hparams) for pk, hparams, _ in rows]
    else:
        rows = tried(experiment, value_of(experiment, view))
        values = [(pk, number(value), hparams) for pk, hparams, value in rows]
    return sweep(view.metric.name, view.is_smaller_better, values, len(values))


def tried(experiment: Experiment, value: Any = None) -> list[tuple[int, Flat, Any]]:
    """(trial, hyperparameters, `value`) of all trials in the order of their making; `value`: an expression for JSON.

    The documents of thousands of trials come as text and are read as one, which costs half of reading each by itself.
    """
    texts = [Cast(each, TextField()) for each in (F("hparams"), *([value] if value is not None else []))]
    rows = list(experiment.trials.order_by("pk").values_list("pk", *texts))
    columns = [
        json.loads(f"[{','.join(row[place] or 'null' for row in rows)}]")
        for place in range(1, len(texts) + 1)
    ]
    values = columns[1] if value is not None else repeat(None)
    return [
        (row[0], flat(hparams), each) for row, hparams, each in zip(rows, columns[0], values, strict=False)
    ]


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
    group = KeyTransform(SUMMARY.get(metric.group, metric.group), F("summary_metrics"))
    return KeyTransform(what, KeyTransform(metric.name, group))
