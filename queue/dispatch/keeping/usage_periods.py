"""Days and months that usage is summed up by, in UTC, read as people and Determined's clients write them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal

from accounts.refusals import Refusal

Unit = Literal["day", "month"]


@dataclass(frozen=True)
class Periods:
    """Whole days or months, from the first of `first` to the end of the one that begins on `last`."""

    unit: Unit
    first: date
    last: date

    @property
    def starts(self) -> list[date]:
        found, at = [], self.first
        while at <= self.last:
            found.append(at)
            at = _next(self.unit, at)
        return found

    @property
    def names(self) -> list[str]:
        return [_name(self.unit, start) for start in self.starts]

    def name_of(self, moment: datetime) -> str:
        """`2026-11-21`, `2026-11`."""
        return _name(self.unit, moment.astimezone(UTC).date())

    @property
    def after(self) -> datetime:
        return datetime.combine(self.first, time(), UTC)

    @property
    def before(self) -> datetime:
        return datetime.combine(_next(self.unit, self.last), time(), UTC)


def _name(unit: Unit, start: date) -> str:
    return start.isoformat()[: 10 if unit == "day" else 7]


def _next(unit: Unit, start: date) -> date:
    if unit == "day":
        return start + timedelta(days=1)
    return (start.replace(day=1) + timedelta(days=31)).replace(day=1)


def between(unit: Unit, first: str, last: str, *, most: int) -> Periods:
    """The periods from `first` to `last`, both with them. Raises Refusal, for more than `most` too."""
    periods = Periods(unit, _read(unit, first), _read(unit, last))
    if periods.first > periods.last:
        raise Refusal(f"The first {unit}, {first}, is after the last, {last}; swap them.")
    if periods.last.year == date.max.year:  # what ends then has no end
        raise Refusal(f"Found {last!r}, allowed: a {unit} before the year {date.max.year}.")
    count = _count(periods)
    if count > most:
        raise Refusal(f"Found {count} {unit}s, allowed: at most {most}. Request a shorter period.")
    return periods


def _count(periods: Periods) -> int:
    first, last = periods.first, periods.last
    if periods.unit == "day":
        return (last - first).days + 1
    return (last.year - first.year) * 12 + last.month - first.month + 1


def latest(unit: Unit, count: int, now: datetime) -> Periods:
    """The last `count` periods, the present one last."""
    last = now.astimezone(UTC).date()
    if unit == "day":
        return Periods(unit, last - timedelta(days=count - 1), last)
    months = last.year * 12 + last.month - count
    return Periods(unit, date(months // 12, months % 12 + 1, 1), last.replace(day=1))


#: how each unit is written, and an example; for a month a day of it will do
_FORMS = {"day": (["%Y-%m-%d"], "2026-11-21"), "month": (["%Y-%m", "%Y-%m-%d"], "2026-11")}


def _read(unit: Unit, text: str) -> date:
    forms, example = _FORMS[unit]
    for form in forms:
        with suppress(ValueError):
            found = datetime.strptime(text.strip(), form).date()
            return found if unit == "day" else found.replace(day=1)
    raise Refusal(f"Found {text!r}, allowed: a {unit}, such as {example}.")


def moment(text: str) -> datetime:
    """An exact time; without a zone it is UTC, and a day alone is its midnight. Raises Refusal."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Refusal(f"Found {text!r}, allowed: a time, such as 2026-11-21T00:00:00Z.") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def times(after: str, before: str) -> tuple[datetime, datetime]:
    """Two exact times in order. Raises Refusal."""
    first, last = moment(after), moment(before)
    if first > last:
        raise Refusal(f"The first time, {after}, is after the last, {before}; swap them.")
    return first, last
