"""How the ranks of a member ended, as the launch modules record it, and which of two failures came first."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from jobs.models import Allocation, Member

#: a host has fewer ranks; code that writes records of its own must not fill the row
RANK_ENDS_MAX = 1024


def keep(member: Member, record: dict[str, Any], *, failed: bool) -> None:
    """Keep how one rank of a locked member ended: the record of the launch modules {"rank", "code", "signal", "t"}.

    A record that is not what docs/protocol.md says raises ValueError, TypeError or KeyError.
    """
    if len(member.rank_ends) >= RANK_ENDS_MAX:
        return
    code, number = record.get("code"), record.get("signal")
    end = {
        "rank": int(record["rank"]),
        "code": None if code is None else int(code),
        "signal": None if number is None else int(number),
        "at": server_time(member, float(record["t"])),
        "failed": failed,
    }
    member.rank_ends = [*member.rank_ends, end]
    Member.objects.filter(pk=member.pk).update(rank_ends=member.rank_ends)


def correct(allocation: Allocation, detail: dict[str, Any]) -> None:
    """Another rank of a locked allocation failed first than the one that stands in its `exit_detail`."""
    allocation.exit_detail = detail
    Allocation.objects.filter(pk=allocation.pk).update(exit_detail=detail)


def server_time(member: Member, stamp: float) -> float:
    """A host's clock as the server's, by the measured skew.

    A time before the attempt or in the future shows a clock that was set meanwhile: then the arrival counts.
    """
    by_skew, now = stamp - (member.host.clock_skew_seconds or 0.0), timezone.now().timestamp()
    return by_skew if member.allocation.assigned_at.timestamp() <= by_skew <= now else now


def is_earlier(new: dict[str, Any], standing: dict[str, Any]) -> bool:
    """Whether a failure was before the one that stands as its attempt's (empty: none does)."""
    if not standing:
        return True
    return float(new.get("t", float("inf"))) < float(standing.get("t", float("inf")))
