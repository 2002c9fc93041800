"""How the ranks of a member ended, as the launch modules record it, and which of two failures came first."""

from __future__ import annotations

from typing import Any

from jobs.models import Allocation, Member

#: a host has fewer ranks; code that writes records of its own must not fill the row
RANK_ENDS_MAX = 1024
_LARGEST = 2**31 - 1


def keep(member: Member, record: dict[str, Any], *, failed: bool) -> None:
    """Keep how one rank of a locked member ended: the record of the launch modules {"rank", "code", "signal", "t"}.

    A record that is not what docs/protocol.md says raises ValueError, TypeError or KeyError.
    """
    if len(member.rank_ends) >= RANK_ENDS_MAX:
        return
    end = _read(record)
    at = member.server_seconds(end.pop("t"))
    member.rank_ends = [*member.rank_ends, {**end, "at": at, "failed": failed}]
    Member.objects.filter(pk=member.pk).update(rank_ends=member.rank_ends)


def first_failure(record: object) -> dict[str, Any] | None:
    """The record of a first failure {"rank", "code", "signal", "t"} as it can be kept; None for what is none."""
    try:
        return _read(record) if isinstance(record, dict) else None
    except (KeyError, TypeError, ValueError):
        return None


def _read(record: dict[str, Any]) -> dict[str, Any]:
    """Rank, code, signal and host's time of a record. Raises KeyError, TypeError or ValueError."""
    code, signal = record.get("code"), record.get("signal")
    try:
        return {
            "rank": _whole(record["rank"]),
            "code": None if code is None else _whole(code),
            "signal": None if signal is None else _whole(signal),
            "t": float(record["t"]),
        }
    except OverflowError as error:  # 1e999
        raise ValueError(f"a number in {record!r} is out of range") from error


def _whole(value: Any) -> int:
    """Raises ValueError, TypeError or OverflowError for what no process has: training code may write records, too."""
    number = int(value)
    if abs(number) > _LARGEST:
        raise ValueError(f"{value!r} is out of range")
    return number


def correct(allocation: Allocation, detail: dict[str, Any]) -> None:
    """Another rank of a locked allocation failed first than the one that stands in its `exit_detail`."""
    allocation.exit_detail = detail
    Allocation.objects.filter(pk=allocation.pk).update(exit_detail=detail)


def is_earlier(new: dict[str, Any], standing: dict[str, Any]) -> bool:
    """Whether a failure was before the one that stands as its attempt's (empty: none does)."""
    if not standing:
        return True
    return float(new.get("t", float("inf"))) < float(standing.get("t", float("inf")))
