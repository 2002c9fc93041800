"""The chunks of a task that may hold wanted lines, in turn: fetched in growing numbers, unpacked by threads.

A cursor is a line number, never a chunk: cold chunks may be merged between two statements of one read, and
each statement sees every line once, in the old chunks or in the new one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from typing import Any

import psycopg
from django.db import connection
from django.db.models import F, QuerySet

from logs.chunks import LARGEST_RANK, unpack
from logs.contents import Contents
from logs.filters import Filters
from logs.lines import mask_of_streams
from logs.models import Chunk

#: A regular expression, which takes a hundred times as long as a text, gives up in the midst of what was fetched too.
PATTERN_SCAN_SECONDS = 1.5
#: Chunks fetched at once: few at first, since a page is often full soon, then ever more, within bounded memory.
CHUNKS_PER_FETCH = 2, 8, 32
#: A thread's share of them: with fewer, the threads wait for each other more often.
_CHUNKS_PER_PART = 16
_BEYOND_ALL = 2**62
_unpackers = ThreadPoolExecutor(2, "unpack")

#: First number, last number and data of a chunk.
Row = tuple[int, int, bytes]
#: First number, last number and contents; no contents when the text that is sought cannot be in it.
Opened = tuple[int, int, Contents | None]


class Patience:
    """How long a read goes on fetching chunks. What is fetched is looked at to its end, unless a pattern is slow."""

    def __init__(self, seconds: float) -> None:
        self._begin = time.monotonic()
        self._seconds = seconds
        self.ran_out = False

    def is_left(self) -> bool:
        self.ran_out = self.ran_out or time.monotonic() > self._begin + self._seconds
        return not self.ran_out

    def is_left_for(self, filters: Filters) -> bool:
        """Asked after each chunk."""
        if filters.pattern and time.monotonic() > self._begin + PATTERN_SCAN_SECONDS:
            self.ran_out = True
            return False
        return True


def _chunks(task_id: str, filters: Filters) -> QuerySet[Chunk]:
    """Chunks that may hold a matching line."""
    chunks = Chunk.objects.filter(task_id=task_id)
    if filters.ranks:  # a number that the column cannot hold, as training code may report one, is nobody's
        chunks = chunks.filter(ranks__overlap=sorted(r for r in filters.ranks if r <= LARGEST_RANK))
    if filters.levels:
        chunks = chunks.annotate(wanted=F("kinds").bitand(filters.level_mask)).filter(wanted__gt=0)
    if filters.hosts:
        chunks = chunks.filter(hosts__overlap=sorted(filters.hosts))
    if filters.members is not None:
        chunks = chunks.filter(members__overlap=sorted(filters.members))
    if filters.streams:
        chunks = chunks.annotate(spoken=F("kinds").bitand(mask_of_streams(filters.streams)))
        chunks = chunks.filter(spoken__gt=0)
    if filters.after_time is not None:
        chunks = chunks.filter(last_time__gt=filters.after_time)
    if filters.before_time is not None:
        chunks = chunks.filter(first_time__lte=filters.before_time)
    return chunks


_BEHIND = """
SELECT first_line, last_line, data FROM ({wanted}) chunk
WHERE last_line > %s AND first_line >= COALESCE((
  SELECT holding.first_line FROM logs_chunk holding WHERE holding.task_id = %s AND holding.first_line <= %s
  ORDER BY holding.first_line DESC LIMIT 1), 0)
ORDER BY first_line LIMIT %s
"""
_BEFORE = """
SELECT first_line, last_line, data FROM ({wanted}) chunk WHERE first_line < %s ORDER BY first_line DESC LIMIT %s
"""


def chunks_behind(
    task_id: str, after: int, filters: Filters, patience: Patience | None = None
) -> Iterator[Opened]:
    """The chunks with lines behind `after`, in order.

    A chunk that was merged meanwhile comes with lines that were given already: the caller takes those behind the
    last number that it was given.
    """
    wanted, parameters = _wanted(task_id, filters)

    def fetch(size: int, last: Row | None) -> list[Row]:
        cursor = last[1] if last else after
        return _fetched(_BEHIND.format(wanted=wanted), [*parameters, cursor, task_id, cursor + 1, size])

    return _in_turn(fetch, filters, patience)


def chunks_before(task_id: str, before: int | None, filters: Filters, patience: Patience) -> Iterator[Opened]:
    """Yield the chunks with lines before `before` (None: the end), newest first."""
    wanted, parameters = _wanted(task_id, filters)

    def fetch(size: int, last: Row | None) -> list[Row]:
        cursor = last[0] if last else _BEYOND_ALL if before is None else before
        return _fetched(_BEFORE.format(wanted=wanted), [*parameters, cursor, size])

    return _in_turn(fetch, filters, patience)


def _wanted(task_id: str, filters: Filters) -> tuple[str, Sequence[Any]]:
    """SQL and parameters of the chunks that may hold a matching line: made once, where a search fetches often."""
    chunks = _chunks(task_id, filters).order_by().values("first_line", "last_line", "data")
    sql, parameters = chunks.query.sql_with_params()
    return sql, parameters


def _in_turn(
    fetch: Callable[[int, Row | None], list[Row]], filters: Filters, patience: Patience | None
) -> Iterator[Opened]:
    """All chunks that `fetch(how many, the last one so far)` gives.

    A long search is one fetch ahead: threads unpack those while the caller takes the ones before.
    """
    rows: list[Row] = []
    ahead: Iterator[Opened] = iter(())
    for size in chain(CHUNKS_PER_FETCH, repeat(CHUNKS_PER_FETCH[-1])):
        rows = fetch(size, rows[-1] if rows else None)
        is_last = len(rows) < size or (patience is not None and not patience.is_left())
        is_worth_threads = len(rows) > CHUNKS_PER_FETCH[0]
        opened = _opened_by_others(rows, filters) if is_worth_threads else _opened(rows, filters)
        yield from ahead
        ahead = opened
        if is_last or size < CHUNKS_PER_FETCH[-1]:
            yield from ahead  # nothing is left of it then
        if is_last:
            return


def _opened(rows: Sequence[Row], filters: Filters) -> Iterator[Opened]:
    for first, last, data in rows:
        contents = Contents(unpack(data), first)
        yield first, last, contents if contents.may_match(filters) else None


def _opened_by_others(rows: Sequence[Row], filters: Filters) -> Iterator[Opened]:
    """Open chunks in threads that start immediately: unpacking and searching release the interpreter."""
    parts = [rows[start : start + _CHUNKS_PER_PART] for start in range(0, len(rows), _CHUNKS_PER_PART)]
    return chain.from_iterable(_unpackers.map(lambda part: list(_opened(part, filters)), parts))


def _fetched(sql: str, parameters: Sequence[Any]) -> list[Row]:
    """First number, last number and data, in binary: Django would have the data sent and parsed as hex."""
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        whole = psycopg.ClientCursor(connection.connection).mogrify(sql, parameters)
        return cursor.execute(whole, binary=True).fetchall()
