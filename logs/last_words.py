"""What the process that failed said last: its traceback where it has one, else its last lines.

It also tells which rank failed first, where the times alone do not.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import Error, transaction

from jobs.models import Allocation, Member
from jobs.states import Reason
from logs import read, tracebacks
from logs.lines import NO_RANK, STDERR, STDOUT, LogLine

#: How far back a traceback is looked for.
LINES_LOOKED_AT = 400
LAST_LINES = 12
#: Of a longer traceback its beginning and its end are shown.
TRACEBACK_LINES = (10, 50)
#: Signals that a crashing process sends itself and may say a word about before; one that was killed says none.
_OWN_SIGNALS = {4, 6, 7, 8, 11}
#: Ranks that fell with the first one did so within this time; clocks of hosts are compared as well as they can be.
TOGETHER_SECONDS = 10.0
#: So many of them are asked what they said: each costs a read.
RANKS_ASKED = 8
#: All these reads together: who settles an end holds locks that the rest of the job waits for.
READ_SECONDS = 0.2

log = logging.getLogger(__name__)


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


def corrected_exit(
    allocation: Allocation, members: Sequence[Member], seconds: float = READ_SECONDS
) -> dict[str, Any] | None:
    """The attempt's `exit_detail` with the rank that failed first; None where it stands as it should.

    None, too, where the log does not tell within about so many seconds.

    All members have ended and their lines are stored. Never raises for what the lines may hold: an end is settled
    whatever they say.
    """
    until = time.monotonic() + seconds
    try:
        with transaction.atomic():
            if allocation.exit_detail.get("rank") is None:
                return _by_torchrun(allocation, until)
            return _by_last_words(allocation, members, until)
    except Error:
        raise
    except Exception:
        log.exception("the first failure of %s is taken by its time alone", allocation.pk)
        return None


def _by_torchrun(allocation: Allocation, until: float) -> dict[str, Any] | None:
    """A torchrun that the user's own command starts leaves no record of its ranks, but a report in its log."""
    found = tracebacks.root_cause(of_launcher(allocation, until=until))
    if found is None:
        return None
    rank, code = found
    return {
        **allocation.exit_detail,
        "rank": rank,
        "code": code,
        "signal": code - 128 if code > 128 else None,
    }


def _by_last_words(allocation: Allocation, members: Sequence[Member], until: float) -> dict[str, Any] | None:
    """A rank that died of a peer's end was not the first, even if its record is the earlier one."""
    ends = [{**end, "member": member} for member in members for end in member.rank_ends if end["failed"]]
    ends.sort(key=lambda end: float(end["at"]))
    if len(ends) < 2 or not _fell_with_a_peer(allocation, ends[0], until):
        return None
    near = [end for end in ends[1:] if end["at"] - ends[0]["at"] < TOGETHER_SECONDS]
    for end in near[:RANKS_ASKED]:
        fell_with_a_peer = _fell_with_a_peer(allocation, end, until)
        if time.monotonic() > until:  # what it said may not have been read to its beginning
            return None
        if not fell_with_a_peer:
            member = end["member"]
            known = {"rank": end["rank"], "code": end["code"], "signal": end["signal"], "t": end["at"]}
            return known | {"host": member.host.name, "member": member.index}
    return None


def _fell_with_a_peer(allocation: Allocation, end: dict[str, Any], until: float) -> bool:
    if end["signal"]:
        return False
    said = of(allocation, end["rank"], end["code"], end["signal"], until=until)
    return tracebacks.is_of_a_peer(said.cause)


def first_rank_may_differ(reason: Reason) -> bool:
    """Ends that are a rank's own."""
    return reason in {Reason.RANK_FAILED, Reason.COMMAND_FAILED}
