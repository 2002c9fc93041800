"""Lines as they go to the browser: as JSON, and in runs that the viewers of one task share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from logs import read
from logs.filters import Filters
from logs.lines import LogLine, shown

LINES_PER_RUN = 1000
RUN_CHARACTERS = 1024 * 1024
#: One read of the database: several frames' worth, so that a flood costs few of them.
LINES_PER_READ = 4000
#: What a decoded line and a run take beside their text, in bytes.
LINE_BYTES, RUN_BYTES = 300, 1000


class Piece(NamedTuple):
    """Some rows as JSON, joined by commas without the list's brackets, so that pieces join to a frame."""

    text: str
    rows: int


def as_row(line: LogLine) -> list[Any]:
    """Number, time, rank, stream, level, host, text; and true after them if the next line continues this one."""
    row = [line.number, line.time, line.rank, line.stream, line.level, line.host, shown(line.text)]
    if line.cut:
        row.append(True)
    return row


def encode(lines: Sequence[LogLine], filters: Filters) -> Piece:
    """The lines that the filters leave. Raises Refusal."""
    rows = [as_row(line) for line in filters.select(list(lines))]
    return Piece(json.dumps(rows, ensure_ascii=False, separators=(",", ":"))[1:-1], len(rows))


class LineRun:
    """Consecutive lines: all those behind line `after` up to line `upto`."""

    def __init__(self, after: int, upto: int, lines: list[LogLine]) -> None:
        self.after = after
        self.upto = upto
        self.lines = lines
        self.pieces: dict[Filters, asyncio.Future[Piece]] = {}
        #: filters that somebody has asked for, some of them
        self.asked: set[Filters] = set()
        self.bytes = RUN_BYTES + sum(LINE_BYTES + len(line.text) for line in lines)

    def behind(self, number: int) -> list[LogLine]:
        """Its lines with a higher number."""
        return self.lines if number <= self.after else [line for line in self.lines if line.number > number]


def read_runs(task_id: str, after: int, most_bytes: int) -> list[LineRun]:
    """What follows line `after`, as runs of a frame's size; at least one run, however large."""
    page = read.forward(task_id, after, Filters(), LINES_PER_READ)
    return list(_split(after, page, most_bytes))


def read_encoded(
    task_id: str, after: int, most_bytes: int, wanted: Sequence[Filters]
) -> tuple[list[LineRun], list[dict[Filters, Piece]]]:
    """Read runs behind line `after` with their encoded rows for these filters, none of which has a pattern."""
    runs = read_runs(task_id, after, most_bytes)
    return runs, [{filters: encode(run.lines, filters) for filters in wanted} for run in runs]


def _split(after: int, page: read.LogPage, most_bytes: int) -> Iterator[LineRun]:
    lines: list[LogLine] = []
    characters = used = 0
    for line in page.lines:
        lines.append(line)
        characters += len(line.text)
        if len(lines) == LINES_PER_RUN or characters > RUN_CHARACTERS:
            used += characters + LINE_BYTES * len(lines)
            upto = page.upto if line is page.lines[-1] else line.number
            yield LineRun(after, upto, lines)
            if used > most_bytes:
                return
            after, lines, characters = upto, [], 0
    if page.upto > after:
        yield LineRun(after, page.upto, lines)
