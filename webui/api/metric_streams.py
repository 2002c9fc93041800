"""Streams of an experiment's metrics in the dialect (features.md 11.9): `metrics-stream/…`, one JSON record a line.

Each repeats every `periodSeconds` (30 unless told) until the experiments have ended; curves and steps are reduced here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Literal

import numpy as np
from django.http import HttpRequest, HttpResponseBase, QueryDict

from accounts.rights import Right
from experiments.models import Experiment, Trial
from experiments.states import EXPERIMENT_END_STATES
from metrics import series
from metrics.series import Series
from metrics.values import number_or_name
from shown import trials as shown_trials
from webui.api.answers import Answer, JsonLines, Stored, Time, time_text
from webui.api.async_views import Principal, async_view, ndjson, repeated
from webui.api.authentication import own_experiments
from webui.api.errors import BadRequest, Missing
from webui.api.views import Json
from webui.query import whole, wholes
from webui.waiting.threads import reading

PERIOD_SECONDS = 30
MARGIN = 10
MOST_TRIALS = 100
MOST_POINTS = 1000
_GROUPS = {"METRIC_TYPE_TRAINING": "training", "METRIC_TYPE_VALIDATION": "validation"}
#: a number, or the name of a value that is not one: NaN, Infinity, -Infinity
Value = float | Literal["NaN", "Infinity", "-Infinity"]


class MetricName(Answer):
    group: str
    name: str


class MetricNames(Answer):
    searcher_metrics: list[str]
    training_metrics: list[str]
    validation_metrics: list[str]
    metric_names: list[MetricName]


class Batches(Answer):
    batches: list[int]


class TrialAtStep(Answer):
    trial_id: int
    hparams: Json
    metric: Value
    batches_processed: int


class TrialsSnapshot(Answer):
    trials: Stored[list[TrialAtStep]]


class SamplePoint(Answer):
    batches: int
    values: dict[str, Value]
    time: Time


class SampledTrial(Answer):
    trial_id: int
    hparams: Json
    data: Stored[list[SamplePoint]]


class TrialsSample(Answer):
    """`promotedTrials` joined the best trials since the previous line, `demotedTrials` left them."""

    trials: list[SampledTrial]
    promoted_trials: list[int]
    demoted_trials: list[int]


@dataclass(frozen=True)
class Asked:
    """One metric of one experiment's trials."""

    experiment_id: int
    group: str
    metric: str

    def read(
        self,
        trial_id: int,
        points: int = series.DEFAULT_POINTS,
        first: int | None = None,
        last: int | None = None,
    ) -> Series | None:
        """What a trial has reported of it, reduced."""
        found = series.read(
            trial_id, self.group, [self.metric], first_step=first, last_step=last, points=max(4, points)
        )
        return found[0] if found else None


def metric_names(experiment_ids: Sequence[int]) -> MetricNames:
    """Names by group, and by the two kinds that older clients know."""
    experiments = Experiment.objects.filter(pk__in=experiment_ids).only("config")
    trials = Trial.objects.filter(experiment_id__in=experiment_ids).values_list("pk", flat=True)
    names = series.names(*trials)
    return MetricNames(
        searcher_metrics=sorted({experiment.searcher_metric for experiment in experiments}),
        training_metrics=names.get("training", []),
        validation_metrics=names.get("validation", []),
        metric_names=[MetricName(group=group, name=name) for group in names for name in names[group]],
    )


def batches(asked: Asked, told: set[int]) -> Batches:
    """The steps that were not told before; they are told now."""
    curves = (asked.read(trial_id) for trial_id, _ in shown_trials.newest(asked.experiment_id))
    found = {int(step) for curve in curves if curve for step in curve.steps.tolist()} - told
    told |= found
    return Batches(batches=sorted(found))


def snapshot(asked: Asked, step: int, margin: int) -> TrialsSnapshot:
    """Of each trial the value nearest to the step, the later of two; none outside of the margin."""
    rows: list[Json] = []
    for trial_id, hparams in shown_trials.newest(asked.experiment_id):
        curve = asked.read(trial_id, first=max(0, step - margin), last=step + margin)
        if curve is None:
            continue
        nearest = int(np.lexsort((-curve.steps, np.abs(curve.steps - step)))[0])
        rows.append(
            {
                "trialId": trial_id,
                "hparams": hparams,
                "metric": number_or_name(float(curve.values[nearest])),
                "batchesProcessed": int(curve.steps[nearest]),
            }
        )
    return TrialsSnapshot(trials=rows)


@dataclass
class Sample:
    """Curves of the best trials. `told`: trial -> its last step that was told."""

    asked: Asked
    most_trials: int
    most_points: int
    first_step: int
    last_step: int | None
    told: dict[int, int] = field(default_factory=dict)

    def next(self) -> TrialsSample:
        """All of each curve at first, later what follows; who came among the best, and who left."""
        best = shown_trials.best_first(self.asked.experiment_id)[: self.most_trials]
        chosen = {trial_id for trial_id, _ in best}
        demoted = sorted(self.told.keys() - chosen)
        promoted = [trial_id for trial_id, _ in best if trial_id not in self.told]
        for trial_id in demoted:
            del self.told[trial_id]
        trials = [
            SampledTrial(trial_id=trial_id, hparams=hparams, data=self._points(trial_id))
            for trial_id, hparams in best
        ]
        return TrialsSample(trials=trials, promoted_trials=promoted, demoted_trials=demoted)

    def _points(self, trial_id: int) -> list[Json]:
        first = max(self.first_step, self.told.get(trial_id, -1) + 1)
        self.told.setdefault(trial_id, first - 1)
        curve = self.asked.read(trial_id, self.most_points, first, self.last_step)
        if curve is None:
            return []
        self.told[trial_id] = int(curve.steps[-1])
        return [
            {
                "batches": int(step),
                "values": {self.asked.metric: number_or_name(value)},
                "time": time_text(datetime.fromtimestamp(at, UTC)),
            }
            for step, value, at in zip(
                curve.steps.tolist(), curve.values.tolist(), curve.times.tolist(), strict=True
            )
        ]


@async_view("GET", Right.READ | Right.RUN, answer=JsonLines(MetricNames))
async def names(request: HttpRequest, who: Principal) -> HttpResponseBase:
    """The searcher metrics of some experiments, and all metrics that their trials have reported."""
    ids = wholes(request.GET, "ids")
    if not ids:
        raise BadRequest("ids: missing; give at least one experiment.")
    return await _repeated(request, who, ids, lambda: metric_names(ids))


@async_view("GET", Right.READ | Right.RUN, answer=JsonLines(Batches))
async def steps(request: HttpRequest, who: Principal, experiment_id: int) -> HttpResponseBase:
    """The steps at which any trial reported a metric, at most 1,000 of each kind; then new ones."""
    asked, told = _asked(request.GET, experiment_id), set[int]()
    return await _repeated(request, who, [experiment_id], lambda: batches(asked, told))


@async_view("GET", Right.READ | Right.RUN, answer=JsonLines(TrialsSnapshot))
async def trials_snapshot(request: HttpRequest, who: Principal, experiment_id: int) -> HttpResponseBase:
    """The metric of each trial that reported it near a step."""
    asked = _asked(request.GET, experiment_id)
    step = whole(request.GET, "batchesProcessed")
    if step is None:
        raise BadRequest("batchesProcessed is missing; it must be a whole number, such as 100.")
    margin = whole(request.GET, "batchesMargin")
    near = (step, MARGIN if margin is None else margin)
    return await _repeated(request, who, [experiment_id], lambda: snapshot(asked, *near))


@async_view("GET", Right.READ | Right.RUN, answer=JsonLines(TrialsSample))
async def trials_sample(request: HttpRequest, who: Principal, experiment_id: int) -> HttpResponseBase:
    """The curves of the best trials; then new points, and which trials joined or left the best."""
    sample = Sample(
        asked=_asked(request.GET, experiment_id),
        most_trials=whole(request.GET, "maxTrials") or MOST_TRIALS,
        most_points=min(whole(request.GET, "maxDatapoints") or MOST_POINTS, MOST_POINTS),
        first_step=whole(request.GET, "startBatches") or 0,
        last_step=whole(request.GET, "endBatches") or None,
    )
    return await _repeated(request, who, [experiment_id], sample.next)


def _asked(query: QueryDict, experiment_id: int) -> Asked:
    """The metric that is asked for; its group by name, or by the older metricType."""
    metric, kind = query.get("metricName", ""), query.get("metricType", "")
    group = query.get("group") or _GROUPS.get(kind)
    if not metric or not group:
        raise BadRequest(
            "metricName and group (or metricType METRIC_TYPE_TRAINING or _VALIDATION) are both needed."
        )
    if "\x00" in metric + group:
        raise BadRequest("metricName and group must not contain NUL characters.")
    return Asked(experiment_id, group, metric)


async def _repeated(
    request: HttpRequest, who: Principal, experiment_ids: Sequence[int], read: Callable[[], Answer]
) -> HttpResponseBase:
    """The answer of `read` at once and then each period. Raises Missing and BadRequest before anything is sent."""
    period = whole(request.GET, "periodSeconds") or PERIOD_SECONDS
    await reading(own_experiments, who, *experiment_ids)
    await reading(_have_ended, experiment_ids)
    is_over, wait = partial(_have_ended, experiment_ids), partial(asyncio.sleep, period)
    return ndjson(repeated(request, lambda: [read()], is_over, wait))


def _have_ended(experiment_ids: Sequence[int]) -> bool:
    states = dict(Experiment.objects.filter(pk__in=experiment_ids).values_list("pk", "state"))
    for experiment_id in experiment_ids:
        if experiment_id not in states:
            raise Missing(f"experiment {experiment_id} not found")
    return all(state in EXPERIMENT_END_STATES for state in states.values())
