"""Starts as the board says them, in UTC: a range, never a bare minute, for what is yet to come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.utils import timezone

NOT_KNOWN = "not known"


def clock(moment: datetime) -> str:
    """The minute in UTC, with the date before it unless it is today's, and the year if that is not this one."""
    moment = moment.astimezone(UTC)
    today = timezone.now().astimezone(UTC).date()
    if moment.date() == today:
        return f"{moment:%H:%M}"
    return f"{moment:%b %d %H:%M}" if moment.year == today.year else f"{moment:%b %d, %Y %H:%M}"


def exact(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def between(earliest: datetime, latest: datetime) -> str:
    """Return `12:44 to 12:50` in UTC; a span within one minute ends with the next one."""
    if clock(earliest) == clock(latest):
        latest += timedelta(minutes=1)
    same_day = earliest.date() == latest.date()
    return f"{clock(earliest)} to {f'{latest:%H:%M}' if same_day else clock(latest)}"


def said(by: str, span: list[float], said_at: float) -> tuple[str, str]:
    """(`Slurm expects 14:05`, its title) of a start that another scheduler expects, by its word of that moment."""
    start, at = (datetime.fromtimestamp(each, UTC) for each in (span[1], said_at))
    return f"{by} expects {clock(start)}", f"at {exact(start)}, reported by {by} at {exact(at)}"


def headed(start: str) -> str:
    """A start under a heading that says what it is: `12:44 to 12:50`, `Slurm: 14:05`."""
    return start.removeprefix("Starts ").replace(" expects ", ": ", 1)


def forecast(span: list[float] | None, now: datetime, does: str = "Starts") -> tuple[str, str]:
    """(`Starts 12:44 to 12:50`, its title) of (earliest, latest) in epoch seconds. `does`: what is to happen.

    An empty text: not known, with the reason as the title where there is one.
    """
    if span is None:
        return "", ""
    earliest, latest = (datetime.fromtimestamp(each, UTC) for each in span)
    if latest <= now:
        return "", "its forecast has passed; the next pass makes a new one"
    title = f"between {exact(earliest)} and {exact(latest)}"
    if earliest <= now:
        return f"{does} before {clock(latest + timedelta(minutes=1))}", title
    return f"{does} {between(earliest, latest)}", title
