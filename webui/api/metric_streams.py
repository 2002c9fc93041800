"""Streams of an experiment's metrics in the dialect (features.md 11.9): `metrics-stream/…`, one JSON record a line.

Each repeats every `periodSeconds` (30 unless told) until the experiments have ended; curves and steps are reduced here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from django.http import HttpRequest, HttpResponseBase, QueryDict

from experiments.models import Experiment
from experiments.states import EXPERIMENT_END_STATES
from webui.api.answers import Answer, JsonLines
from webui.api.async_views import Principal, async_view, ndjson, record
from webui.api.authentication import authenticate
from webui.api.errors import BadRequest, Missing
from webui.api.experiment_metrics import (
    Asked,
    Batches,
    MetricNames,
    Sample,
    TrialsSample,
    TrialsSnapshot,
    batches,
    metric_names,
    snapshot,
)
from webui.query import whole, wholes
from webui.waiting.threads import reading, release_thread

PERIOD_SECONDS = 30
MARGIN = 10
MOST_TRIALS = 100
MOST_POINTS = 1000
_GROUPS = {"METRIC_TYPE_TRAINING": "training", "METRIC_TYPE_VALIDATION": "validation"}


@async_view("GET", answer=JsonLines(MetricNames))
async def names(request: HttpRequest, who: Principal) -> HttpResponseBase:
    """The searcher metrics of some experiments, and all metrics that their trials have reported."""
    ids = wholes(request.GET, "ids")
    if not ids:
        raise BadRequest("ids: missing; give at least one experiment.")
    return await _repeated(request, ids, lambda: metric_names(ids))


@async_view("GET", answer=JsonLines(Batches))
async def steps(request: HttpRequest, who: Principal, experiment_id: int) -> HttpResponseBase:
    """The steps at which any trial reported a metric, at most 1,000 of each kind; then new ones."""
    asked, told = _asked(request.GET, experiment_id), set[int]()
    return await _repeated(request, [experiment_id], lambda: batches(asked, told))


@async_view("GET", answer=JsonLines(TrialsSnapshot))
async def trials_snapshot(request: HttpRequest, who: Principal, experiment_id: int) -> HttpResponseBase:
    """The metric of each trial that reported it near a step."""
    asked = _asked(request.GET, experiment_id)
    step = whole(request.GET, "batchesProcessed")
    if step is None:
        raise BadRequest("batchesProcessed is missing; it must be a whole number, such as 100.")
    margin = whole(request.GET, "batchesMargin")
    near = (step, MARGIN if margin is None else margin)
    return await _repeated(request, [experiment_id], lambda: snapshot(asked, *near))


@async_view("GET", answer=JsonLines(TrialsSample))
async def trials_sample(request: HttpRequest, who: Principal, experiment_id: int) -> HttpResponseBase:
    """The curves of the best trials; then new points, and which trials joined or left the best."""
    sample = Sample(
        asked=_asked(request.GET, experiment_id),
        most_trials=whole(request.GET, "maxTrials") or MOST_TRIALS,
        most_points=min(whole(request.GET, "maxDatapoints") or MOST_POINTS, MOST_POINTS),
        first_step=whole(request.GET, "startBatches") or 0,
        last_step=whole(request.GET, "endBatches") or None,
    )
    return await _repeated(request, [experiment_id], sample.next)


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
    request: HttpRequest, experiment_ids: Sequence[int], read: Callable[[], Answer]
) -> HttpResponseBase:
    """The answer of `read` at once and then each period. Raises Missing and BadRequest before anything is sent."""
    period = whole(request.GET, "periodSeconds") or PERIOD_SECONDS
    await reading(_have_ended, experiment_ids)

    async def answers() -> AsyncIterator[bytes]:
        while True:
            ended = await reading(_have_ended, experiment_ids)  # before the read, which then misses nothing
            yield record(await reading(read))
            if ended:
                return
            await asyncio.sleep(period)
            if await authenticate(request) is None:  # the login has ended
                return
            await release_thread()

    return ndjson(answers())


def _have_ended(experiment_ids: Sequence[int]) -> bool:
    states = dict(Experiment.objects.filter(pk__in=experiment_ids).values_list("pk", "state"))
    for experiment_id in experiment_ids:
        if experiment_id not in states:
            raise Missing(f"experiment {experiment_id} not found")
    return all(state in EXPERIMENT_END_STATES for state in states.values())
