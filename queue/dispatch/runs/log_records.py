"""Records of an outbox that are lines of the log (docs/protocol.md "The outbox"), as blocks for the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils import timezone

from logs.lines import SERVER, STDERR, STDOUT, Block, NewLine, blocks_of


def blocks(records: Sequence[dict[str, Any]]) -> list[Block]:
    """The lines among the records, in their order; a gap stands in the log as what it is."""
    found: list[Block] = []
    lines: list[NewLine] = []
    for record in records:
        match record.get("k"):
            case "lines":
                found += blocks_of(lines)
                lines.clear()
                found.append(_block(record))
            case "log":
                lines.append(_line(record))
            case "gap":
                lines.append(_gap(record))
    return found + blocks_of(lines)


def _block(record: dict[str, Any]) -> Block:
    """Lines that were read together. The host wrote them: fields of another form count as not given."""
    levels, cut = record.get("l"), record.get("c")
    try:
        named = [(int(index), str(name)) for index, name in levels] if levels else []
        cut_at = [int(index) for index in cut] if cut else []
    except (TypeError, ValueError):
        named, cut_at = [], []
    return Block(_time(record), record.get("r"), _stream(record), named, cut_at, str(record.get("m", "")))


def _line(record: dict[str, Any]) -> NewLine:
    """The record of a single line, which older runners write."""
    level = record.get("l")
    return NewLine(
        _time(record),
        record.get("r"),
        _stream(record),
        level if isinstance(level, str) else None,
        str(record.get("m", "")),
        bool(record.get("c")),
    )


def _time(record: dict[str, Any]) -> float:
    time = record.get("t")
    return float(time) if isinstance(time, int | float) else 0.0


def _stream(record: dict[str, Any]) -> str:
    return STDERR if record.get("s") == "stderr" else STDOUT


def _gap(record: dict[str, Any]) -> NewLine:
    return NewLine(
        time=timezone.now().timestamp(),
        rank=None,
        stream=SERVER,
        level="WARNING",
        text=f"[{int(record.get('bytes') or 0):,} bytes missing: the spool on the host was full]",
    )
