"""Streams of log lines in the dialect: `/api/v1/{trials,tasks}/<id>/logs` and `…/logs/fields` (features.md 3.2).

Beside the dialect: `after=<id>` begins behind that line, so that a broken stream goes on without gap or repeat,
`rankIds` takes expressions such as `0-7,!5` or `host:gpu-2` (logs.rank_expression), and `streams` tells the server's
lines from stdout.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any

from django.db import Error
from django.http import HttpRequest, HttpResponseBase

from logs import read
from logs.filters import Filters
from webui.api.answers import JsonLines
from webui.api.async_views import Principal, async_view, ndjson, record
from webui.api.authentication import authenticate
from webui.api.log_query import LogQuery, fields_query, stream_query
from webui.api.log_records import Encoder, LogFields, LogRecord, fields
from webui.api.tasks import own_task, task_of_trial
from webui.live.tails import Tail, tails
from webui.waiting.threads import catching_up, reading, release_thread
from webui.waiting.wakeups import LOOK_AGAIN_SECONDS

LINES_PER_READ = 1000
FIELDS_SECONDS = 5.0
#: A follower whose login ends is cut off within this time.
LOGIN_CHECK_SECONDS = 300.0

log = logging.getLogger(__name__)


@async_view("GET", answer=JsonLines(LogRecord))
async def trial_logs(request: HttpRequest, who: Principal, trial_id: int) -> HttpResponseBase:
    """Lines of a trial's log, of all its attempts, one record per line."""
    task_id = await reading(task_of_trial, who, trial_id)
    return await _lines(request, task_id, {"trialId": trial_id})


@async_view("GET", answer=JsonLines(LogRecord))
async def task_logs(request: HttpRequest, who: Principal, task_id: str) -> HttpResponseBase:
    """Lines of a task's log, one record per line."""
    return await _lines(request, await reading(own_task, who, task_id), {"taskId": task_id})


@async_view("GET", answer=JsonLines(LogFields))
async def trial_logs_fields(request: HttpRequest, who: Principal, trial_id: int) -> HttpResponseBase:
    """The values that filters of a trial's log can use; with `follow`, again every 5 s until the end."""
    return _fields(request, await reading(task_of_trial, who, trial_id), with_allocations=False)


@async_view("GET", answer=JsonLines(LogFields))
async def task_logs_fields(request: HttpRequest, who: Principal, task_id: str) -> HttpResponseBase:
    """The values that filters of a task's log can use; with `follow`, again every 5 s until the end."""
    return _fields(request, await reading(own_task, who, task_id), with_allocations=True)


async def _lines(request: HttpRequest, task_id: str, about: dict[str, Any]) -> HttpResponseBase:
    query = await reading(stream_query, request.GET, task_id)
    encoder = Encoder(task_id, about)
    return ndjson(_followed(request, query, encoder) if query.follow else _read(query, encoder))


async def _read(query: LogQuery, encoder: Encoder) -> AsyncIterator[bytes]:
    """The lines that are there, page by page."""
    filters = await reading(query.filters) if query.changes else query.filters()
    look, upto = (_backward, None) if query.newest_first else (_forward, query.after)
    left = query.limit
    while filters is not None and left != 0:
        size = LINES_PER_READ if left is None else min(left, LINES_PER_READ)
        page, part = await _thread_for(query)(look, query, upto, filters, size, encoder)
        if part:
            yield part
        upto, left = page.upto, None if left is None else left - len(page.lines)
        if page.done or (query.newest_first and page.upto <= query.after + 1):
            return


def _thread_for(query: LogQuery) -> Callable[..., Coroutine[Any, Any, tuple[read.LogPage, bytes]]]:
    """A search may take seconds at each step: it keeps none of those waiting who look at what is new."""
    return catching_up if query.searches else reading


def _forward(
    query: LogQuery, after: int, filters: Filters, size: int, encoder: Encoder
) -> tuple[read.LogPage, bytes]:
    page = read.forward(query.task_id, after, filters, size)
    return page, encoder.ndjson(page.lines)


def _backward(
    query: LogQuery, before: int | None, filters: Filters, size: int, encoder: Encoder
) -> tuple[read.LogPage, bytes]:
    page = read.backward(query.task_id, before, filters, size)
    wanted = [line for line in reversed(page.lines) if line.number > query.after]
    return page, encoder.ndjson(wanted)


async def _followed(request: HttpRequest, query: LogQuery, encoder: Encoder) -> AsyncIterator[bytes]:
    """Until the task has ended and nothing follows, or the login ends."""
    nudge, after, checked = asyncio.Event(), query.after, time.monotonic()
    with tails().following(query.task_id, nudge) as tail:
        while tail.exists:
            nudge.clear()
            if tail.looked_at is not None and after < tail.newest and query.may_match():
                page, part = await _read_on(tail, query, after, encoder)
                if part:
                    yield part
                after = max(after, page.upto)
                if not page.done:
                    continue
            if _is_over(tail, after, query):
                return
            if time.monotonic() - checked > LOGIN_CHECK_SECONDS:
                checked = time.monotonic()
                if await authenticate(request) is None:
                    return
                await release_thread()
            with suppress(TimeoutError):
                async with asyncio.timeout(
                    LOGIN_CHECK_SECONDS if after >= tail.newest else LOOK_AGAIN_SECONDS
                ):
                    await nudge.wait()


async def _read_on(tail: Tail, query: LogQuery, after: int, encoder: Encoder) -> tuple[read.LogPage, bytes]:
    """The next lines, as the process has read them for all; none while the database is away, so that a follower
    outlives its restart."""
    try:
        filters = None if query.changes else query.filters()
        if filters is None:
            return await _thread_for(query)(_further, query, after, encoder)
        page = await tail.next_lines(after, filters, LINES_PER_READ)
        return page, await reading(encoder.ndjson, page.lines) if page.lines else b""
    except Error as error:
        log.info("cannot read a followed log: %s", error)
        return read.LogPage([], after, True), b""


def _further(query: LogQuery, after: int, encoder: Encoder) -> tuple[read.LogPage, bytes]:
    """The next lines by the ranks that are chosen then: a rank whose first line came meanwhile is not passed over."""
    filters = query.filters()
    while True:
        if filters is None:
            page = read.LogPage([], read.last_number(query.task_id), True)
        else:
            page = read.forward(query.task_id, after, filters, LINES_PER_READ)
        before, filters = filters, query.filters() if query.changes else filters
        if filters == before:
            return page, encoder.ndjson(page.lines)


def _is_over(tail: Tail, after: int, query: LogQuery) -> bool:
    return tail.looked_at is not None and tail.ended and (after >= tail.newest or not query.may_match())


def _fields(request: HttpRequest, task_id: str, *, with_allocations: bool) -> HttpResponseBase:
    follow = fields_query(request.GET)

    async def parts() -> AsyncIterator[bytes]:
        nudge = asyncio.Event()
        with tails().following(task_id, nudge) as tail:
            while True:
                answer = await reading(fields, task_id, with_allocations=with_allocations)
                yield record(answer)
                if not follow or tail.ended or not tail.exists:
                    return
                until = time.monotonic() + FIELDS_SECONDS
                while not tail.ended and (left := until - time.monotonic()) > 0:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(left):
                            await nudge.wait()
                    nudge.clear()

    return ndjson(parts())
