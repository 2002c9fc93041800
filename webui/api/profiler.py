"""The dialect's profiler of a trial (features.md 11.5): what there is, its values, and batches of older clients.

Names and units are those of Determined until 0.29, which these addresses come from: net throughput in Gbit/s, free
memory in GB. `trials/<id>/samples` and `trials/<id>/timings` give more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from django.db import transaction
from django.http import HttpRequest, HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from events.wakeups import wakeups
from experiments.models import Trial
from experiments.states import TRIAL_END_STATES
from metrics import profiler_batches
from metrics.profiler_batches import MISC, SYSTEM, TIMING, Batch, Labels
from webui.api.answers import Answer, JsonLines, Stored, Time, one_of, time_text
from webui.api.async_views import Principal, async_view, ndjson, repeated
from webui.api.tasks import task_of_trial
from webui.api.trials import find_own, note_report
from webui.api.views import ApiView
from webui.query import flag
from webui.waiting.threads import reading

MOST_POINTS = 10_000
#: a follower looks again at the latest after this time
FOLLOW_SECONDS = 10.0


class BatchLabels(serializers.Serializer[Any]):
    trialId = serializers.IntegerField()
    name = serializers.CharField(max_length=128)
    agentId = serializers.CharField(max_length=128, required=False, allow_blank=True, default="")
    gpuUuid = serializers.CharField(max_length=96, required=False, allow_blank=True, default="")
    metricType = serializers.ChoiceField(choices=[SYSTEM, TIMING, MISC])


class ProfilerBatch(serializers.Serializer[Any]):
    labels = BatchLabels()
    values = serializers.ListField(child=serializers.FloatField())
    batches = serializers.ListField(child=serializers.IntegerField(min_value=0))
    timestamps = serializers.ListField(child=serializers.DateTimeField())

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        counts = {name: len(attrs[name]) for name in ("values", "batches", "timestamps")}
        if len(set(counts.values())) > 1:
            found = ", ".join(f"{count} {name}" for name, count in counts.items())
            raise serializers.ValidationError(f"{found}: their numbers must be equal.")
        return attrs


class ProfilerBatches(serializers.Serializer[Any]):
    batches = ProfilerBatch(many=True)


class ProfilerMetrics(ApiView):
    """An older client's run reports its profiler's measurements; they become samples and timings of its trial."""

    rights = {"POST": Right.EDIT | Right.RUN}
    bodies = {"POST": ProfilerBatches}

    def post(self, request: Request) -> None:
        batches = self.body(request)["batches"]
        ids = {said["labels"]["trialId"] for said in batches}
        trials: dict[int, Trial] = {pk: find_own(request, pk) for pk in ids}
        with transaction.atomic():
            for said in batches:
                labels = said["labels"]
                batch = Batch(
                    Labels(labels["name"], labels["agentId"], labels["gpuUuid"], labels["metricType"]),
                    said["values"],
                    said["batches"],
                    [at.timestamp() for at in said["timestamps"]],
                )
                profiler_batches.store(trials[labels["trialId"]].task_id, batch)
            for trial in trials.values():
                note_report(request, trial, "measurements_reported")


class SeriesLabels(Answer):
    trial_id: int
    name: str
    agent_id: str
    gpu_uuid: str
    metric_type: Annotated[str, one_of(SYSTEM, TIMING, MISC)]


class AvailableSeries(Answer):
    labels: list[SeriesLabels]


class SeriesBatch(Answer):
    """`values`, `batches` (steps) and `timestamps` have the same length."""

    labels: SeriesLabels
    values: Stored[list[float]]
    batches: Stored[list[int]]
    timestamps: Stored[list[Time]]


class SeriesValues(Answer):
    batch: SeriesBatch


@async_view("GET", Right.READ | Right.RUN, answer=JsonLines(AvailableSeries))
async def available_series(request: HttpRequest, who: Principal, trial_id: int) -> HttpResponseBase:
    """Labels of all series of a trial; with `follow`, the full list again when it grows, until the trial ends."""
    task_id = await reading(task_of_trial, who, trial_id)
    told: list[Labels] = []

    def look() -> list[AvailableSeries]:
        found = profiler_batches.series_of(task_id)
        if told and found == told:
            return []
        told[:] = found
        return [AvailableSeries(labels=[_encoded(trial_id, labels) for labels in found])]

    return _stream(request, trial_id, task_id, look)


@async_view("GET", Right.READ | Right.RUN, answer=JsonLines(SeriesValues))
async def metrics(request: HttpRequest, who: Principal, trial_id: int) -> HttpResponseBase:
    """Values of the series with these `labels.…` (omitted labels match any); with `follow`, until the trial ends."""
    task_id = await reading(task_of_trial, who, trial_id)
    asked = request.GET
    wanted = Labels(
        *(asked.get(f"labels.{word}", "") for word in ("name", "agentId", "gpuUuid", "metricType"))
    )
    after: dict[Labels, float] = {}

    def look() -> list[SeriesValues]:
        found = profiler_batches.read(task_id, wanted, after, MOST_POINTS)
        after.update((batch.labels, batch.times[-1]) for batch in found)
        return [SeriesValues(batch=_batch(trial_id, batch)) for batch in found]

    return _stream(request, trial_id, task_id, look)


def _stream(
    request: HttpRequest, trial_id: int, task_id: str, look: Callable[[], Sequence[Answer]]
) -> HttpResponseBase:
    follow = flag(request.GET, "follow")

    async def answers() -> AsyncIterator[bytes]:
        with wakeups().watch(f"samples:{task_id}", f"timings:{task_id}", f"task:{task_id}") as watch:
            wait = partial(watch.wait, FOLLOW_SECONDS)
            async for line in repeated(request, look, lambda: not follow or _has_ended(trial_id), wait):
                yield line

    return ndjson(answers())


def _has_ended(trial_id: int) -> bool:
    return not Trial.objects.filter(pk=trial_id).exclude(state__in=TRIAL_END_STATES).exists()


def _batch(trial_id: int, batch: Batch) -> SeriesBatch:
    return SeriesBatch(
        labels=_encoded(trial_id, batch.labels),
        values=batch.values,
        batches=batch.steps,
        timestamps=[time_text(datetime.fromtimestamp(at, UTC)) for at in batch.times],
    )


def _encoded(trial_id: int, labels: Labels) -> SeriesLabels:
    return SeriesLabels.of(
        labels, trial_id=trial_id, agent_id=labels.host, gpu_uuid=labels.gpu, metric_type=labels.kind
    )
