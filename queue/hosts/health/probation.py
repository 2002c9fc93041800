"""When what is out of use because of a fault comes back without a person. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

#: what is taken out again within so long after its return stays out until a person lets it back
FLAPPING = timedelta(days=7)


def recent(returns: Iterable[datetime], now: datetime) -> int:
    """How many of its returns after a sign were so lately that another fault is flapping."""
    return sum(at > now - FLAPPING for at in returns)


def ends_by_itself(*, by_a_sign: bool, returns: int) -> bool:
    """Whether probation ends it at all. `returns`: how often it had come back lately when it was taken out."""
    return by_a_sign and not returns


def is_over(troubles: Iterable[datetime], now: datetime, seconds: float) -> bool:
    """Whether the last fault and the last reboot of what was rebooted since it was taken out are so long ago."""
    return all(now - at >= timedelta(seconds=seconds) for at in troubles)
