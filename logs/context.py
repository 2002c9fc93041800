"""Lines around the matches of a search, as `grep -C` shows them, for the log viewer."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from logs import read
from logs.filters import Filters
from logs.lines import LogLine

LINES_MAX = 50
#: Each match costs a read of its own, so a page has fewer of them.
MATCHES_MAX = 100
#: After this time the matches left stand without context: a rare rank's neighbors may be far away.
SECONDS_MAX = 1.0


def around(task_id: str, matches: list[LogLine], filters: Filters, context: int) -> list[LogLine]:
    """The matches and up to `context` lines before and behind each, in order and each once.

    The neighbors obey the other filters: around a match in rank 3 alone stand lines of rank 3.
    """
    others = replace(filters, text="", pattern="")
    deadline = time.monotonic() + SECONDS_MAX
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
        return read.forward(task_id, first - 1, others, end + context - first + 1).lines
    before = read.backward(task_id, begin, others, context).lines
    room = min(end - begin + 1, 1000) + context
    behind = read.forward(task_id, begin - 1, others, room).lines
    inside = [line for line in behind if line.number <= end]
    return [*before, *inside, *[line for line in behind if line.number > end][:context]]
