"""When a window is: once, or each week by the clock of its time zone, through changes to and from summer time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

WEEK = timedelta(days=7)
#: so many weeks ahead, two windows are looked at for an overlap
WEEKS_AHEAD = 60


@dataclass(frozen=True, slots=True)
class Times:
    """`starts` and `ends` are what the clock shows in the time zone `zone`; of a weekly window, the first time."""

    starts: datetime
    ends: datetime
    zone: str = "UTC"
    weekly: bool = False

    def at(self, week: int) -> tuple[float, float]:
        """Start and end so many weeks after the first time, in epoch seconds; equal if the clock skips all of it."""
        zone = ZoneInfo(self.zone)
        starts, ends = _instant(self.starts + week * WEEK, zone), _instant(self.ends + week * WEEK, zone)
        return starts, max(starts, ends)

    def coming(self, now: float) -> tuple[float, float] | None:
        """The time that is now or comes next; None if there is none any more."""
        return next(self._from(now), None)

    def _from(self, now: float) -> Iterator[tuple[float, float]]:
        since = datetime.fromtimestamp(now, ZoneInfo(self.zone)).replace(tzinfo=None) - self.ends
        first = max(0, since // WEEK) if self.weekly else 0
        for week in range(first, first + WEEKS_AHEAD) if self.weekly else (0,):
            span = self.at(week)
            if span[1] > now and span[1] > span[0]:
                yield span

    def meets(self, other: Times, now: float) -> bool:
        """Is there a moment, now or later, that is in both?"""
        mine, theirs = list(self._from(now)), list(other._from(now))
        return any(a[0] < b[1] and b[0] < a[1] for a in mine for b in theirs)


def _instant(local: datetime, zone: ZoneInfo) -> float:
    """Of a time that the clock shows twice the first counts; one that it skips is as much later."""
    return local.replace(tzinfo=zone).timestamp()
