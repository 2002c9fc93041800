"""One batch of a runner: its records, those that are lines of the log, and what stands in place of unreadable ones."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from accounts.refusals import Refusal
from dispatch.runs.log_policies import PolicyMatch
from logs.lines import SERVER, STDERR, STDOUT, Block, NewLine, blocks_of
from trainmaster import bounded_json
from trainmaster.bounded_json import TooDeep

#: How the runner's lines begin that hold a record as training code wrote it.
_WRITTEN_BY_THE_JOB = (b'{"k":"core"', b'{"k": "core"', b'{"k": "timings"')


@dataclass(frozen=True)
class Batch:
    """What a runner has sent: whole records from byte `offset` of its outbox on, and what of it is log."""

    offset: int
    body: bytes
    records: list[dict[str, Any]]
    blocks: list[Block]
    found: PolicyMatch | None

    @property
    def end(self) -> int:
        return self.offset + len(self.body)


def parse(body: bytes) -> list[dict[str, Any]]:
    """The records of a batch: one JSON object a line, the last line complete."""
    if body and not body.endswith(b"\n"):
        raise Refusal("The batch ends in the middle of a record; send whole lines.")
    with contextlib.suppress(ValueError, RecursionError):  # costs a quarter of what record by record does
        whole = json.loads(b"[" + body[:-1].replace(b"\n", b",") + b"]")
        if len(whole) == body.count(b"\n") and all(type(record) is dict for record in whole):
            return [_without_depth(record) for record in whole]
    records = []
    for number, line in enumerate(body.split(b"\n")[:-1], 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            if not line.startswith(_WRITTEN_BY_THE_JOB):
                raise Refusal(f"Record {number} of the batch is not JSON: {error}.") from error
            record = left_out(error if isinstance(error, ValueError) else TooDeep())
        if not isinstance(record, dict):
            raise Refusal(f"Record {number} of the batch is not a JSON object.")
        records.append(_without_depth(record))
    return records


def _without_depth(record: dict[str, Any]) -> dict[str, Any]:
    return left_out(TooDeep()) if "d" in record and bounded_json.is_deep(record["d"]) else record


def left_out(error: ValueError) -> dict[str, Any]:
    """What stands in the log in place of a record that training code wrote and that must not hold up its stream."""
    sentence = f"[a report could not be read: {error}]"
    return {
        "k": "lines",
        "t": timezone.now().timestamp(),
        "r": None,
        "s": "stderr",
        "l": [[0, "ERROR"]],
        "m": sentence,
    }


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
