"""What the server has done, from its event rows, as the stream of log entries that the published client reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase

from accounts.models import User
from accounts.rights import Right
from events.models import Event
from webui.api.answers import Answer, JsonLines, Time, time_text
from webui.api.async_views import Principal, async_view, ndjson, record
from webui.api.authentication import authenticate
from webui.api.views import Json
from webui.query import LARGEST_INTEGER, flag, whole
from webui.waiting.threads import reading, release_thread

_PAGE = 500
#: characters of an event's details
_DETAIL = 1000
_EVERY_SECONDS = 1.0


class MasterLogRecord(Answer):
    id: int
    timestamp: Time
    level: str
    message: str


class MasterLogLine(Answer):
    log_entry: MasterLogRecord


@async_view("GET", Right.READ, answer=JsonLines(MasterLogLine))
async def entries(request: HttpRequest, who: Principal) -> HttpResponseBase:
    """Each change with its reason, oldest first; for admins also changes of accounts, logins, addresses and details."""
    assert isinstance(who, User)
    offset = whole(request.GET, "offset", least=-LARGEST_INTEGER) or 0
    limit = max(0, whole(request.GET, "limit", least=-1) or 0) or LARGEST_INTEGER
    follow, everything = flag(request.GET, "follow"), who.is_admin
    after = await reading(before, everything, offset)

    async def lines() -> AsyncIterator[bytes]:
        last, left = after, limit
        while left:
            found = await reading(read, everything, last, min(_PAGE, left))
            for entry in found:
                yield record({"logEntry": entry})
            left -= len(found)
            if found:
                last = int(found[-1]["id"])
                continue
            if not follow or await authenticate(request) is None:
                return
            await release_thread()
            await asyncio.sleep(_EVERY_SECONDS)

    return ndjson(lines())


def _rows(everything: bool) -> QuerySet[Event]:
    rows = Event.objects.order_by("id")
    return rows if everything else rows.exclude(kind=Event.Kind.USER)


def before(everything: bool, offset: int) -> int:
    """The id of the event before the first that is asked for."""
    rows = _rows(everything).values_list("pk", flat=True)
    if offset < 0:
        found = rows.order_by("-id")[-offset : -offset + 1]
    else:
        found = rows[offset - 1 : offset] if offset else rows.none()
        if offset and not found:
            return rows.last() or 0
    return next(iter(found), 0)


def read(everything: bool, after: int, most: int) -> list[Json]:
    return [_encoded(event, everything) for event in _rows(everything).filter(pk__gt=after)[:most]]


def _encoded(event: Event, everything: bool) -> Json:
    message = f"{event} by {event.actor}"
    if everything:  # what users wrote, and where they are, is for admins
        message += f" from {event.origin}" if event.origin else ""
        message += f" {json.dumps(event.detail, ensure_ascii=False)[:_DETAIL]}" if event.detail else ""
    return {
        "id": event.pk,
        "timestamp": time_text(event.at),
        "level": "LOG_LEVEL_INFO",
        "message": message,
    }
