"""History of usage in the dialect (features.md 11.7): what was held, and its sums by day or month.

As JSON, and as CSV with the addresses, parameters and columns of Determined's (`det resources`). Names of parameters
may be spelled `startDate` or `start_date`, as Determined's gateway takes both and its command line sends the second.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from itertools import groupby
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from dispatch.keeping import usage
from dispatch.keeping.usage import Held, Periods, Unit
from jobs.models import Task
from trainmaster import csv_text
from webui.api.answers import Answer, Media, Time, time_text
from webui.api.async_views import Principal, async_view
from webui.api.errors import BadRequest
from webui.api.protojson import EnumField
from webui.api.views import ApiView, Json, checked
from webui.waiting.threads import reading, release_thread

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


class RawQuery(serializers.Serializer[Any]):
    timestampAfter = serializers.CharField()
    timestampBefore = serializers.CharField()


class AggregatedQuery(serializers.Serializer[Any]):
    startDate = serializers.CharField()
    endDate = serializers.CharField()
    period = EnumField("period", PERIODS)


def times_of(query: Json) -> tuple[datetime, datetime]:
    return usage.times(query["timestampAfter"], query["timestampBefore"])


def periods_of(query: Json) -> Periods:
    unit = PERIODS[query["period"]]
    return usage.between(unit, query["startDate"], query["endDate"], most=MOST[unit])


class HeldRecord(Answer):
    """Slots held by a member of an attempt; `seconds` are those within the requested period."""

    kind: str
    start_time: Time
    end_time: Time
    experiment_id: Annotated[int, Field(description="0: none")]
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
    by_group: dict[str, float]


class UsageAnswer(Answer):
    resource_entries: list[UsageRecord]


class RawAllocation(ApiView):
    """Slots held by each member of an attempt in a period, earliest start first; `seconds` are those in the period."""

    rights = {"GET": Right.READ}
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
        experiment_id=each.experiment_id or 0,
        kind=KINDS[each.kind],
        start_time=each.started_at,
        end_time=each.ended_at,
        resource_pool=each.pool,
    )


class AggregatedAllocation(ApiView):
    """Slot-seconds by day or month: in total, and by user, experiment label and resource pool."""

    rights = {"GET": Right.READ}
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
                by_group=dict(each.by_group),
            )
            for each in usage.sums(periods_of(query))
        ]
        return UsageAnswer(resource_entries=entries)


ENTRIES_PER_READ = 2000
_RAW = ["experiment_id", "kind", "username", "labels", "slots", "start_time", "end_time", "seconds"]
_ATTEMPTS = [
    "allocation_id", "task_type", "username", "workspace_name", "experiment_id", "slots", "start_time", "end_time",
    "imagepulling_time",
]  # fmt: skip
_SUMS = ["aggregation_type", "aggregation_key", "date", "seconds"]


@async_view("GET", Right.READ, answer=Media("text/csv"))
async def raw(request: HttpRequest, who: Principal) -> HttpResponseBase:
    """One line per member of an attempt, with the slots it held; `timestamp_after`, `timestamp_before`."""
    after, before = times_of(checked(RawQuery, request.GET))
    return _streamed(_blocks(after, before, _RAW, _raw_rows))


@async_view("GET", Right.READ, answer=Media("text/csv"))
async def attempts(request: HttpRequest, who: Principal) -> HttpResponseBase:
    """One line per attempt, with its total time; `timestamp_after`, `timestamp_before`."""
    after, before = times_of(checked(RawQuery, request.GET))
    return _streamed(_blocks(after, before, _ATTEMPTS, _attempt_rows))


@async_view("GET", Right.READ, answer=Media("text/csv"))
async def aggregated(request: HttpRequest, who: Principal) -> HttpResponseBase:
    """Slot-seconds by day or month; `start_date`, `end_date`, `period`."""
    periods = periods_of(checked(AggregatedQuery, request.GET))
    found = await reading(usage.sums, periods)
    rows = [row for each in found for row in _sum_rows(each)]
    return HttpResponse(csv_text.lines([_SUMS, *rows]).encode(), content_type="text/csv")


def _streamed(blocks: AsyncIterator[bytes]) -> HttpResponseBase:
    response = StreamingHttpResponse(blocks, content_type="text/csv")
    response["Cache-Control"] = "no-store"
    return response


async def _blocks(after: datetime, before: datetime, header: list[str], rows: Any) -> AsyncIterator[bytes]:
    """The file page by page; an attempt whose members two pages would part is left for the second one."""
    await release_thread()
    yield csv_text.lines([header]).encode()
    last: Held | None = None
    while True:
        page = await reading(usage.held, after, before, behind=last, limit=ENTRIES_PER_READ)
        is_last = len(page) < ENTRIES_PER_READ
        whole = page if is_last else _without_last_attempt(page)
        if whole:
            yield csv_text.lines(rows(whole)).encode()
            last = whole[-1]
        if is_last:
            return


def _without_last_attempt(page: list[Held]) -> list[Held]:
    part = page[-1].allocation_id
    return [each for each in page if each.allocation_id != part] or page


def _raw_rows(page: list[Held]) -> Iterator[list[object]]:
    for each in page:
        labels = ",".join(label.replace("\\", "\\\\").replace(",", "\\,") for label in each.labels)
        yield [
            each.experiment_id or 0, KINDS[each.kind], each.username, labels, each.slots,
            time_text(each.started_at), time_text(each.ended_at), f"{each.seconds:.6f}",
        ]  # fmt: skip


def _attempt_rows(page: list[Held]) -> Iterator[list[object]]:
    for allocation_id, group in groupby(page, key=lambda each: each.allocation_id):
        members = list(group)
        first = members[0]
        ended = max(member.ended_at for member in members)
        yield [
            allocation_id, first.kind, first.username, first.workspace, first.experiment_id or 0,
            sum(member.slots for member in members), time_text(first.started_at), time_text(ended), "0.0",
        ]  # fmt: skip


def _sum_rows(each: usage.UsageSum) -> Iterator[list[object]]:
    kinds = {
        "experiment_label": each.by_label,
        "username": each.by_user,
        "resource_pool": each.by_pool,
        "group": each.by_group,
    }
    for kind, values in kinds.items():
        for key, seconds in sorted(values.items()):
            yield [kind, key, each.period, f"{seconds:.6f}"]
    yield ["total", "total", each.period, f"{each.seconds:.6f}"]
