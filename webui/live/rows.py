"""Lines as they go to the browser: JSON, encoded once for all viewers who wish the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from logs.filters import Filters
from logs.lines import Line, shown


class Piece(NamedTuple):
    """Some rows as JSON, joined by commas without the list's brackets, so that pieces join to a frame."""

    text: str
    rows: int


def as_row(line: Line) -> list[Any]:
    """Number, time, rank, stream, level, host, text; and true behind them when the next line goes on with this one."""
    row = [line.number, line.time, line.rank, line.stream, line.level, line.host, shown(line.text)]
    if line.cut:
        row.append(True)
    return row


def encode(lines: Sequence[Line], filters: Filters) -> Piece:
    """The lines that the filters leave. Raises Refusal."""
    rows = [as_row(line) for line in filters.select(list(lines))]
    return Piece(json.dumps(rows, ensure_ascii=False, separators=(",", ":"))[1:-1], len(rows))
