"""Which experiments a list or a bulk action means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet
from django.http import QueryDict
from rest_framework import serializers

from experiments import phases
from experiments.filters import ExperimentFilters
from experiments.models import Experiment
from experiments.states import ExperimentState
from webui.api import encoding
from webui.api.protojson import EnumField
from webui.api.views import Json
from webui.query import whole, wholes

SORT = {
    "SORT_BY_ID": "id",
    "SORT_BY_NAME": "name",
    "SORT_BY_DESCRIPTION": "description",
    "SORT_BY_START_TIME": "started_at",
    "SORT_BY_END_TIME": "ended_at",
    "SORT_BY_STATE": "state_in_words",
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
STATES = [*_PHASES, *_NEVER, *(f"STATE_{state}" for state in ExperimentState)]


class Filters(serializers.Serializer[Any]):
    name = serializers.CharField(required=False, allow_blank=True, allow_null=True)
    description = serializers.CharField(required=False, allow_blank=True, allow_null=True)
    labels = encoding.list_of(serializers.CharField(), allow_null=True)
    archived = serializers.BooleanField(required=False, allow_null=True, default=None)
    states = encoding.list_of(EnumField("state of experiments", STATES), allow_null=True)
    users = encoding.list_of(serializers.CharField(), allow_null=True)
    userIds = encoding.list_of(serializers.IntegerField(), allow_null=True)
    projectId = serializers.IntegerField(required=False, allow_null=True)
    excludedExperimentIds = encoding.list_of(serializers.IntegerField(), allow_null=True)


class ExperimentsQuery(encoding.PageQuery, Filters):
    sortBy = encoding.sort_field("experiments", SORT)
    ids = encoding.list_of(serializers.IntegerField())
    resourcePool = serializers.CharField(required=False)
    showTrialData = serializers.BooleanField(required=False)


_BY_ID = "experimentIdFilter."
_ID_BOUNDS = ("lt", "lte", "gt", "gte")


def filters_of(asked: Json) -> ExperimentFilters:
    """What a body or query asks for."""
    return ExperimentFilters(
        archived=asked.get("archived"),
        states=[state.removeprefix("STATE_") for state in asked.get("states") or []],
        users=asked.get("users") or (),
        user_ids=asked.get("userIds") or (),
        project_id=asked.get("projectId") or None,
        pool=asked.get("resourcePool") or "",
        labels=asked.get("labels") or (),
        name=asked.get("name") or "",
        description=asked.get("description") or "",
        ids=asked.get("ids") or (),
        excluded_ids=asked.get("excludedExperimentIds") or (),
    )


def total(filters: ExperimentFilters, params: Iterable[str]) -> int | None:
    """How many experiments fit the filters and bounds by id, from the sums that are kept; None: count them."""
    return None if any(name.startswith(_BY_ID) for name in params) else filters.total()


def by_id(rows: QuerySet[Experiment], params: QueryDict) -> QuerySet[Experiment]:
    """`experimentIdFilter.incl=1&experimentIdFilter.gt=5`, as the published client asks."""
    for name in _ID_BOUNDS:
        if (bound := whole(params, _BY_ID + name, least=-1)) is not None:
            rows = rows.filter(**{f"pk__{name}": bound})
    if include := wholes(params, _BY_ID + "incl"):
        rows = rows.filter(pk__in=include)
    return rows.exclude(pk__in=wholes(params, _BY_ID + "notIn"))
