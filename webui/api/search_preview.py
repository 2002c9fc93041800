"""What a search would do, before it is submitted."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import TypedDict

from experiments import search_preview
from searching import BadSearch
from webui.api.errors import BadRequest
from webui.api.views import ApiView, Json


class PreviewBody(serializers.Serializer[Any]):
    config = serializers.JSONField()
    seed = serializers.IntegerField(required=False, allow_null=True, min_value=0)


class Length(TypedDict):
    name: Annotated[str, Field(description="batches, records, epochs, units, or the name of the time metric")]
    value: int
    maxLength: Annotated[bool, Field(description="the trial ends when it likes; `value` is 0")]


class TrialsOfLength(TypedDict):
    count: int
    unit: Length


class Rung(TypedDict):
    """How many trials came to this length, and how many of them went on."""

    units: int
    trials: int
    promoted: int


class Bracket(TypedDict):
    rungs: list[Rung]


class SearchSummary(TypedDict):
    config: Annotated[Json, Field(description="the searcher's section in force")]
    trials: list[TrialsOfLength]
    brackets: list[Bracket]
    unit: str
    totalTrials: int
    totalUnits: Annotated[
        int | None,
        Field(description="of one run with results drawn by chance; null where a length is unknown"),
    ]
    expectedUnits: Annotated[
        int | None, Field(description="if each rung keeps just its share; null where a length is unknown")
    ]
    spanUnits: Annotated[
        int | None, Field(description="from the first start to the last end, at trialsAtOnce")
    ]
    trialsAtOnce: int
    slotsPerTrial: int


class SearchPreview(TypedDict):
    summary: SearchSummary


def encode(preview: search_preview.Preview) -> SearchSummary:
    """As the published client reads it (`config`, `trials`), and beside it the rungs and the totals."""
    return {
        "config": preview.searcher,
        "trials": [
            {"count": count, "unit": {"name": preview.unit, "value": units, "maxLength": units == 0}}
            for units, count in preview.lengths.items()
        ],
        "brackets": [
            {
                "rungs": [
                    {"units": step.units, "trials": step.trials, "promoted": step.promoted} for step in steps
                ]
            }
            for steps in preview.brackets
        ],
        "unit": preview.unit,
        "totalTrials": preview.trials,
        "totalUnits": preview.units,
        "expectedUnits": preview.expected,
        "spanUnits": preview.span,
        "trialsAtOnce": preview.at_once,
        "slotsPerTrial": preview.slots_per_trial,
    }


class PreviewSearch(ApiView):
    """Simulates a search: how many trials train how long. Nothing is stored."""

    bodies = {"POST": PreviewBody}
    answers = {"POST": SearchPreview}
    viewer_methods = frozenset({"POST"})

    def post(self, request: Request) -> Response:
        body = self.body(request)
        if not isinstance(body["config"], dict):
            raise BadRequest("config: an experiment config is a map.")
        try:
            preview = search_preview.of(body["config"], body.get("seed") or 0)
        except BadSearch as error:
            raise BadRequest(str(error)) from error
        return Response({"summary": encode(preview)})
