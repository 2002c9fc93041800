"""`/ws/tasks/<task id>/logs`: a viewer is a cursor with filters of its own (law 5).

The client sends {"after", "ranks", "levels", "hosts", "streams", "search", "regex", "generation"} whenever
its wishes change. Frames to it:

- {"lines": [[number, time, rank, stream, level, host, text]…], "upto", "last", "generation"}: at most 1,000
  lines and about 1 MiB. `upto` is the cursor, `last` says that the task has ended and nothing follows.
- {"ranks": [{"rank", "age", "host", "lines"}…], "upto", "newest", "last", "age", "generation"}: each second;
  ages in seconds. A client that hears nothing for several seconds shows stale data.
- {"error": sentence, "generation"}

A client that sends {"ack": number} after each frame of lines is at most WINDOW frames ahead of what it has
shown; for others the socket's own buffer is the bound.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, NamedTuple

from django.db import Error

from logs import read
from logs.filters import Filters, PatternTooSlow
from logs.lines import Line, shown
from webui.live.requests import Ack, BadRequest, View, parse_frame
from webui.live.sockets import NOT_FOUND, Closed, Socket
from webui.live.tails import Tail, tails
from webui.live.threads import reading

LINES_PER_FRAME = 1000
FRAME_CHARACTERS = 1024 * 1024
WINDOW = 4
STATUS_SECONDS = 1.0


class Batch(NamedTuple):
    lines: list[list[Any]]
    upto: int
    done: bool


class LogViewer(Socket):
    """One open log page."""

    async def connect(self) -> None:
        self._view: View | None = None
        self._error: str | None = None
        self._cursor = 0
        self._unacked = 0
        self._does_ack = False
        self._said_last = False
        self._status_at = 0.0
        self._nudge = asyncio.Event()
        await super().connect()

    def hear(self, text: str) -> None:
        try:
            frame = parse_frame(text)
        except BadRequest as error:
            self._error = str(error)
        else:
            if isinstance(frame, Ack):
                self._does_ack, self._unacked = True, max(0, self._unacked - 1)
            else:
                self._view, self._cursor = frame, frame.after
                self._unacked, self._said_last, self._error = 0, False, None
        self._nudge.set()

    async def serve(self) -> None:
        with tails().following(self.scope["url_route"]["kwargs"]["task_id"], self._nudge) as tail:
            while True:
                self._nudge.clear()
                await self.check_login()
                if not tail.exists:
                    raise Closed(NOT_FOUND)
                more = await self._send_lines(tail)
                await self._send_error()
                await self._send_status(tail)
                if not more:
                    await self._pause()

    async def _pause(self) -> None:
        due = self._status_at + STATUS_SECONDS - time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, due)):
                await self._nudge.wait()
        except TimeoutError:
            pass

    async def _send_lines(self, tail: Tail) -> bool:
        """Send the next batch; True when there may be more at once."""
        view = self._view
        if view is None or (self._does_ack and self._unacked >= WINDOW) or tail.looked_at is None:
            return False
        if self._cursor >= tail.newest and (not tail.ended or self._said_last):
            return False
        try:
            batch = await reading(next_batch, tail.task_id, self._cursor, view.filters)
        except PatternTooSlow as error:
            self._view, self._error = None, str(error)
            return False
        except Error:  # the status frames stop with the looks, so the page shows it
            return False
        if view is not self._view:
            return True  # the wishes changed meanwhile
        self._cursor = max(self._cursor, batch.upto)
        is_last = tail.ended and batch.done and self._cursor >= tail.newest
        if batch.lines or is_last != self._said_last:
            self._said_last = is_last
            self._unacked += 1
            await self._say(lines=batch.lines, upto=self._cursor, last=is_last)
        return not batch.done

    async def _send_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            await self._say(error=error)

    async def _send_status(self, tail: Tail) -> None:
        now = time.monotonic()
        if tail.looked_at is None or now - self._status_at < STATUS_SECONDS:
            return
        self._status_at = now
        if now - tail.looked_at > 3 * STATUS_SECONDS:
            return  # nothing is known of the log just now; silence makes the page say so
        clock = time.time()
        ranks = [
            {
                "rank": rank.rank,
                "age": round(max(0.0, clock - rank.last_time), 1),
                "host": rank.host,
                "lines": rank.lines,
            }
            for rank in tail.ranks
        ]
        status = {"upto": self._cursor} if self._view else {}
        await self._say(
            ranks=ranks,
            newest=tail.newest,
            last=self._said_last,
            age=round(now - tail.looked_at, 1),
            **status,
        )

    async def _say(self, **frame: Any) -> None:
        if self._view is not None:
            frame["generation"] = self._view.generation
        await self.send(json.dumps(frame, ensure_ascii=False, separators=(",", ":")))


def next_batch(task_id: str, after: int, filters: Filters) -> Batch:
    """Lines for one frame. Raises PatternTooSlow."""
    page = read.forward(task_id, after, filters, LINES_PER_FRAME)
    rows: list[list[Any]] = []
    characters = 0
    for line in page.lines:
        rows.append(as_row(line))
        characters += len(line.text)
        if characters > FRAME_CHARACTERS:
            return Batch(rows, line.number, line.number >= page.upto and page.done)
    return Batch(rows, page.upto, page.done)


def as_row(line: Line) -> list[Any]:
    """A line as it goes to the browser."""
    return [line.number, line.time, line.rank, line.stream, line.level, line.host, shown(line.text)]
