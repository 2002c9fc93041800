"""Reads of a task's log from a cursor, with filters. Chunks that cannot match are skipped in the database."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from django.contrib.postgres.aggregates import BitOr

from jobs.models import Member
from logs.chunks import unpack
from logs.contents import Contents, Piece
from logs.filters import Clock
from logs.filters import Filters as Filters
from logs.lines import LogLine, streams_in
from logs.models import Chunk, TaskLog
from logs.scan import Patience, chunks_before, chunks_behind

#: A read with a rare match gives up after this time and says how far it came, so that it can go on.
SCAN_SECONDS = 0.5
#: A slice ends before it grows over this, so that a log of very long lines is answered in pieces too.
SLICE_CHARACTERS = 2 * 1024 * 1024
CONTEXT_LINES_MAX = 50
#: Each match with context costs a read of its own, so a page has fewer of them.
CONTEXT_MATCHES_MAX = 100
#: After this time the matches left stand without context: a rare rank's neighbors may be far away.
CONTEXT_SECONDS = 1.0


class LogPage(NamedTuple):
    """Matching lines in ascending order, and the cursor to go on from.

    Forward, every line up to and including `upto` was looked at; backward, every line from `upto` on. `done`
    says that nothing lies beyond at the time of reading.
    """

    lines: list[LogLine]
    upto: int
    done: bool


class Slice(NamedTuple):
    """Lines in ascending order. All from `first` to `last` was looked at; nothing more lies before, behind."""

    lines: list[LogLine]
    first: int
    last: int
    at_start: bool
    at_end: bool


def last_number(task_id: str) -> int:
    """The number of the newest line, 0 when there is none."""
    following = TaskLog.objects.filter(pk=task_id).values_list("next_line", flat=True).first()
    return following - 1 if following else 0


def streams(task_id: str) -> frozenset[str]:
    """The letters of the streams that have lines in the log."""
    kinds = Chunk.objects.filter(task_id=task_id).order_by().aggregate(all=BitOr("kinds"))["all"]
    return streams_in(kinds or 0)


def number_at(task_id: str, time: float) -> int:
    """The number of the first line at or after this host time (epoch seconds); behind the newest when none is."""
    newest = last_number(task_id)
    chunks = Chunk.objects.filter(task_id=task_id, last_time__gte=time).order_by("first_line")
    row = chunks.values_list("first_line", "data").first()
    number = Contents(unpack(row[1]), row[0]).number_at(time) if row else None
    return number or newest + 1


def forward(task_id: str, after: int = 0, filters: Filters | None = None, limit: int = 1000) -> LogPage:
    """Up to `limit` matching lines behind line `after`. Raises Refusal."""
    filters = _resolved(filters)
    newest = last_number(task_id)
    found: list[LogLine] = []
    upto, patience = after, Patience(SCAN_SECONDS)
    for first, last, contents in chunks_behind(task_id, after, filters, patience):
        left = limit - len(found)
        indices = contents.indices(filters, upto + 1 - first, last + 1 - first, Clock()) if contents else []
        found += contents.lines(indices[:left]) if contents and indices else []
        if len(found) >= limit:
            upto = found[-1].number if len(indices) > left else last
            return LogPage(found, upto, upto >= newest)
        upto = last
        if not patience.is_left_for(filters):
            break
    if patience.ran_out:
        return LogPage(found, upto, upto >= newest)
    return LogPage(found, max(upto, newest), True)


def backward(
    task_id: str,
    before: int | None = None,
    filters: Filters | None = None,
    limit: int = 1000,
    *,
    seconds: float = SCAN_SECONDS,
) -> LogPage:
    """The last `limit` matching lines before line `before` (None: the end), or fewer where it takes longer.

    Raises Refusal.
    """
    filters = _resolved(filters)
    upto = before if before is not None else last_number(task_id) + 1
    parts: list[list[LogLine]] = []
    left, patience = limit, Patience(seconds)
    for first, last, contents in chunks_before(task_id, before, filters, patience):
        stop = last + 1 if before is None else min(last + 1, before)
        indices = contents.indices(filters, 0, stop - first, Clock()) if contents else []
        before = upto = first
        if contents and indices:
            parts.append(contents.lines(indices[-left:]))
            left -= len(parts[-1])
        if left <= 0:
            upto = parts[-1][0].number if len(indices) > len(parts[-1]) else first
            return LogPage(_joined(parts), upto, upto <= 1)
        if not patience.is_left_for(filters):
            break
    if patience.ran_out:
        return LogPage(_joined(parts), upto, upto <= 1)
    return LogPage(_joined(parts), min(upto, 1), True)


def _joined(parts: list[list[LogLine]]) -> list[LogLine]:
    return [line for part in reversed(parts) for line in part]


def tail(task_id: str, filters: Filters, count: int, *, until: float = math.inf) -> list[LogLine]:
    """The last `count` matching lines, however far back they are; those found by `until` of the monotonic clock."""
    parts: list[list[LogLine]] = []
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


def slice_before(task_id: str, before: int, filters: Filters, limit: int, newest: int) -> Slice:
    """The lines before number `before`."""
    found = backward(task_id, before, filters, limit)
    kept = len(found.lines) - _fitting([len(line.text) for line in reversed(found.lines)])
    lines = found.lines[kept:]
    first, at_start = (lines[0].number, False) if kept else (found.upto, found.done)
    return Slice(lines, first, before - 1, at_start, before > newest)


def slice_after(task_id: str, after: int, filters: Filters, limit: int, newest: int) -> Slice:
    """The lines after number `after`."""
    found = forward(task_id, after, filters, limit)
    lines = found.lines[: _fitting([len(line.text) for line in found.lines])]
    is_cut = len(lines) < len(found.lines)
    last = lines[-1].number if is_cut else found.upto
    return Slice(lines, after + 1, last, after < 1, not is_cut and last >= newest)


def slice_about(task_id: str, middle: int, filters: Filters, limit: int, newest: int) -> Slice:
    """The lines about a line: half of them before it."""
    before = slice_before(task_id, middle, filters, limit // 2, newest)
    after = slice_after(task_id, middle - 1, filters, max(1, limit - limit // 2), newest)
    return Slice(before.lines + after.lines, before.first, after.last, before.at_start, after.at_end)


def _fitting(sizes: list[int]) -> int:
    """How many of the texts fit a slice; the first always does."""
    total = 0
    for index, size in enumerate(sizes):
        total += size
        if total > SLICE_CHARACTERS and index:
            return index
    return len(sizes)


def around(task_id: str, matches: list[LogLine], filters: Filters, context: int) -> list[LogLine]:
    """The matches and up to `context` lines before and behind each, in order and each once, as `grep -C` shows them.

    The neighbors obey the other filters: around a match in rank 3 alone stand lines of rank 3.
    """
    others = replace(filters, text="", pattern="")
    deadline = time.monotonic() + CONTEXT_SECONDS
    found = {line.number: line for line in matches}
    for begin, end in _ranges(matches, context):
        if time.monotonic() > deadline:
            break
        for line in _between(task_id, begin, end, others, context):
            found.setdefault(line.number, line)
    return [found[number] for number in sorted(found)]


def _ranges(matches: list[LogLine], context: int) -> list[tuple[int, int]]:
    """First and last number of matches whose surroundings meet."""
    ranges: list[tuple[int, int]] = []
    for line in matches:
        if ranges and line.number - ranges[-1][1] <= 2 * context + 1:
            ranges[-1] = (ranges[-1][0], line.number)
        else:
            ranges.append((line.number, line.number))
    return ranges


def _between(task_id: str, begin: int, end: int, others: Filters, context: int) -> Iterable[LogLine]:
    if others == Filters():  # numbers are dense: one read has both sides
        first = max(1, begin - context)
        return forward(task_id, first - 1, others, end + context - first + 1).lines
    before = backward(task_id, begin, others, context).lines
    room = min(end - begin + 1, 1000) + context
    behind = forward(task_id, begin - 1, others, room).lines
    inside = [line for line in behind if line.number <= end]
    return [*before, *inside, *[line for line in behind if line.number > end][:context]]


def pieces(
    task_id: str, filters: Filters | None = None, after: int = 0, upto: int | None = None
) -> Iterator[list[Piece]]:
    """The exact bytes that were written, lines behind `after` up to `upto` (None: the newest), without their lines.

    In order, a list for each chunk that is looked at, empty where nothing of it is wanted. Raises
    Refusal.
    """
    filters = _resolved(filters)
    end = last_number(task_id) if upto is None else upto
    for first, last, contents in chunks_behind(task_id, after, filters):
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
