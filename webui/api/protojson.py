"""What Determined's gateway takes beside what it answers: names in snake_case, and the number of an enum's word."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import Any

from django.http import QueryDict
from rest_framework import serializers

#: enum -> the prefix of its words, and these by their numbers from 1; `-` where there is none. 0 is UNSPECIFIED.
_ENUMS = {
    "order": ("ORDER_BY", "ASC DESC"),
    "sort of checkpoints": ("SORT_BY", "UUID TRIAL_ID BATCH_NUMBER END_TIME STATE SEARCHER_METRIC"),
    "sort of commands": ("SORT_BY", "ID DESCRIPTION - START_TIME WORKSPACE_ID"),
    "sort of experiments": (
        "SORT_BY",
        "ID DESCRIPTION - START_TIME END_TIME STATE - NUM_TRIALS PROGRESS USER NAME FORKED_FROM RESOURCE_POOL "
        "PROJECT_ID CHECKPOINT_SIZE CHECKPOINT_COUNT SEARCHER_METRIC_VAL",
    ),
    "sort of tokens": ("SORT_BY", "USER_ID EXPIRY CREATED_AT TOKEN_TYPE REVOKED DESCRIPTION"),
    "sort of trials": (
        "SORT_BY",
        "ID - - START_TIME END_TIME STATE BEST_VALIDATION_METRIC LATEST_VALIDATION_METRIC BATCHES_PROCESSED DURATION "
        "RESTARTS CHECKPOINT_SIZE LOG_RETENTION_DAYS",
    ),
    "sort of users": (
        "SORT_BY",
        "DISPLAY_NAME USER_NAME ADMIN ACTIVE MODIFIED_TIME NAME LAST_AUTH_TIME REMOTE",
    ),
    "state of checkpoints": ("STATE", "ACTIVE COMPLETED ERROR DELETED PARTIALLY_DELETED"),
    "state of experiments": (
        "STATE",
        "ACTIVE PAUSED STOPPING_COMPLETED STOPPING_CANCELED STOPPING_ERROR COMPLETED CANCELED ERROR DELETED DELETING "
        "DELETE_FAILED STOPPING_KILLED QUEUED PULLING STARTING RUNNING",
    ),
    "state of jobs": ("STATE", "QUEUED SCHEDULED SCHEDULED_BACKFILLED"),
    "workloads": ("FILTER_OPTION", "CHECKPOINT VALIDATION CHECKPOINT_OR_VALIDATION"),
    "metrics": ("METRIC_TYPE", "TRAINING VALIDATION PROFILING"),
    "period": ("RESOURCE_ALLOCATION_AGGREGATION_PERIOD", "DAILY MONTHLY"),
    "type of webhooks": ("WEBHOOK_TYPE", "DEFAULT SLACK"),
    "mode of webhooks": ("WEBHOOK_MODE", "WORKSPACE SPECIFIC"),
    "trigger": (
        "TRIGGER_TYPE",
        "EXPERIMENT_STATE_CHANGE METRIC_THRESHOLD_EXCEEDED TASK_LOG CUSTOM",
    ),
}


def words(enum: str) -> list[str]:
    """The words of an enum, each at its number; empty where it has none."""
    prefix, names = _ENUMS[enum]
    return [f"{prefix}_{name}" if name != "-" else "" for name in ["UNSPECIFIED", *names.split()]]


class EnumField(serializers.ChoiceField):
    """One of the words of an enum, which may be given by its number."""

    def __init__(self, enum: str, choices: Iterable[str], **options: Any) -> None:
        self._words = words(enum)
        super().__init__(choices=list(choices), **options)

    def to_internal_value(self, data: Any) -> Any:
        is_number = not isinstance(data, bool) and re.fullmatch("[0-9]{1,3}", str(data))
        word = self._words[int(data)] if is_number and int(data) < len(self._words) else ""
        return super().to_internal_value(word or data)


def in_camel_case(name: str) -> str:
    """A field's name as answers have it."""
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)


def query_in_camel_case(query: QueryDict, kept: Container[str] = ()) -> QueryDict:
    """The query with its names in camelCase but for those to keep; Determined takes `metric_name` too."""
    if not any("_" in name for name in query):
        return query
    found = QueryDict(mutable=True)
    for name, texts in query.lists():
        for text in texts:
            found.appendlist(name if name in kept else in_camel_case(name), text)
    return found


def renamed(field: Any, data: Any) -> Any:
    """The value with the names of its fields in camelCase; what the field takes as it is, such as a config, stays."""
    if isinstance(data, QueryDict):
        return query_in_camel_case(data, getattr(field, "fields", ()))
    if isinstance(field, serializers.ListSerializer | serializers.ListField):
        return [renamed(field.child, each) for each in data] if isinstance(data, list) else data
    if not isinstance(field, serializers.Serializer) or not isinstance(data, dict):
        return data
    named = {name if name in field.fields else in_camel_case(name): value for name, value in data.items()}
    return {
        name: renamed(field.fields[name], value) if name in field.fields else value
        for name, value in named.items()
    }
