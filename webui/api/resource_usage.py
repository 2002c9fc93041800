"""History of usage in the dialect (features.md 11.7): what was held, and its sums by day or month, as JSON.

The same as CSV is in `resource_usage_csv`. Names of parameters may be spelled `startDate` or `start_date`, as
Determined's gateway takes both and its command line sends the second.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from pydantic.alias_generators import to_camel
from rest_framework import serializers
from rest_framework.request import Request

from dispatch.keeping import usage, usage_periods
from dispatch.keeping.usage_periods import Periods, Unit
from jobs.models import Task
from webui.api.answers import Answer, Maybe, Time
from webui.api.errors import BadRequest
from webui.api.views import ApiView, Json

PERIODS: dict[str, Unit] = {
    "RESOURCE_ALLOCATION_AGGREGATION_PERIOD_DAILY": "day",
    "RESOURCE_ALLOCATION_AGGREGATION_PERIOD_MONTHLY": "month",
}
#: programs may ask for more at once than the page shows
MOST: dict[Unit, int] = {"day": 366, "month": 120}
#: more than so many are to be asked for as CSV, which is streamed
MOST_ENTRIES = 50_000
#: All time of an attempt counts as training; Determined tells validation and checkpoints from it.
KINDS: dict[str, str] = {Task.Kind.TRIAL: "training", Task.Kind.COMMAND: "command"}

T = TypeVar("T")


class _EitherCase(serializers.Serializer[Any]):
    def to_internal_value(self, data: Any) -> Any:
        return super().to_internal_value({to_camel(name): data[name] for name in data})


class RawQuery(_EitherCase):
    timestampAfter = serializers.CharField()
    timestampBefore = serializers.CharField()


class AggregatedQuery(_EitherCase):
    startDate = serializers.CharField()
    endDate = serializers.CharField()
    period = serializers.ChoiceField(choices=list(PERIODS))


def times_of(query: Json) -> tuple[datetime, datetime]:
    return usage_periods.times(query["timestampAfter"], query["timestampBefore"])


def periods_of(query: Json) -> Periods:
    unit = PERIODS[query["period"]]
    return usage_periods.between(unit, query["startDate"], query["endDate"], most=MOST[unit])


class HeldRecord(Answer):
    """Slots held by a member of an attempt; `seconds` are those within the requested period."""

    kind: str
    start_time: Time
    end_time: Time
    experiment_id: Maybe[int] = None
    username: str
    user_id: int
    labels: list[str]
    seconds: float
    slots: int
    resource_pool: str
    allocation_id: str


class HeldAnswer(Answer):
    resource_entries: list[HeldRecord]


class UsageRecord(Answer):
    """Slot-seconds of a day or month; an experiment counts for each of its labels."""

    period_start: str
    period: str
    seconds: float
    by_username: dict[str, float]
    by_experiment_label: dict[str, float]
    by_resource_pool: dict[str, float]


class UsageAnswer(Answer):
    resource_entries: list[UsageRecord]


class RawAllocation(ApiView):
    """Slots held by each member of an attempt in a period, earliest start first; `seconds` are those in the period."""

    queries = {"GET": RawQuery}

    def get(self, request: Request) -> HeldAnswer:
        after, before = times_of(self.query(request))
        found = usage.held(after, before, limit=MOST_ENTRIES + 1)
        if len(found) > MOST_ENTRIES:
            raise BadRequest(
                f"Found more than {MOST_ENTRIES:,} entries, the limit for one answer. Request a shorter "
                "time, or for CSV at /resources/allocation/raw, which is streamed."
            )
        return HeldAnswer(resource_entries=[_entry(each) for each in found])


def _entry(each: usage.Held) -> HeldRecord:
    return HeldRecord.of(
        each,
        kind=KINDS[each.kind],
        start_time=each.started_at,
        end_time=each.ended_at,
        resource_pool=each.pool,
    )


class AggregatedAllocation(ApiView):
    """Slot-seconds by day or month: in total, and by user, experiment label and resource pool."""

    queries = {"GET": AggregatedQuery}

    def get(self, request: Request) -> UsageAnswer:
        query = self.query(request)
        entries = [
            UsageRecord(
                period_start=each.period,
                period=query["period"],
                seconds=each.seconds,
                by_username=dict(each.by_user),
                by_experiment_label=dict(each.by_label),
                by_resource_pool=dict(each.by_pool),
            )
            for each in usage.sums(periods_of(query))
        ]
        return UsageAnswer(resource_entries=entries)
