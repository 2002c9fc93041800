"""What the process that failed said last: its traceback where it has one, else its last lines."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from jobs.models import Allocation
from logs import read, tracebacks
from logs.lines import NO_RANK, STDERR, STDOUT, LogLine

#: How far back a traceback is looked for.
LINES_LOOKED_AT = 400
LAST_LINES = 12
#: Of a longer traceback its beginning and its end are shown.
TRACEBACK_LINES = (10, 50)
#: Signals that a crashing process sends itself and may say a word about before; one that was killed says none.
_OWN_SIGNALS = {4, 6, 7, 8, 11}


@dataclass(frozen=True)
class LastWords:
    """`lines` as they stand in the log, `traceback`: they are one; `cause` its last line (empty: none is known).

    `left_out`: so many lines of a long traceback's middle are not among them.
    """

    lines: list[LogLine] = field(default_factory=list)
    traceback: bool = False
    cause: str = ""
    left_out: int = 0


def of(
    allocation: Allocation,
    rank: int | None,
    code: int | None,
    signal: int | None,
    *,
    until: float = math.inf,
) -> LastWords:
    """Return the last words of a rank; without a rank, those outside any rank, or else of all lines.

    Lines that are not found by `until` of the monotonic clock are left out.
    """
    lines = _lines(allocation, NO_RANK if rank is None else rank, until)
    if rank is None and not lines:
        lines = _lines(allocation, None, until)
    if code and code > 128 and signal is None:
        signal = code - 128
    if signal is None or signal in _OWN_SIGNALS:
        for stream in (STDERR, STDOUT):
            said = _traceback([line for line in lines if line.stream == stream])
            if said is not None:
                return said
    telling = [line for line in lines if not tracebacks.is_noise(line.text)] or lines
    cause = "" if signal else tracebacks.last_exception([line.text for line in telling[-LAST_LINES:]])
    return LastWords(telling[-LAST_LINES:], False, cause)


def of_launcher(allocation: Allocation, *, until: float) -> list[str]:
    """The last lines outside any rank that are found by `until` of the monotonic clock."""
    return [line.text for line in _lines(allocation, NO_RANK, until)]


def _lines(allocation: Allocation, rank: int | None, until: float) -> list[LogLine]:
    ranks = frozenset() if rank is None else frozenset({rank})
    filters = read.Filters(ranks=ranks, allocations=frozenset({allocation.pk}))
    return read.tail(allocation.task_id, filters, LINES_LOOKED_AT, until=until)


def _traceback(lines: list[LogLine]) -> LastWords | None:
    block = tracebacks.last_block([line.text for line in lines])
    if block is None:
        return None
    head, tail = TRACEBACK_LINES
    found = lines[block.first : block.last + 1]
    shown = found if len(found) <= head + tail else found[:head] + found[-tail:]
    return LastWords(shown, True, block.cause, len(found) - len(shown))
