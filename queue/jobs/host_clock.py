"""Times that a host has said, in the server's clock."""

from __future__ import annotations

from datetime import UTC, datetime

from django.utils import timezone

from hosts.models import Host
from jobs.models import Member


def server_seconds(member: Member, stamp: float) -> float:
    """Epoch seconds of the clock of a member's host as those of the server, by the measured skew.

    A time before the attempt or in the future shows a clock that was set since: then the arrival counts, which is
    now. So it does for a machine of a detached run, whose clock nobody has measured.
    """
    by_skew, now = stamp - (member.host.clock_skew_seconds or 0.0), timezone.now().timestamp()
    is_measured = member.host.transport != Host.Transport.NONE
    return by_skew if is_measured and member.allocation.assigned_at.timestamp() <= by_skew <= now else now


def server_time(member: Member, stamp: float) -> datetime:
    """Return the server's time for a timestamp of the clock of a member's host."""
    return datetime.fromtimestamp(server_seconds(member, stamp), UTC)
