"""One look for all: what each watched task's log has come to, read once per process and task, not per viewer.

The newest lines of a task are decoded once per process and encoded once per distinct filter. They are held as runs.
A cursor `number` stands behind that line; what is held covers the lines n with `begin` < n <= `end`. The viewer in
front makes the next run be read, the others find it here; who is further back than `begin` reads the database by
himself.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from django.db import Error

from events.wakeups import LOOK_AGAIN_SECONDS, wakeups
from jobs.models import Task
from jobs.states import TaskState
from logs import read, store
from logs.filters import Filters
from logs.lines import LogLine
from logs.rank_status import RankNow, RankStatus, ranks_of
from logs.runs import LINES_PER_RUN, LineRun, Piece, encode, read_encoded, read_runs
from webui.waiting.threads import catching_up, reading

#: A flood announces each of its batches: lines are gathered for so long, longer for many viewers, before a look.
GATHER_SECONDS_MIN, GATHER_SECONDS_MAX = 0.01, 0.05
GATHER_SECONDS_PER_VIEWER = 0.0004
RANKS_SECONDS = 1.0
#: What all watched tasks together may hold of their newest lines, and what one may.
RECENT_BYTES, RECENT_BYTES_PER_TASK = 48 * 1024**2, 8 * 1024**2
#: Who is at most so far behind when nothing is held begins here; others catch up first.
NEAR_LINES = 5000
#: Different filters whose rows are kept with a run. More are encoded for each viewer.
FILTERS_PER_RUN = 16

log = logging.getLogger(__name__)


class TailLook(NamedTuple):
    """What one look at the database has found; `ranks` is None where it did not ask for them."""

    newest: int
    ended: bool
    ranks: list[RankNow] | None
    runs: Sequence[LineRun]
    pieces: Sequence[dict[Filters, Piece]]


class Recent:
    """`most_bytes` says how much may be held just now."""

    def __init__(self, task_id: str, most_bytes: Callable[[], int]) -> None:
        self.task_id = task_id
        self.begin = self.end = -1
        #: the cursor of the foremost one who waits for more lines
        self.awaited: int | None = None
        self.bytes = 0
        self._most_bytes = most_bytes
        self._runs: deque[LineRun] = deque()
        self._reader: asyncio.Task[None] | None = None

    async def behind(self, number: int, newest: int) -> list[LineRun] | None:
        """The runs that hold what follows `number`, oldest first; None: read the database, they lie too far back.

        With none for the time being, the next look of the process reads them. Raises django.db.Error.
        """
        if number >= newest:
            if number in {newest, self.end}:
                self.awaited = max(number, self.awaited or 0)
            return []
        if not self.begin <= number < self.end:
            if number != self.end and (number < self.begin or newest - number > NEAR_LINES):
                return None
            await self._read_on(number)
        found = []
        for run in reversed(self._runs):
            if run.upto > number:
                found.append(run)
            if run.after <= number:
                return found[::-1]
        return None

    def take(self, runs: Sequence[LineRun], *, pieces: Sequence[dict[Filters, Piece]] = ()) -> None:
        """Hold runs that were read, unless they are held already; a run that joins nothing starts again."""
        for number, run in enumerate(runs):
            if self.begin <= run.after < self.end:
                continue
            if run.after != self.end:
                self._runs.clear()
                self.begin, self.bytes = run.after, 0
            for filters, piece in pieces[number].items() if pieces else ():
                run.pieces[filters] = _done(piece)
                run.bytes += sys.getsizeof(piece.text)
            self._runs.append(run)
            self.end = run.upto
            self.bytes += run.bytes
        self._trim()

    def in_use(self) -> list[Filters]:
        """The quick filters of those who take the newest runs: they will want the next one, too."""
        asked = {filters for run in itertools.islice(reversed(self._runs), 2) for filters in run.asked}
        return [filters for filters in asked if not filters.pattern][:FILTERS_PER_RUN]

    async def piece(self, run: LineRun, number: int, filters: Filters) -> Piece:
        """The rows of the run behind `number` that the filters leave. Raises Refusal."""
        if len(run.asked) < FILTERS_PER_RUN:  # in a quiet log a run stays, whatever viewers try on it
            run.asked.add(filters)
        if number > run.after or (filters not in run.pieces and len(run.pieces) >= FILTERS_PER_RUN):
            return await _encode(run.behind(number), filters)
        if filters not in run.pieces:
            run.pieces[filters] = asyncio.ensure_future(_encode(run.lines, filters))
            run.pieces[filters].add_done_callback(lambda piece: self._weigh(run, piece))
        return await asyncio.shield(run.pieces[filters])

    def _weigh(self, run: LineRun, piece: asyncio.Future[Piece]) -> None:
        if piece.cancelled() or piece.exception() is not None:
            return
        more = sys.getsizeof(piece.result().text)
        run.bytes += more
        if run.after >= self.begin:
            self.bytes += more
            self._trim()

    def _trim(self) -> None:
        while len(self._runs) > 1 and self.bytes > self._most_bytes():
            gone = self._runs.popleft()
            self.begin = gone.upto
            self.bytes -= gone.bytes

    async def _read_on(self, number: int) -> None:
        """Read what follows; everybody who comes meanwhile waits for the same read."""
        if self._reader is None or self._reader.done():
            self._reader = asyncio.get_running_loop().create_task(self._read(number))
        await asyncio.shield(self._reader)

    async def _read(self, number: int) -> None:
        self.take(await reading(read_runs, self.task_id, number, self._most_bytes() // 2))


async def _encode(lines: list[LogLine], filters: Filters) -> Piece:
    # a pattern may take long, and then only those wait for it who search with one
    run = catching_up if filters.pattern else reading
    return await run(encode, lines, filters)


def _done(piece: Piece) -> asyncio.Future[Piece]:
    future: asyncio.Future[Piece] = asyncio.get_running_loop().create_future()
    future.set_result(piece)
    return future


class Tail:
    """The end of one task's log. `looked_at` is None until the first good look, `exists` False without a task."""

    def __init__(self, task_id: str, most_bytes: Callable[[], int]) -> None:
        self.task_id = task_id
        self.exists = True
        self.newest = 0
        self.ended = False
        self.status = RankStatus()
        self.recent = Recent(task_id, most_bytes)
        self.looked_at: float | None = None
        self._most_bytes = most_bytes
        self._ranks_at = 0.0
        self._nudges: dict[asyncio.Event, bool] = {}  # -> whether news of ranks are wanted, too

    def join(self, nudge: asyncio.Event, *, with_ranks: bool) -> None:
        self._nudges[nudge] = with_ranks

    def leave(self, nudge: asyncio.Event) -> bool:
        """True when nobody follows any more."""
        del self._nudges[nudge]
        return not self._nudges

    async def follow(self) -> None:
        """Look at each wake-up and once a second, for as long as the task of this coroutine lives."""
        with wakeups().watch(f"log:{self.task_id}", f"task:{self.task_id}") as watch:
            while True:
                try:
                    await self._look()
                except Error as error:  # viewers see how old their news is; the next look may succeed
                    log.info("cannot read the log of %s: %s", self.task_id, error)
                except Exception:  # nobody else would look again
                    log.exception("reading the log of %s failed", self.task_id)
                gather = GATHER_SECONDS_MIN + GATHER_SECONDS_PER_VIEWER * len(self._nudges)
                await asyncio.sleep(min(GATHER_SECONDS_MAX, gather))
                await watch.wait(LOOK_AGAIN_SECONDS)

    async def next_lines(self, after: int, filters: Filters, limit: int = LINES_PER_RUN) -> read.LogPage:
        """The page behind line `after`, as read.forward has it, from what the process has read anyway.

        `limit` bounds the lines looked at. For followers: who is far behind reads the database here, at most a
        few at a time. Raises django.db.Error and Refusal.
        """
        runs = None if filters.allocations else await self.recent.behind(after, self.newest)
        if runs is None:
            return await catching_up(read.forward, self.task_id, after, filters, limit)
        lines = []
        upto = after
        for run in runs:
            lines += run.behind(after)
            upto = run.upto
            if len(lines) >= limit:
                break
        if len(lines) > limit:
            lines, upto = lines[:limit], lines[limit - 1].number
        select = catching_up if filters.pattern else reading
        wanted = await select(filters.select, lines)
        return read.LogPage(wanted, upto, upto >= self.newest)

    async def _look(self) -> None:
        now = time.monotonic()
        with_ranks = any(self._nudges.values()) and now - self._ranks_at >= RANKS_SECONDS
        awaited, self.recent.awaited = self.recent.awaited, None
        found = await reading(self._read, with_ranks, self.ended, awaited, self.recent.in_use())
        before = (self.exists, self.newest, self.ended, self.looked_at is None)
        if found is None:
            self.exists = False
        else:
            self.newest, self.ended = found.newest, found.ended
            self.recent.take(found.runs, pieces=found.pieces)
            if found.ranks is not None:
                self.status.update(found.ranks)
                self._ranks_at = now
        self.looked_at = time.monotonic()
        if with_ranks or before != (self.exists, self.newest, self.ended, False):
            for nudge in self._nudges:
                nudge.set()

    def _read(
        self, with_ranks: bool, ended_before: bool, awaited: int | None, wanted: Sequence[Filters]
    ) -> TailLook | None:
        state = Task.objects.filter(pk=self.task_id).values_list("state", flat=True).first()
        if state is None:
            return None
        ended = state == TaskState.ENDED
        if ended and not ended_before:
            store.merge_events(self.task_id)  # so that the last line says how it ended
        newest = read.last_number(self.task_id)
        ranks = ranks_of(self.task_id) if with_ranks else None
        runs: Sequence[LineRun] = ()
        pieces: Sequence[dict[Filters, Piece]] = ()
        if awaited is not None and awaited < newest:
            runs, pieces = read_encoded(self.task_id, awaited, self._most_bytes() // 2, wanted)
        return TailLook(newest, ended, ranks, runs, pieces)


class Tails:
    def __init__(self) -> None:
        self._tails: dict[str, tuple[Tail, asyncio.Task[None]]] = {}

    @contextmanager
    def following(self, task_id: str, nudge: asyncio.Event, *, with_ranks: bool = False) -> Iterator[Tail]:
        """The task's tail; `nudge` is set whenever it has grown, at its first look, and on demand with each look at
        its ranks, which is each second."""
        if task_id not in self._tails or self._tails[task_id][1].done():
            tail = Tail(task_id, self._most_bytes)
            self._tails[task_id] = (tail, asyncio.get_running_loop().create_task(tail.follow()))
        tail, follower = self._tails[task_id]
        tail.join(nudge, with_ranks=with_ranks)
        try:
            yield tail
        finally:
            if tail.leave(nudge):
                follower.cancel()
                if self._tails.get(task_id, (None,))[0] is tail:
                    del self._tails[task_id]

    def _most_bytes(self) -> int:
        return min(RECENT_BYTES_PER_TASK, RECENT_BYTES // max(1, len(self._tails)))


_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Tails] = weakref.WeakKeyDictionary()


def tails() -> Tails:
    return _by_loop.setdefault(asyncio.get_running_loop(), Tails())
