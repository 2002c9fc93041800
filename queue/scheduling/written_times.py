"""Durations and deadlines as people write them: `1h30m`, `2026-12-01T08:00`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?")
#: of all that ISO 8601 allows, only what nobody could take for a number of seconds, or a week for a month
_DATE = re.compile(r"\d{4}-\d\d-\d\d(\D.*)?")
#: what may stand for a deadline, for sentences
DEADLINE_ALLOWED = "a date and time such as 2026-12-01T08:00 (UTC), or a duration from now such as 8h"
MOST_SECONDS = 2**31
#: the shortest time without progress after which a training is looked at: a shorter one is an ordinary pause
HANG_LEAST_SECONDS = 60


def seconds_in(text: str) -> int | None:
    """The seconds of `1h30m`; None if it is no such text."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        return None
    return sum(int(count) * _UNITS[unit] for count, unit in zip(found.groups("0"), "dhms", strict=True))


def deadline_in(value: Any) -> int | str:
    """Seconds from the moment at which it is given, or a time in UTC in ISO format. Raises ValueError."""
    if isinstance(value, str):
        seconds = seconds_in(value)
        if seconds is None and not _DATE.fullmatch(value.strip()):
            raise ValueError
        value = datetime.fromisoformat(value.strip()) if seconds is None else seconds
    if isinstance(value, datetime):
        try:
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
        except OverflowError as error:
            raise ValueError from error
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < MOST_SECONDS:
        raise ValueError
    return value
