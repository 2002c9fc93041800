"""Units as people read them: bytes in the multiple that fits, everything else as it was measured; axes of time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

_BINARY = ("bytes", "KiB", "MiB", "GiB", "TiB")
#: from which span on an axis of time counts in which unit
_OF_SPANS = ((172_800, 86_400, "days"), (7200, 3600, "h"), (180, 60, "min"))
_TICKS_ARE_DAYS_SECONDS = 2 * 86_400
_DECIMAL = ("bytes/s", "kB/s", "MB/s", "GB/s")


def scaled(unit: str, largest: float) -> tuple[float, str]:
    """(how many of `unit` make one of the unit that is shown, that unit) for values up to `largest`.

    Memory counts in powers of 1024, what flows in powers of 1000, as the makers of disks and networks do.
    """
    if unit not in ("bytes", "bytes/s"):
        return 1.0, unit
    base, names = (1024.0, _BINARY) if unit == "bytes" else (1000.0, _DECIMAL)
    power = 0
    while power + 1 < len(names) and abs(largest) >= base ** (power + 1):
        power += 1
    return base**power, names[power]


def spelled(value: float, unit: str) -> str:
    """`61.2 GiB`, `97 %`, `1.25 MB/s`."""
    factor, shown = scaled(unit, value)
    return f"{value / factor:.3g} {shown}" if abs(value / factor) < 1000 else f"{value / factor:,.0f} {shown}"


def of_span(seconds: float) -> tuple[int, str]:
    """(seconds of the unit, its name) that an axis of time counts in over this span."""
    return next(((size, unit) for least, size, unit in _OF_SPANS if seconds >= least), (1, "s"))


def time_axis(first_time: float, last_time: float) -> dict[str, Any]:
    """Plotly's x axis from one time to another (epoch seconds), in UTC; its title has the days where ticks do not."""
    first, last = (datetime.fromtimestamp(at, UTC) for at in (first_time, last_time))
    days = f"{first:%b %d}" if first.date() == last.date() else f"{first:%b %d} to {last:%b %d}"
    is_long = last_time - first_time > _TICKS_ARE_DAYS_SECONDS
    return {
        "type": "date",
        "range": [round(first_time * 1000), round(last_time * 1000)],
        "title": {"text": "day (UTC)" if is_long else f"time (UTC), {days}"},
        "tickformat": "%b %d" if is_long else "%H:%M",
        "tickangle": 0,
        "nticks": 5,
    }
