"""When a cron expression is due in a time zone (pure): every time once, whatever the clocks there do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from celery.schedules import ParseException, crontab

from accounts.refusals import Refusal

FORM = "five fields (minute, hour, day of the month, month, day of the week), such as 0 3 * * 1-5"
#: February 29 may be eight years away
_MOST_DAYS = 9 * 366


@dataclass(frozen=True)
class Cron:
    """The times that an expression allows. As in cron, one of both kinds of days is enough if both are restricted.

    `by_clock`: its minutes or hours begin with `*`, so it is due whenever the clock shows such a time: twice if the
    clock shows it twice, and not if the clock skips it.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    by_clock: bool
    zone: ZoneInfo

    def next_after(self, moment: datetime) -> datetime | None:
        """The first time after a moment, in UTC; None if it never comes."""
        return next(self.after(moment), None)

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Its times after a moment, in UTC."""
        day, last = moment.astimezone(self.zone).date() - timedelta(days=1), moment
        for _ in range(_MOST_DAYS):
            for at in sorted(self._of_day(day)):
                if at > last:
                    yield at
                    last = at
            day += timedelta(days=1)

    def _of_day(self, day: date) -> set[datetime]:
        """A local time that the clocks skip is shifted by the skipped amount; one that they repeat is the first.

        An expression `by_clock` has neither: see there.
        """
        if not self._is_on(day):
            return set()
        local = [
            datetime.combine(day, time(hour, minute, fold=fold), self.zone)
            for hour in self.hours
            for minute in self.minutes
            for fold in ((0, 1) if self.by_clock else (0,))
        ]
        return {at.astimezone(UTC) for at in local if not (self.by_clock and _is_skipped(at))}

    def _is_on(self, day: date) -> bool:
        by_number, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        on = (by_number or by_weekday) if self.either_day else (by_number and by_weekday)
        return on and day.month in self.months


def _is_skipped(local: datetime) -> bool:
    """Does the clock never show this time?"""
    return local.astimezone(UTC).astimezone(local.tzinfo).replace(tzinfo=None) != local.replace(tzinfo=None)


def parse(text: str, zone: str) -> Cron:
    """Raises Refusal, about `cron` or `timezone`."""
    fields = text.split()
    if len(fields) != 5:
        raise _bad(text)
    minute, hour, day, month, weekday = fields
    try:
        given: Any = crontab(
            minute=minute, hour=hour, day_of_month=day, month_of_year=month, day_of_week=_weekdays(weekday)
        )
    except (ParseException, ValueError, KeyError) as error:
        raise _bad(text) from error
    found = Cron(
        minutes=tuple(sorted(given.minute)),
        hours=tuple(sorted(given.hour)),
        days=frozenset(given.day_of_month),
        months=frozenset(given.month_of_year),
        weekdays=frozenset(given.day_of_week),
        either_day=not (day.startswith("*") or weekday.startswith("*")),
        by_clock=minute.startswith("*") or hour.startswith("*"),
        zone=_zone(zone),
    )
    if found.next_after(datetime.now(UTC)) is None:
        raise _bad(text)
    return found


def _bad(text: str) -> Refusal:
    return Refusal(f"cron: found {text!r}, allowed: {FORM}.", field="cron")


def _weekdays(field: str) -> str:
    """The field with 0 for Sunday, which may be 7 as in cron, also at the end of a range."""
    return ",".join(_of_week(part) for part in field.lower().split(","))


def _of_week(part: str) -> str:
    days, slash, step = part.partition("/")
    first, dash, last = days.partition("-")
    if dash and last == "7" and first in ("0", "sun"):
        last = "6"
    days = dash.join("0" if day == "7" else day for day in ((first, last) if dash else (first,)))
    return f"{days}{slash}{step}"


def _zone(name: str) -> ZoneInfo:
    if name not in _zones():
        allowed = "a time zone such as UTC or Europe/Berlin"
        raise Refusal(f"timezone: found {name!r}, allowed: {allowed}.", field="timezone")
    return ZoneInfo(name)


@cache
def _zones() -> frozenset[str]:
    """Read once: they are the names of many files."""
    return frozenset(available_timezones())
