"""Which experiments a list or a bulk action means."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db.models import QuerySet
from django.http import QueryDict
from rest_framework import serializers

from experiments import counts, phases
from experiments.models import Experiment, ExperimentCount
from experiments.states import ExperimentState
from webui.api import encoding
from webui.api.views import Json
from webui.query import whole, wholes

Rows = TypeVar("Rows", Experiment, ExperimentCount)

SORT = {
    "SORT_BY_ID": "id",
    "SORT_BY_NAME": "name",
    "SORT_BY_DESCRIPTION": "description",
    "SORT_BY_START_TIME": "started_at",
    "SORT_BY_END_TIME": "ended_at",
    "SORT_BY_STATE": "state",
    "SORT_BY_NUM_TRIALS": "num_trials",
    "SORT_BY_PROGRESS": "progress",
    "SORT_BY_USER": "username",
    "SORT_BY_FORKED_FROM": "parent_id",
    "SORT_BY_RESOURCE_POOL": "pool_name",
    "SORT_BY_PROJECT_ID": "project_id",
    "SORT_BY_CHECKPOINT_SIZE": "checkpoint_bytes",
    "SORT_BY_CHECKPOINT_COUNT": "checkpoint_count",
    "SORT_BY_SEARCHER_METRIC_VAL": "best_metric",
}
_NEVER = ["STATE_PULLING", "STATE_DELETED"]  # allowed, and true of nothing here
_PHASES = [f"STATE_{phase}" for phase in (phases.QUEUED, phases.STARTING, phases.RUNNING)]
_NOT_SUMMED = ("name", "description", "labels", "resourcePool", "ids", "excludedExperimentIds")
STATES = [*_PHASES, *_NEVER, *(f"STATE_{state}" for state in ExperimentState)]


class Filters(serializers.Serializer[Any]):
    name = serializers.CharField(required=False, allow_blank=True, allow_null=True)
    description = serializers.CharField(required=False, allow_blank=True, allow_null=True)
    labels = serializers.ListField(child=serializers.CharField(), required=False, allow_null=True)
    archived = serializers.BooleanField(required=False, allow_null=True, default=None)
    states = serializers.ListField(
        child=serializers.ChoiceField(choices=STATES), required=False, allow_null=True
    )
    users = serializers.ListField(child=serializers.CharField(), required=False, allow_null=True)
    userIds = serializers.ListField(child=serializers.IntegerField(), required=False, allow_null=True)
    projectId = serializers.IntegerField(required=False, allow_null=True)
    excludedExperimentIds = serializers.ListField(
        child=serializers.IntegerField(), required=False, allow_null=True
    )


class ExperimentsQuery(encoding.PageQuery, Filters):
    sortBy = encoding.sort_field(SORT)
    ids = serializers.ListField(child=serializers.IntegerField(), required=False)
    resourcePool = serializers.CharField(required=False)
    showTrialData = serializers.BooleanField(required=False)


_BY_ID = "experimentIdFilter."
_ID_BOUNDS = ("lt", "lte", "gt", "gte")


def chosen(rows: QuerySet[Experiment], filters: Json) -> QuerySet[Experiment]:
    """The rows (of shown.experiments.with_numbers) that fit all filters."""
    if text := filters.get("name"):
        rows = rows.filter(name__icontains=text)
    if text := filters.get("description"):
        rows = rows.filter(description__icontains=text)
    for label in filters.get("labels") or []:
        rows = rows.filter(labels__contains=[label])
    if filters.get("resourcePool"):
        rows = rows.filter(job__pool__name=filters["resourcePool"])
    if filters.get("ids"):
        rows = rows.filter(pk__in=filters["ids"])
    return _summed(rows, filters).exclude(pk__in=filters.get("excludedExperimentIds") or [])


def total(filters: Json, params: Any) -> int | None:
    """How many experiments fit all filters and bounds by id, from the sums that are kept; None: count them."""
    if any(filters.get(name) for name in _NOT_SUMMED) or set(_PHASES) & set(filters.get("states") or []):
        return None
    if any(name.startswith(_BY_ID) for name in params):
        return None
    return counts.total(_summed(ExperimentCount.objects.all(), filters))


def _summed(rows: QuerySet[Rows], filters: Json) -> QuerySet[Rows]:
    """The rows that fit those filters for which sums are kept (experiments.counts)."""
    if filters.get("archived") is not None:
        rows = rows.filter(archived=filters["archived"])
    if filters.get("states"):
        rows = rows.filter(phases.where(*(name.removeprefix("STATE_") for name in filters["states"])))
    if filters.get("users"):
        rows = rows.filter(owner__username__in=filters["users"])
    if filters.get("userIds"):
        rows = rows.filter(owner_id__in=filters["userIds"])
    if filters.get("projectId"):
        rows = rows.filter(project_id=filters["projectId"])
    return rows


def by_id(rows: QuerySet[Experiment], params: QueryDict) -> QuerySet[Experiment]:
    """`experimentIdFilter.incl=1&experimentIdFilter.gt=5`, as the published client asks."""
    for name in _ID_BOUNDS:
        if (bound := whole(params, _BY_ID + name, least=-1)) is not None:
            rows = rows.filter(**{f"pk__{name}": bound})
    if include := wholes(params, _BY_ID + "incl"):
        rows = rows.filter(pk__in=include)
    return rows.exclude(pk__in=wholes(params, _BY_ID + "notIn"))
