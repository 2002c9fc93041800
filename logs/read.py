"""Reads of a task's log from a cursor, with filters. Chunks that cannot match are skipped in the database."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from django.db.models import F, Q, QuerySet

from logs.chunks import decode, unpack
from logs.filters import Filters
from logs.lines import Line, raw
from logs.models import Chunk, TaskLog

__all__ = ["Filters", "Page", "backward", "download", "forward", "last_number", "tail"]

#: A read with a rare match gives up after this time and says how far it came, so that it can go on.
SCAN_SECONDS = 0.5
#: Chunks fetched at once: one round trip for a page, and bounded memory.
CHUNKS_PER_FETCH = 8

_COLUMNS = ("first_line", "last_line", "host", "member_id", "data")


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


def forward(task_id: str, after: int = 0, filters: Filters | None = None, limit: int = 1000) -> Page:
    """Up to `limit` matching lines behind line `after`. Raises filters.PatternTooSlow."""
    filters = filters or Filters()
    newest = last_number(task_id)
    chunks = _chunks(task_id, filters).filter(last_line__gt=after).order_by("first_line")
    found: list[Line] = []
    upto, deadline = after, time.monotonic() + SCAN_SECONDS
    for first, last, lines in _decoded(chunks, filters, "first_line__gt"):
        found += filters.select(lines[max(0, after + 1 - first) :])
        if len(found) >= limit:
            upto = last if len(found) == limit else found[limit - 1].number
            return Page(found[:limit], upto, upto >= newest)
        upto = last
        if time.monotonic() > deadline and last < newest:
            return Page(found, upto, False)
    return Page(found, max(upto, newest), True)


def backward(
    task_id: str, before: int | None = None, filters: Filters | None = None, limit: int = 1000
) -> Page:
    """The last `limit` matching lines before line `before` (None: the end). Raises filters.PatternTooSlow."""
    filters = filters or Filters()
    chunks = _chunks(task_id, filters).order_by("-first_line")
    if before is not None:
        chunks = chunks.filter(first_line__lt=before)
    found: list[Line] = []
    upto = before if before is not None else last_number(task_id) + 1
    deadline = time.monotonic() + SCAN_SECONDS
    for first, _, lines in _decoded(chunks, filters, "first_line__lt"):
        found[:0] = filters.select(lines if before is None else lines[: max(0, before - first)])
        if len(found) >= limit:
            upto = first if len(found) == limit else found[-limit].number
            return Page(found[-limit:], upto, upto <= 1)
        upto = first
        if time.monotonic() > deadline and first > 1:
            return Page(found, upto, False)
    return Page(found, min(upto, 1), True)


def tail(task_id: str, filters: Filters, count: int) -> list[Line]:
    """The last `count` matching lines, however far back they are."""
    found: list[Line] = []
    before: int | None = None
    while len(found) < count:
        page = backward(task_id, before, filters, count - len(found))
        found[:0] = page.lines
        before = page.upto
        if page.done:
            break
    return found


def download(task_id: str, filters: Filters | None = None) -> Iterator[bytes]:
    """The exact bytes that were written, line by line as stored, in blocks of a chunk's size at most."""
    filters = filters or Filters()
    chunks = _chunks(task_id, filters).order_by("first_line")
    for _, _, lines in _decoded(chunks, filters, "first_line__gt"):
        block = b"".join(raw(line.text) + b"\n" for line in filters.select(lines))
        if block:
            yield block


def _chunks(task_id: str, filters: Filters) -> QuerySet[Chunk]:
    """Chunks that may hold a matching line."""
    chunks = Chunk.objects.filter(task_id=task_id)
    if filters.ranks:
        chunks = chunks.filter(ranks__overlap=sorted(filters.ranks))
    if filters.levels:
        chunks = chunks.annotate(wanted=F("levels").bitand(filters.level_mask)).filter(wanted__gt=0)
    if filters.hosts:
        chunks = chunks.filter(host__in=filters.hosts)
    if filters.allocations:
        chunks = chunks.filter(member__allocation_id__in=filters.allocations)
    if filters.streams == frozenset("s"):
        chunks = chunks.filter(Q(member=None))
    if filters.after_time is not None:
        chunks = chunks.filter(last_time__gt=filters.after_time)
    if filters.before_time is not None:
        chunks = chunks.filter(first_time__lte=filters.before_time)
    return chunks


def _decoded(chunks: QuerySet[Chunk], filters: Filters, beyond: str) -> Iterator[tuple[int, int, list[Line]]]:
    """First number, last number and lines of each chunk; no lines for one whose text cannot match."""
    for first, last, host, member_id, data in _rows(chunks, beyond):
        content = unpack(data)
        lines = decode(content, first, host, member_id) if filters.may_match(content) else []
        yield first, last, lines


def _rows(chunks: QuerySet[Chunk], beyond: str) -> Iterable[tuple[Any, ...]]:
    """All rows in order by keyset pages that grow: the first line is often found in the first chunk."""
    size, last_seen = 1, None
    while True:
        page = chunks if last_seen is None else chunks.filter(**{beyond: last_seen})
        rows = list(page.values_list(*_COLUMNS)[:size])
        yield from rows
        if len(rows) < size:
            return
        last_seen = rows[-1][0]
        size = min(CHUNKS_PER_FETCH, size * 2)
