"""The newest lines of one task: read and decoded once per process, encoded once per distinct filter.

Lines are held as runs. A cursor `number` stands behind that line; what is held covers the lines n with
`begin` < n <= `end`. The viewer in front makes the next run be read, the others find it here; who is further
back than `begin` reads the database by himself.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections import deque
from collections.abc import Callable, Sequence

from logs.filters import Filters
from logs.lines import LogLine
from logs.runs import LineRun, Piece, encode, read_runs
from webui.waiting.threads import catching_up, reading

#: Who is at most so far behind when nothing is held begins here; others catch up first.
NEAR_LINES = 5000
#: Different filters whose rows are kept with a run. More are encoded for each viewer.
FILTERS_PER_RUN = 16


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
        """Hold runs that were read, unless they are held already; a run that joins nothing begins anew."""
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
