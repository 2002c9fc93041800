"""History of usage as CSV, with the addresses, parameters and columns of Determined's (`det resources`)."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from rest_framework import serializers

from dispatch.keeping import usage
from dispatch.keeping.usage import Held
from jobs.models import Allocation
from webui.api.answers import Media, time_text
from webui.api.async_views import Principal, async_view
from webui.api.errors import Forbidden
from webui.api.resource_usage import KINDS, AggregatedQuery, RawQuery, periods_of, times_of
from webui.api.views import Json
from webui.waiting.threads import reading, release_thread

ENTRIES_PER_READ = 2000
_RAW = ["experiment_id", "kind", "username", "labels", "slots", "start_time", "end_time", "seconds"]
_ATTEMPTS = [
    "allocation_id", "task_type", "username", "workspace_name", "experiment_id", "slots", "start_time", "end_time",
    "imagepulling_time",
]  # fmt: skip
_SUMS = ["aggregation_type", "aggregation_key", "date", "seconds"]


@async_view("GET", answer=Media("text/csv"))
async def raw(request: HttpRequest, who: Principal) -> HttpResponseBase:
    """One line per member of an attempt, with the slots it held; `timestamp_after`, `timestamp_before`."""
    after, before = times_of(_query(request, who, RawQuery))
    return _streamed(_blocks(after, before, _RAW, _raw_rows))


@async_view("GET", answer=Media("text/csv"))
async def attempts(request: HttpRequest, who: Principal) -> HttpResponseBase:
    """One line per attempt, with its total time; `timestamp_after`, `timestamp_before`."""
    after, before = times_of(_query(request, who, RawQuery))
    return _streamed(_blocks(after, before, _ATTEMPTS, _attempt_rows))


@async_view("GET", answer=Media("text/csv"))
async def aggregated(request: HttpRequest, who: Principal) -> HttpResponseBase:
    """Slot-seconds by day or month; `start_date`, `end_date`, `period`."""
    periods = periods_of(_query(request, who, AggregatedQuery))
    found = await reading(usage.sums, periods)
    rows = [row for each in found for row in _sum_rows(each)]
    return HttpResponse(_lines([_SUMS, *rows]), content_type="text/csv")


def _query(request: HttpRequest, who: Principal, kind: type[serializers.Serializer[Any]]) -> Json:
    if isinstance(who, Allocation):
        raise Forbidden("A run's token cannot read usage history; log in as a user.")
    serializer = kind(data=request.GET)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


def _streamed(blocks: AsyncIterator[bytes]) -> HttpResponseBase:
    response = StreamingHttpResponse(blocks, content_type="text/csv")
    response["Cache-Control"] = "no-store"
    return response


async def _blocks(after: datetime, before: datetime, header: list[str], rows: Any) -> AsyncIterator[bytes]:
    """The file page by page; an attempt whose members two pages would part is left for the second one."""
    await release_thread()
    yield _lines([header])
    last: Held | None = None
    while True:
        page = await reading(usage.held, after, before, behind=last, limit=ENTRIES_PER_READ)
        is_last = len(page) < ENTRIES_PER_READ
        whole = page if is_last else _without_last_attempt(page)
        if whole:
            yield _lines(rows(whole))
            last = whole[-1]
        if is_last:
            return


def _without_last_attempt(page: list[Held]) -> list[Held]:
    part = page[-1].allocation_id
    return [each for each in page if each.allocation_id != part] or page


def _lines(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


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
    kinds = {"experiment_label": each.by_label, "username": each.by_user, "resource_pool": each.by_pool}
    for kind, values in kinds.items():
        for key, seconds in sorted(values.items()):
            yield [kind, key, each.period, f"{seconds:.6f}"]
    yield ["total", "total", each.period, f"{each.seconds:.6f}"]
