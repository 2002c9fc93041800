"""A checkpoint as the dialect shows it, and lists of them in the order that was asked for."""

from __future__ import annotations

import json
import math
import uuid
import zlib
from typing import Annotated

from django.db.models import Case, CharField, Q, QuerySet, Value, When
from pydantic import Field
from rest_framework import serializers

from experiments import metric_reports
from experiments.config import masked
from experiments.models import Checkpoint, Experiment
from metrics import reported
from metrics.values import number
from shown import checkpoints
from webui.api import encoding
from webui.api.answers import Answer, Maybe, Number64, Pagination, Time
from webui.api.errors import existing
from webui.api.protojson import EnumField
from webui.api.trial_encoding import (
    CHECKPOINT_STATES,
    AverageMetrics,
    CheckpointStateName,
    checkpoint_state,
)
from webui.api.views import Json

CHECKPOINT_SORT = {
    "SORT_BY_UUID": "uuid",
    "SORT_BY_TRIAL_ID": "trial_id",
    "SORT_BY_BATCH_NUMBER": "steps_completed",
    "SORT_BY_END_TIME": "reported_at",
    "SORT_BY_STATE": "state_in_words",
}
_STATE_IN_WORDS = Case(
    *(When(state__in=ours, then=Value(word)) for word, ours in CHECKPOINT_STATES.items()),
    output_field=CharField(),
)
BY_SEARCHER_METRIC = "SORT_BY_SEARCHER_METRIC"


class CheckpointTraining(Answer):
    """The trial that saved it, and the metrics reported at its step."""

    trial_id: int
    experiment_id: int
    experiment_config: Json
    hparams: Json
    training_metrics: AverageMetrics | None = None
    validation_metrics: AverageMetrics | None = None
    searcher_metric: Maybe[float] = None


class CheckpointRecord(Answer):
    """A checkpoint."""

    uuid: str
    task_id: str
    allocation_id: str
    report_time: Time
    state: CheckpointStateName
    resources: Annotated[dict[str, Number64], Field(description="path of a file -> its bytes")]
    size_bytes: Number64
    metadata: Json
    storage: Annotated[str, Field(description="storage type, such as server or s3")]
    storage_id: Annotated[int, Field(description="the same for all checkpoints in one storage")]
    host: Maybe[Annotated[str, Field(description="where it was saved")]] = None
    deletion_waits_for: Maybe[
        Annotated[str, Field(description="why its files have not been removed yet")]
    ] = None
    training: CheckpointTraining


class CheckpointsAnswer(Answer):
    checkpoints: list[CheckpointRecord]
    pagination: Pagination


class CheckpointsQuery(encoding.PageQuery):
    sortByAttr = encoding.sort_field("checkpoints", [*CHECKPOINT_SORT, BY_SEARCHER_METRIC])
    sortByMetric = serializers.CharField(required=False)
    states = encoding.list_of(EnumField("state of checkpoints", CHECKPOINT_STATES))


def find(checkpoint_uuid: uuid.UUID, *among: Q) -> Checkpoint:
    rows = Checkpoint.objects.select_related("trial__experiment")
    return existing(rows.filter(*among), "checkpoint", pk=checkpoint_uuid)


def page_of(rows: QuerySet[Checkpoint], experiment: Experiment, query: Json) -> CheckpointsAnswer:
    """`{checkpoints, pagination}` of rows of one experiment, filtered and in order.

    By a metric, the better one stands first unless an order was asked for, and those without the metric last.
    """
    if states := query.get("states"):
        rows = rows.filter(state__in=[ours for state in states for ours in CHECKPOINT_STATES[state]])
    rows = rows.select_related("trial__experiment")
    metric = query.get("sortByMetric")
    if query.get("sortByAttr") == BY_SEARCHER_METRIC:
        metric = experiment.searcher_metric
    if not metric:
        query = {**query, "sortBy": query.get("sortByAttr")}
        rows = rows.alias(state_in_words=_STATE_IN_WORDS)
        ordered = rows.order_by(*encoding.ordering(query, CHECKPOINT_SORT, "reported_at"))
        return _page(ordered, query)
    downwards = {"ORDER_BY_ASC": False, "ORDER_BY_DESC": True}.get(
        query["orderBy"], not experiment.smaller_is_better
    )
    return _page(_by_metric(rows, metric, downwards), query)


def _page(rows: QuerySet[Checkpoint] | list[Checkpoint], query: Json) -> CheckpointsAnswer:
    chosen, pagination = encoding.cut(rows, query)
    hosts = checkpoints.hosts_of(chosen)
    encoded = [_encoded(row, hosts.get(row.run_key)) for row in chosen]
    return CheckpointsAnswer(checkpoints=encoded, pagination=pagination)


def _by_metric(rows: QuerySet[Checkpoint], metric: str, downwards: bool) -> list[Checkpoint]:
    found = list(rows.order_by("reported_at"))
    values = metric_reports.validations_of({row.trial_id for row in found}, metric)
    sign = -1 if downwards else 1

    def place(row: Checkpoint) -> tuple[bool, float]:
        value = values.get((row.trial_id, row.steps_completed))
        return (value is None or math.isnan(value), sign * (value or 0.0))

    return sorted(found, key=place)


def storage_id(storage: Json) -> int:
    """The number of a storage, which is made of its settings: the server keeps no list of storages."""
    place = {name: value for name, value in storage.items() if not name.startswith("save_")}
    return zlib.crc32(json.dumps(place or {"type": "server"}, sort_keys=True).encode()) & 0x7FFFFFFF


def encode_checkpoint(checkpoint: Checkpoint) -> CheckpointRecord:
    """With `sizeBytes`, `host` and `deletionWaitsFor` of ours beside the dialect's fields."""
    return _encoded(checkpoint, checkpoints.hosts_of([checkpoint]).get(checkpoint.run_key))


def _encoded(checkpoint: Checkpoint, host: str | None) -> CheckpointRecord:
    return CheckpointRecord(
        uuid=str(checkpoint.pk),
        task_id=checkpoint.trial.task_id,
        allocation_id=checkpoint.allocation_id,
        report_time=checkpoint.reported_at,
        state=checkpoint_state(checkpoint),
        resources={path: str(size) for path, size in checkpoint.resources.items()},
        size_bytes=str(checkpoint.size_bytes),
        metadata={"steps_completed": checkpoint.steps_completed, **checkpoint.metadata},
        storage=str(checkpoint.storage.get("type", "server")),
        storage_id=storage_id(checkpoint.storage),
        host=host,
        deletion_waits_for=checkpoint.deletion_waits_for or None,
        training=_training(checkpoint),
    )


def _training(checkpoint: Checkpoint) -> CheckpointTraining:
    trial = checkpoint.trial
    experiment, step = trial.experiment, checkpoint.steps_completed
    training = CheckpointTraining(
        trial_id=trial.pk,
        experiment_id=experiment.pk,
        experiment_config=_config(experiment),
        hparams=trial.hparams,
    )
    for report in reported.read([trial.pk], ["training", "validation"], first_step=step, last_step=step):
        if report.group == "training":
            training.training_metrics = AverageMetrics(avg_metrics=report.values)
        else:
            training.validation_metrics = AverageMetrics(avg_metrics=report.values)
            metric = number(report.values.get(experiment.searcher_metric))
            if metric is not None and math.isfinite(metric):
                training.searcher_metric = metric
    return training


def _config(experiment: Experiment) -> Json:
    """As the published client reads it: it knows no `server` storage, and asks the server for what lies in a
    `directory` that its own machine does not have."""
    config: Json = masked(experiment.config)
    kept: Json = config.get("checkpoint_storage") or {}
    if kept.get("type", "server") != "server":
        return config
    elsewhere = {**kept, "type": "directory", "container_path": "/nonexistent/kept-by-the-server"}
    return {**config, "checkpoint_storage": elsewhere}
