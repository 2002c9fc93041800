"""Addresses of the async views, and their lines in the OpenAPI document, which DRF cannot see."""

from __future__ import annotations

import re
from typing import Any

from django.urls import URLPattern, path

from webui.api import (
    allocations,
    answers,
    checkpoint_files,
    custom_search,
    log_files,
    log_streams,
    master_log,
    media,
    metric_streams,
    profiler,
    pulse,
    tensorboard_files,
    trial_metric_streams,
)
from webui.api.log_query import FILTERS, STREAMED
from webui.api.openapi import SCHEMES
from webui.api.views import Json

_ALLOCATION = "allocations/<str:allocation_id>"
_STREAMS = "experiments/<int:experiment_id>/metrics-stream"

#: path, view
_ROUTES: list[tuple[str, Any]] = [
    (f"{_ALLOCATION}/signals/preemption", allocations.preemption),
    (f"{_ALLOCATION}/signals/ack_preemption", allocations.ack_preemption),
    (f"{_ALLOCATION}/resources/<str:resources_id>/rendezvous", allocations.rendezvous),
    (f"{_ALLOCATION}/all_gather", allocations.all_gather),
    (f"{_ALLOCATION}/notify_container_running", allocations.notify_container_running),
    ("master/logs", master_log.entries),
    ("trials/<int:trial_id>/logs", log_streams.trial_logs),
    ("trials/<int:trial_id>/logs/fields", log_streams.trial_logs_fields),
    ("trials/<int:trial_id>/logs/raw", log_files.trial_logs_raw),
    ("trials/<int:trial_id>/logs/archive", log_files.trial_logs_archive),
    ("tasks/<str:task_id>/logs", log_streams.task_logs),
    ("tasks/<str:task_id>/logs/fields", log_streams.task_logs_fields),
    ("tasks/<str:task_id>/logs/raw", log_files.task_logs_raw),
    ("tasks/<str:task_id>/logs/archive", log_files.task_logs_archive),
    ("experiments/metrics-stream/metric-names", metric_streams.names),
    (f"{_STREAMS}/batches", metric_streams.steps),
    (f"{_STREAMS}/trials-snapshot", metric_streams.trials_snapshot),
    (f"{_STREAMS}/trials-sample", metric_streams.trials_sample),
    ("trials/metrics/trial_metrics", trial_metric_streams.trial_metrics),
    ("trials/metrics/training_metrics", trial_metric_streams.training_metrics),
    ("trials/metrics/validation_metrics", trial_metric_streams.validation_metrics),
    ("trials/<int:trial_id>/profiler/available_series", profiler.available_series),
    ("trials/<int:trial_id>/profiler/metrics", profiler.metrics),
    ("trials/<int:trial_id>/media/<int:media_id>", media.content),
    ("trials/<int:trial_id>/tensorboard", tensorboard_files.of_trial),
    ("experiments/<int:experiment_id>/searcher_events", custom_search.searcher_events),
    ("experiments/<int:experiment_id>/searcher_operations", custom_search.searcher_operations),
    ("experiments/<int:experiment_id>/tensorboard", tensorboard_files.of_experiment),
    ("checkpoints/<uuid:checkpoint_uuid>/files", checkpoint_files.listing),
    ("checkpoints/<uuid:checkpoint_uuid>/files/<path:path>", checkpoint_files.file),
    ("checkpoints/<uuid:checkpoint_uuid>/archive", checkpoint_files.whole),
    ("tasks/<str:task_id>/ranks/<int:rank>/stack", pulse.stack_of_rank),
    ("tasks/<str:task_id>/stacks", pulse.stacks_of_ranks),
]

_METRIC = frozenset({"metricName", "metricType", "group", "periodSeconds"})
#: end of a path -> parameters of its query string; any of them may be repeated where it filters
_QUERIES: dict[str, frozenset[str]] = {
    "/metric-names": frozenset({"ids", "periodSeconds"}),
    "/batches": _METRIC,
    "/trials-snapshot": _METRIC | {"batchesProcessed", "batchesMargin"},
    "/trials-sample": _METRIC | {"maxTrials", "maxDatapoints", "startBatches", "endBatches"},
    "/trial_metrics": frozenset({"trialIds", "group"}),
    "trials/metrics/training_metrics": frozenset({"trialIds"}),
    "trials/metrics/validation_metrics": frozenset({"trialIds"}),
    "/available_series": frozenset({"follow"}),
    "/profiler/metrics": frozenset(
        {"follow", "labels.name", "labels.agentId", "labels.gpuUuid", "labels.metricType"}
    ),
    "master/logs": frozenset({"offset", "limit", "follow"}),
    "/logs": STREAMED,
    "checkpoints/<uuid:checkpoint_uuid>/archive": frozenset({"format"}),
    "/logs/fields": frozenset({"follow"}),
    "/logs/raw": FILTERS,
    "/logs/archive": FILTERS,
}

urlpatterns: list[URLPattern] = [path(f"api/v1/{route}", view) for route, view in _ROUTES]


def described() -> dict[str, Json]:
    """OpenAPI paths of these views."""
    return {
        "/api/v1/" + re.sub(r"<\w+:(\w+)>", r"{\1}", route): {
            method.lower(): _operation(route, view, method) for method in view.answers
        }
        for route, view in _ROUTES
    }


def _operation(route: str, view: Any, method: str) -> Json:
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer" if kind == "int" else "string"},
        }
        for kind, name in re.findall(r"<(\w+):(\w+)>", route)
    ]
    asked = next((names for end, names in _QUERIES.items() if route.endswith(end)), frozenset[str]())
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}}
        for name in sorted(asked)
    ]
    taken = {} if view.body is None else {"requestBody": {"required": True, "content": _content(view.body)}}
    return {
        "operationId": f"{view.__name__}_{method.lower()}",
        "description": (view.__doc__ or "").strip(),
        "tags": [view.__module__.rsplit(".", 1)[-1]],
        "parameters": parameters,
        **taken,
        "security": [{scheme: []} for scheme in SCHEMES],
        "responses": {
            "200": {"description": "The requested data.", "content": _content(view.answers[method])},
            "default": {
                "description": "An error, with a message.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}},
            },
        },
    }


def _content(kind: Any) -> Json:
    return {media: {"schema": schema} for media, schema in answers.content(kind).items()}
