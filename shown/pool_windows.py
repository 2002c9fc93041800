"""The windows of a pool with what each will do: which hosts it takes, whom it stops and who is in the way."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings

from dispatch.passes import survey
from hosts import pool_windows
from hosts.models import ResourcePool
from hosts.pool_windows import Window
from scheduling.windows import Closings, meetings


@dataclass(frozen=True)
class Met:
    """A run that a window meets. `at`: when it is asked to save; None: it stays, and `why`."""

    label: str
    slots: int
    at: datetime | None
    why: str


@dataclass(frozen=True)
class WindowRow:
    """`starts` and `ends` are of the time that is now or comes next. `takes`: names of the hosts, as chosen now.

    `open_until`: work that can neither save nor has a time limit starts there until then.
    """

    window: Window
    starts: datetime
    ends: datetime
    open_until: datetime
    is_now: bool
    takes: list[str]
    stops: list[Met]
    in_the_way: list[Met]


def of_pool(pool: ResourcePool, now: datetime) -> list[WindowRow]:
    """The windows that are not over, the next first."""
    if not pool.windows:
        return []
    snapshot = survey.take(pool, now)
    names = {host.id: host.name for host in snapshot.hosts}
    taken = {one.window.name: one for one in Closings(snapshot).taken}
    rows = []
    for window in pool_windows.of_pool(pool, now.timestamp()):
        one = taken[window.name]
        met = [
            Met(each.request.label, each.request.slots, _time(each.asked_at), each.why)
            for each in meetings(snapshot, one)
        ]
        rows.append(
            WindowRow(
                window,
                datetime.fromtimestamp(one.window.starts, UTC),
                datetime.fromtimestamp(one.window.ends, UTC),
                datetime.fromtimestamp(one.window.starts, UTC)
                - timedelta(seconds=settings.WINDOW_AHEAD_SECONDS),
                one.window.starts <= now.timestamp(),
                sorted(names[host] for host in one.hosts),
                [each for each in met if each.at is not None],
                [each for each in met if each.at is None],
            )
        )
    return rows


def coming(pool: ResourcePool, now: datetime) -> str:
    """The window that is now or comes next, in a sentence; empty without one."""
    for window in pool_windows.of_pool(pool, now.timestamp()) if pool.windows else ():
        if span := window.times.coming(now.timestamp()):
            what = (
                f"Reservation {window.name} for {window.group}"
                if window.group
                else f"Maintenance {window.name}"
            )
            takes = ", ".join(window.hosts) or f"{window.slots} slots"
            starts, ends = (datetime.fromtimestamp(at, UTC) for at in span)
            until = f"{ends:%H:%M}" if starts.date() == ends.date() else f"{ends:%a %b %d %H:%M}"
            return f"{what}: {takes}, {starts:%a %b %d %H:%M} to {until} UTC"
    return ""


def _time(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)
