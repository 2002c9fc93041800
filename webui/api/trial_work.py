"""What a trial has reported, as workloads (one per step and group) and as curves."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from experiments.models import Checkpoint
from experiments.states import GONE
from metrics import reported, series
from metrics.reported import Reported
from metrics.values import number
from shown import trials as shown_trials
from webui.api import encoding
from webui.api.answers import Answer, Maybe, Pagination, Stored, Time, one_of, time_text
from webui.api.protojson import EnumField
from webui.api.trial_encoding import (
    CheckpointWorkload,
    TrialRecord,
    Validation,
    checkpoint_workload,
    encode_trial,
)
from webui.api.trials import find
from webui.api.views import ApiView, Json

_FILTERS = [
    "FILTER_OPTION_UNSPECIFIED",
    "FILTER_OPTION_CHECKPOINT",
    "FILTER_OPTION_VALIDATION",
    "FILTER_OPTION_CHECKPOINT_OR_VALIDATION",
]
_TYPES = {
    "METRIC_TYPE_UNSPECIFIED": None,
    "METRIC_TYPE_TRAINING": "training",
    "METRIC_TYPE_VALIDATION": "validation",
    "METRIC_TYPE_PROFILING": None,
}
MAX_POINTS = 1000


class WorkloadsQuery(encoding.PageQuery):
    filter = EnumField("workloads", _FILTERS, required=False, default=_FILTERS[0])
    metricType = EnumField("metrics", _TYPES, required=False, default="METRIC_TYPE_UNSPECIFIED")
    group = serializers.CharField(required=False)
    sortKey = serializers.CharField(required=False, default="batches")
    includeBatchMetrics = serializers.BooleanField(required=False)
    removeDeletedCheckpoints = serializers.BooleanField(required=False, default=False)


class Report(Validation):
    group: str


class Workload(Answer):
    """One of these; metrics of custom groups are under training."""

    training: Maybe[Report] = None
    validation: Maybe[Report] = None
    checkpoint: Maybe[CheckpointWorkload] = None


class WorkloadsAnswer(Answer):
    workloads: Stored[list[Workload]]
    pagination: Pagination


class TrialWorkloads(ApiView):
    """Reports and checkpoints of a trial, in order of step."""

    rights = {"GET": Right.READ | Right.RUN}
    queries = {"GET": WorkloadsQuery}

    def get(self, request: Request, trial_id: int) -> WorkloadsAnswer:
        query = self.query(request)
        find(request, trial_id)
        rows = _reports(trial_id, query) + _checkpoints(trial_id, query)
        key = query["sortKey"]
        rows.sort(key=lambda row: row[:2] if key == "batches" else (_sort_value(row[2], key), *row[:2]))
        if query["orderBy"] == "ORDER_BY_DESC":
            rows.reverse()
        if query["limit"] == 0:
            query["limit"] = -1  # here 0 means no limit
        return encoding.page(WorkloadsAnswer, [row[2] for row in rows], query, lambda row: row)


def _sort_value(row: Json, key: str) -> float:
    """The metric of a row; rows without it, and those with NaN, come last."""
    part = row.get("training") or row.get("validation")
    value = number(part["metrics"]["avgMetrics"].get(key)) if part else None
    return float("inf") if value is None or value != value else value


def _reports(trial_id: int, query: Json) -> list[tuple[int, int, Json]]:
    option = query["filter"]
    group = query.get("group") or _TYPES[query["metricType"]]
    if option == "FILTER_OPTION_CHECKPOINT":
        return []
    groups = [group] if group else None
    if option != "FILTER_OPTION_UNSPECIFIED":
        groups = ["validation"] if group in {None, "", "validation"} else []
    reports = sorted(reported.read([trial_id], groups), key=lambda report: report.steps_completed)
    return [(report.steps_completed, 0, _workload(report)) for report in reports]


def _workload(report: Reported) -> Json:
    part = {
        "metrics": {"avgMetrics": report.values, "batchMetrics": []},
        "numInputs": 0,
        "totalBatches": report.steps_completed,
        "endTime": time_text(report.reported_at),
        "group": report.group,
    }
    # the dialect knows two kinds; groups of the user's own count as training
    return {"validation": part} if report.group == "validation" else {"training": part}


def _checkpoints(trial_id: int, query: Json) -> list[tuple[int, int, Json]]:
    if query["filter"] == "FILTER_OPTION_VALIDATION" or query.get("group"):
        return []
    rows = Checkpoint.objects.filter(trial_id=trial_id)
    if query["removeDeletedCheckpoints"]:
        rows = rows.exclude(state__in=GONE)
    return [(row.steps_completed, 1, {"checkpoint": checkpoint_workload(row)}) for row in rows]


class SeriesQuery(serializers.Serializer[Any]):
    trialIds = serializers.ListField(child=serializers.IntegerField(), allow_empty=False)
    metricNames = encoding.list_of(serializers.CharField())
    metricIds = encoding.list_of(serializers.CharField())
    startBatches = serializers.IntegerField(required=False, min_value=0, default=0)
    endBatches = serializers.IntegerField(required=False, min_value=0, default=0)
    maxDatapoints = serializers.IntegerField(required=False, min_value=0, default=0)
    group = serializers.CharField(required=False)
    metricType = EnumField("metrics", _TYPES, required=False, default="METRIC_TYPE_UNSPECIFIED")


class Point(Answer):
    batches: int
    time: Time
    values: Annotated[Json, Field(description="name of a metric -> what was reported")]
    epoch: Maybe[float] = None


class Curve(Answer):
    group: str
    type: Annotated[str, one_of(*_TYPES)]
    data: Stored[list[Point]]


class TrialCurves(Answer):
    trial: TrialRecord
    metrics: list[Curve]


class TimeSeriesAnswer(Answer):
    trials: list[TrialCurves]


class TimeSeries(ApiView):
    """Metric curves of several trials, each with at most maxDatapoints points, including the extremes."""

    rights = {"GET": Right.READ}
    queries = {"GET": SeriesQuery}

    def get(self, request: Request) -> TimeSeriesAnswer:
        query = self.query(request)
        trials = shown_trials.with_numbers().filter(pk__in=query["trialIds"]).order_by("id")
        answer = [
            TrialCurves(trial=encode_trial(trial, full=False), metrics=_curves(trial.pk, query))
            for trial in trials
        ]
        return TimeSeriesAnswer(trials=answer)


def _curves(trial_id: int, query: Json) -> list[Curve]:
    group = query.get("group") or _TYPES[query["metricType"]]
    groups = [name for name in series.groups(trial_id) if group in {None, "", name}]
    kinds = {name: kind for kind, name in _TYPES.items()}
    return [
        Curve(
            group=name,
            type=kinds.get(name, "METRIC_TYPE_UNSPECIFIED"),
            data=_points(trial_id, name, query),
        )
        for name in groups
    ]


def _points(trial_id: int, group: str, query: Json) -> list[Json]:
    wanted = _wanted(group, query)
    names = None if wanted is None else [*wanted, "epoch"]
    most = min(query["maxDatapoints"] or MAX_POINTS, MAX_POINTS)
    first, last = query["startBatches"], query["endBatches"] or None
    table = reported.telling(trial_id, group, names, first_step=first, last_step=last, most=most)
    if table is None:
        return []
    rows = zip(table.steps.tolist(), encoding.times(table.times), table.as_reported(), strict=True)
    points = (_point(steps, at, values, wanted) for steps, at, values in rows)
    return [point for point in points if point["values"]]


def _wanted(group: str, query: Json) -> set[str] | None:
    """Names of the group's metrics that were asked for; None: all."""
    names = set(query.get("metricNames") or [])
    ids = query.get("metricIds") or []
    if not names and not ids:
        return None
    return names | {metric_id.split(".", 1)[1] for metric_id in ids if metric_id.startswith(f"{group}.")}


def _point(steps_completed: int, at: str, row: Json, wanted: set[str] | None) -> Json:
    if wanted is None or row.keys() <= wanted:
        values = row
    else:
        values = {name: value for name, value in row.items() if name in wanted}
    point: Json = {"batches": steps_completed, "time": at, "values": values}
    if isinstance(epoch := row.get("epoch"), (int, float)):
        point["epoch"] = epoch
    return point
