"""What a search would do, before it is submitted."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from experiments import search_preview
from searching import BadSearch
from webui.api.answers import Answer
from webui.api.errors import BadRequest
from webui.api.views import ApiView, Json


class PreviewBody(serializers.Serializer[Any]):
    config = serializers.JSONField()
    seed = serializers.IntegerField(required=False, allow_null=True, min_value=0)


class Length(Answer):
    name: Annotated[str, Field(description="batches, records, epochs, units, or the name of the time metric")]
    value: int
    max_length: Annotated[bool, Field(description="the trial decides when it ends; `value` is 0")]


class TrialsOfLength(Answer):
    count: int
    unit: Length


class Rung(Answer):
    """How many trials reached this length, and how many of them were promoted."""

    units: int
    trials: int
    promoted: int


class Bracket(Answer):
    rungs: list[Rung]


class SearchSummary(Answer):
    config: Annotated[Json, Field(description="the effective searcher section")]
    trials: list[TrialsOfLength]
    brackets: list[Bracket]
    unit: str
    total_trials: int
    total_units: Annotated[
        int | None,
        Field(description="from one simulated run with random results; null if a length is unknown"),
    ]
    expected_units: Annotated[
        int | None, Field(description="if each rung keeps exactly its share; null if a length is unknown")
    ]
    span_units: Annotated[
        int | None, Field(description="from the first start to the last end, at trialsAtOnce")
    ]
    trials_at_once: int
    slots_per_trial: int


class SearchPreview(Answer):
    summary: SearchSummary


def encode(preview: search_preview.Preview) -> SearchSummary:
    """As the published client reads it (`config`, `trials`), and beside it the rungs and the totals."""
    return SearchSummary.of(
        preview,
        config=preview.searcher,
        trials=[
            TrialsOfLength(count=count, unit=Length(name=preview.unit, value=units, max_length=units == 0))
            for units, count in preview.lengths.items()
        ],
        brackets=[Bracket(rungs=[Rung.of(step) for step in steps]) for steps in preview.brackets],
        total_trials=preview.trials,
        total_units=preview.units,
        expected_units=preview.expected,
        span_units=preview.span,
        trials_at_once=preview.at_once,
    )


class PreviewSearch(ApiView):
    """Simulate a search: how many trials train for how long. Nothing is stored."""

    rights = {"POST": Right.OWN}
    bodies = {"POST": PreviewBody}

    def post(self, request: Request) -> SearchPreview:
        body = self.body(request)
        if not isinstance(body["config"], dict):
            raise BadRequest("config: an experiment config must be a map.")
        try:
            preview = search_preview.of(body["config"], body.get("seed") or 0)
        except BadSearch as error:
            raise BadRequest(str(error)) from error
        return SearchPreview(summary=encode(preview))
