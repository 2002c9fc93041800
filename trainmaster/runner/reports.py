"""Reports of metrics that follow each other in a file of the SDK become one record of columns. Pure."""

from __future__ import annotations

import json
import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from trainmaster.runner.records import core_record

#: the fields of a report; one that has others stays as the SDK wrote it
_FIELDS = {"type", "group", "steps_completed", "metrics", "run_id", "t"}
#: how the SDK writes a number that is not finite
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_EXACT = 2**53  # a larger whole number is not one number in every reader of JSON
_BIGINT = 2**63

#: The search hears of each report of this group in turn.
_VALIDATION = "validation"

_Table = Tuple[str, int, Tuple[str, ...]]  # group, run and names, which all reports of a table share


class _Columns(NamedTuple):
    steps: List[int]
    times: List[float]
    values: Dict[str, List[Any]]


class Reports:
    """Reports up to the offset `end` of a file, at most `most` of them, which fill `most_bytes` as they were written.

    The steps of each group ascend, so the steps give the order of its reports. Validations are all in one table: a
    server that reads table by table takes them in their order, too.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._tables: Dict[_Table, _Columns] = {}
        self._last: Dict[str, int] = {}  # the last step of each group
        self._validation: Optional[_Table] = None
        self._first = b""
        self._count = 0
        self.size = self.end = 0

    def take(self, record: Dict[str, Any], written: bytes, end: int) -> bool:
        """Add a report, whose JSON is `written` and ends at `end`. Return False if it cannot join the others."""
        if self._count >= self._most or self.size + len(written) > self._most_bytes or not _is_plain(record):
            return False
        group, step, metrics = record["group"], record["steps_completed"], record["metrics"]
        if step <= self._last.get(group, -1):
            return False
        key = (group, record["run_id"], tuple(metrics))
        if group == _VALIDATION:
            if self._validation not in (None, key):
                return False
            self._validation = key
        columns = self._tables.get(key)
        if columns is None:
            columns = self._tables[key] = _Columns([], [], {name: [] for name in metrics})
        columns.steps.append(step)
        columns.times.append(record["t"])
        for name, value in metrics.items():
            columns.values[name].append(value)
        self._last[group], self.end = step, end
        self._first = self._first or written
        self._count += 1
        self.size += len(written)
        return True

    def record(self, file: str) -> Optional[bytes]:
        """The record for the outbox, None without a report; a single report becomes a `core` record."""
        if self._count < 2:
            return core_record(file, self.end, self._first) if self._count else None
        tables = [
            {"group": group, "run_id": run_id, **columns._asdict()}
            for (group, run_id, _), columns in self._tables.items()
        ]
        record = {"k": "reports", "f": file, "e": self.end, "d": tables}
        return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _is_plain(record: Dict[str, Any]) -> bool:
    """Whether a record is a report of numbers alone, with all that a report has."""
    if record.get("type") != "metrics" or record.keys() != _FIELDS:
        return False
    step, at, metrics = record["steps_completed"], record["t"], record["metrics"]
    return (
        type(record["group"]) is str
        and type(record["run_id"]) is int
        and abs(record["run_id"]) < _BIGINT
        and type(step) is int
        and 0 <= step < _BIGINT
        and type(at) is float
        and math.isfinite(at)
        and type(metrics) is dict
        and bool(metrics)
        and all(map(_is_number, metrics.values()))
    )


def _is_number(value: Any) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    return abs(value) <= _EXACT if type(value) is int else value in _NOT_FINITE
