"""Reads of a task's log from a cursor, with filters. Chunks that cannot match are skipped in the database.

A cursor is a line number, never a chunk: cold chunks may be merged between two statements of one read, and
each statement sees every line once, in the old chunks or in the new one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, repeat
from typing import Any, NamedTuple

import psycopg
from django.db import connection
from django.db.models import F, QuerySet

from jobs.models import Member
from logs.chunks import LARGEST_RANK, unpack
from logs.contents import Contents, Piece
from logs.filters import Clock, Filters
from logs.lines import Line, mask_of_streams
from logs.models import Chunk, TaskLog

__all__ = ["Filters", "Page", "backward", "forward", "last_number", "number_at", "pieces", "tail"]

#: A read with a rare match gives up after this time and says how far it came, so that it can go on.
SCAN_SECONDS = 0.5
#: A regular expression, which takes a hundred times as long as a text, gives up in the midst of what was fetched too.
PATTERN_SCAN_SECONDS = 1.5
#: Chunks fetched at once: few at first, since a page is often full soon, then ever more, within bounded memory.
CHUNKS_PER_FETCH = 2, 8, 64
_ROWS_PER_PART = 8
_BEYOND_ALL = 2**62
_unpackers = ThreadPoolExecutor(2, "unpack")

#: First number, last number and data of a chunk.
Row = tuple[int, int, bytes]
#: First number, last number and contents; no contents when the text that is sought cannot be in it.
Opened = tuple[int, int, Contents | None]


class _Patience:
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


class Page(NamedTuple):
    """Matching lines in ascending order, and the cursor to go on from.

    Forward, every line up to and including `upto` was looked at; backward, every line from `upto` on. `done`
    says that nothing lies beyond at the time of reading.
    """

    lines: list[Line]
    upto: int
    done: bool


def last_number(task_id: str) -> int:
    """The number of the newest line, 0 when there is none."""
    following = TaskLog.objects.filter(pk=task_id).values_list("next_line", flat=True).first()
    return following - 1 if following else 0


def number_at(task_id: str, time: float) -> int:
    """The number of the first line at or after this host time (epoch seconds); behind the newest when none is."""
    newest = last_number(task_id)
    chunks = Chunk.objects.filter(task_id=task_id, last_time__gte=time).order_by("first_line")
    row = chunks.values_list("first_line", "data").first()
    number = Contents(unpack(row[1]), row[0]).number_at(time) if row else None
    return number or newest + 1


def forward(task_id: str, after: int = 0, filters: Filters | None = None, limit: int = 1000) -> Page:
    """Up to `limit` matching lines behind line `after`. Raises filters.PatternTooSlow."""
    filters = _resolved(filters)
    newest = last_number(task_id)
    found: list[Line] = []
    upto, patience = after, _Patience(SCAN_SECONDS)
    for first, last, contents in _behind(task_id, after, filters, patience):
        left = limit - len(found)
        indices = contents.indices(filters, upto + 1 - first, last + 1 - first, Clock()) if contents else []
        found += contents.lines(indices[:left]) if contents and indices else []
        if len(found) >= limit:
            upto = found[-1].number if len(indices) > left else last
            return Page(found, upto, upto >= newest)
        upto = last
        if not patience.is_left_for(filters):
            break
    if patience.ran_out:
        return Page(found, upto, upto >= newest)
    return Page(found, max(upto, newest), True)


def backward(
    task_id: str,
    before: int | None = None,
    filters: Filters | None = None,
    limit: int = 1000,
    *,
    seconds: float = SCAN_SECONDS,
) -> Page:
    """The last `limit` matching lines before line `before` (None: the end), or fewer where it takes longer.

    Raises filters.PatternTooSlow.
    """
    filters = _resolved(filters)
    upto = before if before is not None else last_number(task_id) + 1
    parts: list[list[Line]] = []
    left, patience = limit, _Patience(seconds)
    for first, last, contents in _before(task_id, before, filters, patience):
        stop = last + 1 if before is None else min(last + 1, before)
        indices = contents.indices(filters, 0, stop - first, Clock()) if contents else []
        before = upto = first
        if contents and indices:
            parts.append(contents.lines(indices[-left:]))
            left -= len(parts[-1])
        if left <= 0:
            upto = parts[-1][0].number if len(indices) > len(parts[-1]) else first
            return Page(_joined(parts), upto, upto <= 1)
        if not patience.is_left_for(filters):
            break
    if patience.ran_out:
        return Page(_joined(parts), upto, upto <= 1)
    return Page(_joined(parts), min(upto, 1), True)


def _joined(parts: list[list[Line]]) -> list[Line]:
    return [line for part in reversed(parts) for line in part]


def tail(task_id: str, filters: Filters, count: int, *, until: float = math.inf) -> list[Line]:
    """The last `count` matching lines, however far back they are; those found by `until` of the monotonic clock."""
    parts: list[list[Line]] = []
    before: int | None = None
    left = count
    while left > 0:
        seconds = min(SCAN_SECONDS, until - time.monotonic())
        page = backward(task_id, before, filters, left, seconds=seconds)
        parts.append(page.lines)
        left -= len(page.lines)
        before = page.upto
        if page.done or time.monotonic() > until:
            break
    return _joined(parts)


def pieces(
    task_id: str, filters: Filters | None = None, after: int = 0, upto: int | None = None
) -> Iterator[list[Piece]]:
    """The exact bytes that were written, lines behind `after` up to `upto` (None: the newest), without their lines.

    In order, a list for each chunk that is looked at, empty where nothing of it is wanted. Raises
    filters.PatternTooSlow.
    """
    filters = _resolved(filters)
    end = last_number(task_id) if upto is None else upto
    for first, last, contents in _behind(task_id, after, filters):
        if first > end:
            return
        start, stop = after + 1 - first, end + 1 - first
        yield [*contents.pieces(filters, start, stop, Clock())] if contents else []
        after = last


def _resolved(filters: Filters | None) -> Filters:
    """The filters with the members of their allocations."""
    if filters is None or not filters.allocations:
        return filters or Filters()
    members = Member.objects.filter(allocation_id__in=filters.allocations)
    return replace(filters, members=frozenset(members.values_list("pk", flat=True)))


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


def _behind(
    task_id: str, after: int, filters: Filters, patience: _Patience | None = None
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


def _before(task_id: str, before: int | None, filters: Filters, patience: _Patience) -> Iterator[Opened]:
    """The same for lines before `before` (None: the end), newest chunk first."""
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
    fetch: Callable[[int, Row | None], list[Row]], filters: Filters, patience: _Patience | None
) -> Iterator[Opened]:
    """All chunks that `fetch(how many, the last one so far)` gives. A long search fetches while others unpack."""
    sizes = chain(CHUNKS_PER_FETCH, repeat(CHUNKS_PER_FETCH[-1]))
    size = next(sizes)
    rows = fetch(size, None)
    while rows:
        many = len(rows) > CHUNKS_PER_FETCH[0]
        opened = _opened_by_others(rows, filters) if many else (_opened(row, filters) for row in rows)
        is_last = len(rows) < size or (patience is not None and not patience.is_left())
        size = next(sizes)
        following = fetch(size, rows[-1]) if many and not is_last else None
        yield from opened
        if is_last:
            return
        rows = fetch(size, rows[-1]) if following is None else following


def _opened(row: Row, filters: Filters) -> Opened:
    first, last, data = row
    contents = Contents(unpack(data), first)
    return first, last, contents if contents.may_match(filters) else None


def _opened_by_others(rows: Sequence[Row], filters: Filters) -> Iterator[Opened]:
    """The same in threads, which unpack at the same time: zstd lets go of the interpreter."""

    def some(part: Sequence[Row]) -> list[Opened]:
        return [_opened(row, filters) for row in part]

    parts = [rows[start : start + _ROWS_PER_PART] for start in range(0, len(rows), _ROWS_PER_PART)]
    return chain.from_iterable(_unpackers.map(some, parts))


def _fetched(sql: str, parameters: Sequence[Any]) -> list[Row]:
    """First number, last number and data, in binary: Django would have the data sent and parsed as hex."""
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        whole = psycopg.ClientCursor(connection.connection).mogrify(sql, parameters)
        return cursor.execute(whole, binary=True).fetchall()
