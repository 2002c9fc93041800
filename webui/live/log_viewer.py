"""`/ws/tasks/<task id>/logs`: a viewer is a cursor with filters of its own (law 5).

The client sends {"after", "ranks", "levels", "hosts", "streams", "search", "regex", "generation"} whenever
its wishes change. Frames to it:

- {"lines": [[number, time, rank, stream, level, host, text]…], "upto", "last", "generation"}: at most 1,000
  lines and about 1 MiB. A line that the next one of its rank goes on with has `true` as its eighth value.
  `upto` is the cursor, `last` says that the task has ended and nothing follows. In a flood lines are gathered
  for at most 50 ms.
- {"ranks": [{"rank", "age", "host", "lines"}…], "whole", "upto", "newest", "last", "age", "generation"}: each
  second; ages in seconds, null before a rank's first line. Of a rank's pulse "step", "stepAge", "active" and
  "mark" (the sentence of one that its peers wait for) where they are known (logs.pulse). Where `whole` is
  false (only above 16 ranks) the frame names the ranks that changed since the frame before; the ages of the
  others have grown by the time between. The first frame after a request and every fifth one are whole. A
  client that hears nothing for several seconds shows stale data.
- {"error": sentence, "generation"}

A client that sends {"ack": number} after each frame of lines is at most WINDOW frames ahead of what it has
shown; for others the socket's own buffer is the bound. Whoever cannot keep up reads the database by himself,
a few such reads at a time, until he has caught up with what all share.
"""

from __future__ import annotations

import asyncio
import json
import time
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import Error

from accounts.refusals import Code, Refusal
from accounts.rights import Right
from logs import read
from logs.filters import Filters
from logs.levels import Level, parse
from logs.lines import STREAM_LETTERS
from logs.runs import LINES_PER_RUN, RUN_CHARACTERS, encode
from trainmaster import bounded_json
from webui.live.sockets import Socket
from webui.live.tails import Tail, tails
from webui.waiting.threads import catching_up

WINDOW = 4
#: Frames of lines that all viewers together may send in one turn of the event loop: about a millisecond.
FRAMES_PER_TURN = 8
#: Without a nudge: a lost one costs this.
PAUSE_SECONDS = 1.0
STALE_SECONDS = 3.0


@dataclass(frozen=True)
class Ack:
    """Lines up to this number have arrived."""

    upto: int


@dataclass(frozen=True)
class LogView:
    """Lines behind number `after` that the filters leave. `generation` is the viewer's own count of its requests."""

    after: int
    filters: Filters
    generation: Any


class Batch(NamedTuple):
    """Rows for one frame, as JSON joined by commas, and their number; `done` says that no more is known of."""

    text: str
    rows: int
    upto: int
    done: bool


class LogViewer(Socket):
    """One open log page."""

    rights = {"GET": Right.READ}

    async def connect(self) -> None:
        self._view: LogView | None = None
        self._error: str | None = None
        self._cursor = 0
        self._unacked = 0
        self._does_ack = False
        self._said_last = False
        self._status_version: int | None = None
        self._nudge = asyncio.Event()
        await super().connect()

    def hear(self, text: str) -> None:
        try:
            frame = parse_frame(text)
        except Refusal as error:
            self._error = str(error)
        else:
            if isinstance(frame, Ack):
                self._does_ack, self._unacked = True, max(0, self._unacked - 1)
            else:
                self._view, self._cursor = frame, frame.after
                self._unacked, self._said_last, self._error = 0, False, None
                self._status_version = None
        self._nudge.set()

    async def serve(self) -> None:
        task_id = self.scope["url_route"]["kwargs"]["task_id"]
        with tails().following(task_id, self._nudge, with_ranks=True) as tail:
            while True:
                self._nudge.clear()
                await self.check_login()
                if not tail.exists:
                    raise Refusal(f"There is no task {task_id}.", Code.NOT_FOUND)
                more = await self._send_lines(tail)
                await self._send_error()
                await self._send_status(tail)
                if not more:
                    await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(PAUSE_SECONDS):
                await self._nudge.wait()
        except TimeoutError:
            pass

    async def _send_lines(self, tail: Tail) -> bool:
        """Send the next batch; True when there may be more at once."""
        view = self._view
        if view is None or (self._does_ack and self._unacked >= WINDOW) or tail.looked_at is None:
            return False
        try:
            batch = await next_batch(tail, self._cursor, view.filters)
        except Refusal as error:
            if view is self._view:
                self._view, self._error = None, str(error)
            return False
        except Error:  # the status frames stop with the looks, so the page shows it
            return False
        if view is not self._view:
            return True  # the wishes changed meanwhile
        self._cursor = max(self._cursor, batch.upto)
        is_last = tail.ended and batch.done and self._cursor >= tail.newest
        if batch.rows or is_last != self._said_last:
            self._said_last = is_last
            self._unacked += 1
            await turn_of_loop()
            await self._say('"lines":[', batch.text, f'],"upto":{self._cursor},"last":{_json(is_last)}')
        return not batch.done

    async def _send_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            await self._say(f'"error":{_json(error)}')

    async def _send_status(self, tail: Tail) -> None:
        if tail.looked_at is None or self._status_version == tail.status.version or not tail.status.version:
            return
        age = time.monotonic() - tail.looked_at
        if age > STALE_SECONDS:
            return  # nothing is known of the log just now; silence makes the page say so
        ranks = tail.status.fields_since(self._status_version)
        self._status_version = tail.status.version
        cursor = f',"upto":{self._cursor}' if self._view else ""
        await self._say(
            f'{ranks},"newest":{tail.newest},"last":{_json(self._said_last)},"age":{age:.1f}{cursor}'
        )

    async def _say(self, *fields: str) -> None:
        generation = f',"generation":{_json(self._view.generation)}' if self._view else ""
        await self.send("".join(("{", *fields, generation, "}")))  # rows are long: they are copied once


async def next_batch(tail: Tail, after: int, filters: Filters) -> Batch:
    """Lines for one frame. Raises Refusal and django.db.Error."""
    runs = await tail.recent.behind(after, tail.newest)
    if runs is None:
        return await catching_up(own_batch, tail.task_id, after, filters)
    texts: list[str] = []
    rows = characters = 0
    upto = after
    for run in runs:
        piece = await tail.recent.piece(run, upto, filters)
        if rows and (rows + piece.rows > LINES_PER_RUN or characters + len(piece.text) > RUN_CHARACTERS):
            return Batch(",".join(texts), rows, upto, done=False)
        if piece.rows:
            texts.append(piece.text)
        rows, characters, upto = rows + piece.rows, characters + len(piece.text), run.upto
    return Batch(",".join(texts), rows, upto, upto >= tail.newest)


def own_batch(task_id: str, after: int, filters: Filters) -> Batch:
    """Read the lines of one frame for one viewer alone."""
    page = read.forward(task_id, after, filters, LINES_PER_RUN)
    lines, upto = page.lines, page.upto
    characters = 0
    for index, line in enumerate(lines, 1):
        characters += len(line.text)
        if characters > RUN_CHARACTERS and index < len(lines):
            lines, upto = lines[:index], line.number
            break
    piece = encode(lines, Filters())
    return Batch(piece.text, piece.rows, upto, page.done and upto == page.upto)


_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()


async def turn_of_loop() -> None:
    """Wait until it is one's turn to send lines: a hundred long frames in one turn of the event loop would keep
    requests waiting that want it only for a moment."""
    loop = asyncio.get_running_loop()
    turns = _turns.setdefault(loop, asyncio.Semaphore(FRAMES_PER_TURN))
    await turns.acquire()
    loop.call_soon(turns.release)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def parse_frame(text: str) -> Ack | LogView:
    """Read a frame of a viewer. Raises Refusal."""
    try:
        frame = bounded_json.loads(text)
    except ValueError as error:
        raise Refusal(f"The frame is not JSON: {error}.") from error
    if not isinstance(frame, dict):
        raise Refusal("The frame is not a JSON object.")
    if "ack" in frame:
        return Ack(_number(frame, "ack"))
    generation = frame.get("generation")
    if not isinstance(generation, int | str | None):
        raise Refusal("generation must be a number or text.")
    return LogView(_number(frame, "after"), _filters(frame), generation)


def _number(frame: dict[str, Any], name: str) -> int:
    value = frame.get(name, 0)
    if type(value) is not int or not 0 <= value < 2**62:
        raise Refusal(f"{name} is {value!r}; it must be the number of a line, or 0.")
    return value


def _filters(frame: dict[str, Any]) -> Filters:
    ranks = _list(frame, "ranks", int)
    if not all(-1 <= rank < 2**31 for rank in ranks):
        raise Refusal("ranks must be -1 (no rank) or greater.")
    hosts = _list(frame, "hosts", str)
    if not all(host.isprintable() for host in hosts):
        raise Refusal("hosts must be host names.")
    search = frame.get("search", "")
    if not isinstance(search, str):
        raise Refusal("search must be text.")
    try:
        levels: frozenset[Level] = frozenset(parse(level) for level in _list(frame, "levels", str))
        streams = frozenset(STREAM_LETTERS[name] for name in _list(frame, "streams", str))
        filters = Filters(
            ranks=frozenset(ranks),
            levels=levels,
            streams=streams,
            hosts=frozenset(hosts),
            after_time=_time(frame, "after_time"),
            before_time=_time(frame, "before_time"),
        )
        return filters.searching(search, is_regex=frame.get("regex") is True)
    except KeyError as error:
        raise Refusal(f"The stream {error} is unknown; allowed: stdout, stderr, server.") from error


def _list(frame: dict[str, Any], name: str, kind: type) -> list[Any]:
    values = frame.get(name) or []
    if (
        not isinstance(values, list)
        or len(values) > 10_000
        or not all(type(value) is kind for value in values)
    ):
        raise Refusal(f"{name} must be a list of {'numbers' if kind is int else 'texts'}.")
    return values


def _time(frame: dict[str, Any], name: str) -> float | None:
    value = frame.get(name)
    if value is not None and type(value) not in {int, float}:
        raise Refusal(f"{name} is {value!r}; it must be seconds since 1970.")
    return value
