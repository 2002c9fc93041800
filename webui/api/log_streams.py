"""Streams of log lines in the dialect: `/api/v1/{trials,tasks}/<id>/logs` and `…/logs/fields` (features.md 3.2).

Beside the dialect: `after=<id>` begins behind that line, so that a broken stream goes on without gap or repeat,
`rankIds` takes expressions such as `0-7,!5` or `host:gpu-2` (logs.rank_expression), and `streams` tells the server's
lines from stdout.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

from django.db import Error
from django.http import HttpRequest, HttpResponseBase
from pydantic import Field

from accounts.rights import Right
from events.wakeups import LOOK_AGAIN_SECONDS
from jobs.models import Member
from logs import read
from logs.filters import Filters
from logs.levels import Level
from logs.lines import SERVER, STDERR, LogLine, shown
from logs.models import RankSeen
from webui.api.answers import Answer, JsonLines, Maybe, Time, one_of, time_text
from webui.api.async_views import Principal, async_view, ndjson, record
from webui.api.authentication import authenticate
from webui.api.log_query import SERVER_SOURCE, TASK_SOURCE, LogQuery, fields_query, stream_query
from webui.api.tasks import own_task, task_of_trial
from webui.live.tails import Tail, tails
from webui.waiting.threads import catching_up, reading, release_thread

LINES_PER_READ = 1000
FIELDS_SECONDS = 5.0
#: A follower whose login ends is cut off within this time.
LOGIN_CHECK_SECONDS = 300.0

log = logging.getLogger(__name__)


class LogRecord(Answer):
    """A line of a log."""

    id: Annotated[str, Field(description="the line's number, for use in `after`")]
    timestamp: Time
    level: Annotated[str, one_of(*(level.determined for level in Level))]
    message: Annotated[str, Field(description="the line as the CLI prints it")]
    log: Annotated[str, Field(description="the text only")]
    source: Annotated[str, one_of(SERVER_SOURCE, TASK_SOURCE)]
    stdtype: Annotated[str, one_of("stdout", "stderr")]
    continues: Maybe[Annotated[bool, Field(description="the rank's next record continues this line")]] = None
    agent_id: Maybe[str] = None
    rank_id: Maybe[int] = None
    allocation_id: Maybe[str] = None
    container_id: Maybe[str] = None


class TrialLogRecord(LogRecord):
    trial_id: int


class TaskLogRecord(LogRecord):
    task_id: str


class LogFields(Answer):
    """The values that filters can currently use."""

    agent_ids: list[str]
    container_ids: list[str]
    rank_ids: Annotated[list[int], Field(description="-1: none")]
    sources: list[str]
    stdtypes: list[str]
    allocation_ids: list[str]


class Encoder:
    """Turns lines of one task into NDJSON. `about` are fields of every record, such as the trial's id."""

    def __init__(self, task_id: str, about: dict[str, Any]) -> None:
        self._task_id = task_id
        self._about = about
        #: member's row id -> (allocation id, run key)
        self._runs: dict[int, tuple[str, str]] = {}

    def ndjson(self, lines: Sequence[LogLine]) -> bytes:
        """`{"result": record}` per line. Reads the database when a run appears that it has not met yet."""
        if any(line.member is not None and line.member not in self._runs for line in lines):
            members = Member.objects.filter(allocation__task_id=self._task_id)
            self._runs = {member.pk: (member.allocation_id, member.run_key) for member in members}
        return b"".join(
            json.dumps({"result": self.record(line)}, separators=(",", ":")).encode() + b"\n"
            for line in lines
        )

    def record(self, line: LogLine) -> dict[str, Any]:
        text, at = shown(line.text), _timestamp(line.time)
        level = line.level or Level.UNSPECIFIED.name
        record: dict[str, Any] = {
            **self._about,
            "id": str(line.number),
            "timestamp": at,
            "level": Level[level].determined,
            "message": flat(line, text, at),
            "log": text,
            "source": _source(line.stream),
            "stdtype": _stdtype(line.stream),
        }
        if line.cut:  # ours: the next record of this rank and stream continues the same line
            record["continues"] = True
        if line.host:
            record["agentId"] = line.host
        if line.rank is not None:
            record["rankId"] = line.rank
        run = self._runs.get(line.member) if line.member is not None else None
        if run is not None:
            record["allocationId"], record["containerId"] = run
        return record


def _source(stream: str) -> str:
    return SERVER_SOURCE if stream == SERVER else TASK_SOURCE


def _stdtype(stream: str) -> str:
    return "stderr" if stream == STDERR else "stdout"


def flat(line: LogLine, text: str, at: str) -> str:
    """The one-line form that command lines print: `[time] host [rank=N] || LEVEL: text`."""
    rank = f"[rank={line.rank}] " if line.rank is not None else ""
    level = f"{line.level}: " if line.level and not text.startswith(f"{line.level}:") else ""
    return f"[{at}] {line.host or 'server'} {rank}|| {level}{text}\n"


def _timestamp(seconds: float) -> str:
    try:
        value = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # a host whose clock is out of this world
        value = datetime.fromtimestamp(0, UTC)
    return time_text(value)


def fields(task_id: str) -> LogFields:
    """What a filter may choose from by now: hosts, runs, ranks (-1: none), sources, streams."""
    streams = read.streams(task_id)
    seen = list(RankSeen.objects.filter(task_id=task_id).values_list("rank", "host"))
    members = Member.objects.filter(allocation__task_id=task_id).order_by("pk")
    return LogFields(
        agent_ids=sorted({host for _, host in seen}),
        container_ids=[member.run_key for member in members],
        rank_ids=sorted({rank for rank, _ in seen}),
        sources=sorted({_source(stream) for stream in streams}),
        stdtypes=sorted({_stdtype(stream) for stream in streams}),
        allocation_ids=list(dict.fromkeys(member.allocation_id for member in members)),
    )


@async_view("GET", Right.READ | Right.RUN, answer=JsonLines(TrialLogRecord))
async def trial_logs(request: HttpRequest, who: Principal, trial_id: int) -> HttpResponseBase:
    """Lines of a trial's log, of all its attempts, one record per line."""
    task_id = await reading(task_of_trial, who, trial_id)
    return await _lines(request, task_id, {"trialId": trial_id})


@async_view("GET", Right.READ | Right.RUN, answer=JsonLines(TaskLogRecord))
async def task_logs(request: HttpRequest, who: Principal, task_id: str) -> HttpResponseBase:
    """Lines of a task's log, one record per line."""
    return await _lines(request, await reading(own_task, who, task_id), {"taskId": task_id})


@async_view("GET", Right.READ | Right.RUN, answer=JsonLines(LogFields))
async def trial_logs_fields(request: HttpRequest, who: Principal, trial_id: int) -> HttpResponseBase:
    """The values that filters of a trial's log can use; with `follow`, again every 5 s until the end."""
    return _fields(request, await reading(task_of_trial, who, trial_id))


@async_view("GET", Right.READ | Right.RUN, answer=JsonLines(LogFields))
async def task_logs_fields(request: HttpRequest, who: Principal, task_id: str) -> HttpResponseBase:
    """The values that filters of a task's log can use; with `follow`, again every 5 s until the end."""
    return _fields(request, await reading(own_task, who, task_id))


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


def _fields(request: HttpRequest, task_id: str) -> HttpResponseBase:
    follow = fields_query(request.GET)

    async def parts() -> AsyncIterator[bytes]:
        nudge = asyncio.Event()
        with tails().following(task_id, nudge) as tail:
            while True:
                answer = await reading(fields, task_id)
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
