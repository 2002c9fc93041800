"""The trials of a search as charts and filters over hyperparameters need them: with one value of one metric each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from django.db.models import F, TextField
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Cast

from experiments.models import Experiment
from metrics.comparisons import Metric
from metrics.hparam_axes import Bounds, Flat, flat
from metrics.parallel_chart import METRIC
from metrics.sweep import Sweep, at_step, sweep
from metrics.values import SUMMARY_GROUPS, number

#: metrics to choose from are those of so many trials, the best among them
TRIALS_ASKED_FOR_NAMES = 50


@dataclass(frozen=True)
class SearchView:
    """`take`: a trial's best or latest value, or the one at `step`, give or take `margin`."""

    metric: Metric
    is_smaller_better: bool
    take: str
    step: int | None
    margin: int
    is_log: bool
    top: int
    axes: list[str]
    bounds: dict[str, Bounds]


def read(experiment: Experiment, view: SearchView) -> Sweep:
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


def value_of(experiment: Experiment, view: SearchView) -> Any:
    """The best or latest value of the metric, as JSON. A trial's best of the searcher's is what its table says."""
    searched = Metric("validation", experiment.searcher_metric)
    if view.metric == searched and view.is_smaller_better == experiment.smaller_is_better:
        return KeyTransform(
            "searcher_metric", "latest_validation" if view.take == "latest" else "best_validation"
        )
    what = "last" if view.take == "latest" else "min" if view.is_smaller_better else "max"
    return summarized(view.metric, what)


def summarized(metric: Metric, what: str) -> Any:
    """`last`, `min`, `max` or `mean` of what a trial has reported of a metric."""
    group = KeyTransform(SUMMARY_GROUPS.get(metric.group, metric.group), F("summary_metrics"))
    return KeyTransform(what, KeyTransform(metric.name, group))


def reporting(experiment: Experiment) -> list[int]:
    """Trials whose metrics may be chosen: the first that have reported any, and the best."""
    reported = experiment.trials.exclude(summary_metrics={}).order_by("pk").values_list("pk", flat=True)
    best = [experiment.best_trial_id] if experiment.best_trial_id else []
    return [*reported[:TRIALS_ASKED_FOR_NAMES], *best]


def within(tried: Iterable[tuple[int, Flat, float | None]], bounds: dict[str, Bounds]) -> set[int]:
    """Return the trials of (trial, hyperparameters, best searcher metric) that are within all bounds (METRIC)."""
    return {
        pk
        for pk, hparams, best in tried
        if all(
            each.hold_number(float("nan") if best is None else best)
            if name == METRIC
            else each.hold(hparams, name)
            for name, each in bounds.items()
        )
    }
