"""Which rank failed first, where the times alone do not tell: by what the ranks and torchrun said at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from django.db import Error, transaction

from jobs.models import Allocation, Member
from jobs.states import Reason
from logs import last_words, tracebacks

#: Ranks that fell with the first one did so within this time; clocks of hosts are compared as well as they can be.
TOGETHER_SECONDS = 10.0
#: So many of them are asked what they said: each costs a read.
RANKS_ASKED = 8
#: All these reads together: who settles an end holds locks that the rest of the job waits for.
READ_SECONDS = 0.2

log = logging.getLogger(__name__)


def corrected(
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
    found = tracebacks.root_cause(last_words.of_launcher(allocation, until=until))
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
    said = last_words.of(allocation, end["rank"], end["code"], end["signal"], until=until)
    return tracebacks.is_of_a_peer(said.cause)


def may_differ(reason: Reason) -> bool:
    """Ends that are a rank's own."""
    return reason in {Reason.RANK_FAILED, Reason.COMMAND_FAILED}
