"""Windows: hosts that are taken for a time, for maintenance or for one group of people.

Work that is not of the group is placed there before only if its time limit ends it before the window starts, or if it
can be asked to save in time. What runs there is asked to save so early that it is gone at the start. A run that could
not save is left alone: it is in the way until it ends or a user stops it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter

from scheduling import reasons
from scheduling.reasons import Reason
from scheduling.world import HostView, Placement, PoolView, Release, Request, Snapshot, WindowView

NOWHERE: frozenset[str] = frozenset()
#: Seconds that work which must stop for a window runs at least before it is asked to save; else it does not start.
LEAST_RUN = 300.0


@dataclass(frozen=True, slots=True)
class Taken:
    """A window and the ids of its hosts."""

    window: WindowView
    hosts: frozenset[str]

    @property
    def what(self) -> str:
        """As sentences call it."""
        window = self.window
        if window.group:
            return f"the reservation {window.name} for group {window.group}"
        return f"maintenance {window.name}"

    def admits(self, request: Request) -> bool:
        """May the request use these hosts in this time?"""
        return bool(self.window.group) and self.window.group in request.groups


@dataclass(frozen=True, slots=True)
class Meeting:
    """A run that a window meets. `asked_at`: when it is asked to save; None: it is in the way, and `why`."""

    request: Request
    asked_at: float | None
    why: str = ""


class Closings:
    """The windows of a pool at one moment, found once in a pass.

    Requests that are alike in what windows ask share one answer.
    """

    @classmethod
    def of(cls, snapshot: Snapshot) -> Closings | None:
        """None for a pool without windows."""
        return cls(snapshot) if snapshot.pool.windows else None

    def __init__(self, snapshot: Snapshot) -> None:
        self._now = snapshot.now
        self._pool = snapshot.pool
        self._names = {host.id: host.name for host in snapshot.hosts}
        self.taken = list(_taken(snapshot))
        alike = ["time_left", "notice", "preemptible"]
        alike += ["priority"] if self._pool.min_runtime else []
        alike += ["groups"] if any(one.window.group for one in self.taken) else []
        #: the same of requests that are alike in what windows ask
        self.alike: Callable[[Request], tuple[object, ...]] = attrgetter(*alike)
        self._known: dict[tuple[object, ...], frozenset[str]] = {}
        self._notes: dict[tuple[object, ...], list[str]] = {}
        #: host id -> the group that it is reserved for now; empty under maintenance
        self.owners = {
            host: one.window.group
            for one in self.taken
            if one.window.starts <= self._now < one.window.ends
            for host in one.hosts
        }

    def in_order(self, hosts: Sequence[HostView]) -> tuple[HostView, ...]:
        """Hosts that are reserved now first: their group uses them before others. Those that will be taken last."""
        place = {}
        for one in self.taken:
            first = one.window.group and one.window.starts <= self._now
            place.update(dict.fromkeys(one.hosts, -1 if first else 1))
        return tuple(sorted(hosts, key=lambda host: place.get(host.id, 0)))

    def closed(self, request: Request) -> frozenset[str]:
        """Ids of the hosts on which the request may not start now."""
        key = self.alike(request)
        known = self._known.get(key)
        if known is None:
            found = NOWHERE.union(*(one.hosts for one in self._closing(request)))
            # one object for equal sets: the planner compares them often
            self._known[key] = known = next((one for one in self._known.values() if one == found), found)
        return known

    def _closing(self, request: Request) -> Iterator[Taken]:
        for one in self.taken:
            last = last_start(one, self._pool, request)
            if last < self._now < one.window.ends:
                yield one

    def reason(self, request: Request) -> Reason:
        """Why a request waits that could start if no host were closed to it."""
        first = min(
            self._closing(request), key=lambda one: (self._closes_again(one, request), one.window.ends)
        )
        if self._closes_again(first, request):
            return reasons.weekly_window(
                first.what, first.window.starts, first.window.ends, request.time_left is not None
            )
        return reasons.window(first.what, first.window.starts, first.window.ends, self._now)

    def closed_at(self, request: Request, at: float) -> frozenset[str]:
        """Ids of the hosts on which the request may not start at this time; infinite: that close at any time."""
        times = self.times(request)
        return NOWHERE.union(
            *(hosts for last, until, hosts in times if last < at and (at < until or at == inf))
        )

    def times(self, request: Request) -> list[tuple[float, float, frozenset[str]]]:
        """(last start, end, ids of hosts): when hosts are closed to the request."""
        lasts = [(last_start(one, self._pool, request), one) for one in self.taken]
        return [
            (last, inf if self._closes_again(one, request) else one.window.ends, one.hosts)
            for last, one in lasts
            if last < inf
        ]

    def _closes_again(self, taken: Taken, request: Request) -> bool:
        """Is the next time of a weekly window too near for the request to start when this one ends?"""
        window = taken.window
        return window.again < inf and _last(taken, self._pool, request, window.again) < window.ends

    def cuts(self, snapshot: Snapshot) -> dict[str, float]:
        """Task id -> when its run is asked to save for a window, the first of them."""
        found: dict[str, float] = {}
        for one in self.taken:
            for met in meetings(snapshot, one):
                if met.asked_at is not None:
                    task = met.request.task_id
                    found[task] = min(met.asked_at, found.get(task, inf))
        return found

    def notes(self, request: Request, host_id: str = "") -> list[str]:
        """What windows keep from the request, for the end of a sentence; of one host only, if that is given."""
        key = (self.alike(request), host_id)
        if key not in self._notes:
            self._notes[key] = self._noted(request, host_id)
        return self._notes[key]

    def _noted(self, request: Request, host_id: str) -> list[str]:
        found = []
        for one in self._closing(request):
            if host_id and host_id not in one.hosts:
                continue
            names = sorted(self._names[each] for each in one.hosts)
            where = "" if host_id else f"{reasons.listed(names)} {'is' if len(names) == 1 else 'are'} "
            found.append(
                f"{where}closed to it for {one.what} until {reasons.clock(one.window.ends, self._now)}"
            )
        return found


def unsettled(snapshot: Snapshot) -> dict[str, tuple[float, list[str]]]:
    """Window -> (its start, names of the hosts chosen for it), for windows so near that the choice must stay."""
    pool = snapshot.pool
    if all(one.hosts or one.starts - pool.window_ahead > snapshot.now for one in pool.windows):
        return {}
    names = {host.id: host.name for host in snapshot.hosts}
    return {
        one.window.name: (one.window.starts, sorted(names[host] for host in one.hosts))
        for one in _taken(snapshot)
        if not one.window.hosts and one.hosts and one.window.starts - pool.window_ahead <= snapshot.now
    }


def last_start(taken: Taken, pool: PoolView, request: Request) -> float:
    """When the request may start on these hosts at the latest, as long as the window is not over."""
    return _last(taken, pool, request, taken.window.starts)


def _last(taken: Taken, pool: PoolView, request: Request, starts: float) -> float:
    if taken.admits(request):
        return inf
    last = -inf
    if request.time_left is not None:
        last = starts - request.time_left - pool.overrun
    if request.preemptible:
        least = max(LEAST_RUN, pool.min_runtime_of(request.priority))
        last = max(last, starts - request.notice - least)
    return last if last > -inf else starts - pool.window_ahead


def releases(snapshot: Snapshot, closings: Closings) -> list[Release]:
    """The runs that must be asked to save now, so that they are gone when a window starts."""
    found: dict[str, Release] = {}
    for one in closings.taken:
        for met in meetings(snapshot, one):
            running = met.request.running
            if running is not None and met.asked_at is not None and met.asked_at <= snapshot.now:
                release = Release(running.allocation_id, met.request.task_id, window=one.window.name)
                found.setdefault(running.allocation_id, release)
    return list(found.values())


def meetings(snapshot: Snapshot, taken: Taken) -> list[Meeting]:
    """The runs that would still be there when the window starts, or are there in its time."""
    found = []
    hosts = taken.hosts
    for request in snapshot.requests:
        running = request.running
        if running is None or running.stopping or hosts.isdisjoint(running.slots):
            continue
        if taken.admits(request):
            continue
        if snapshot.now >= taken.window.ends or ends_by(snapshot, request, running) <= taken.window.starts:
            continue
        if not request.preemptible:
            found.append(Meeting(request, None, "not preemptible"))
        elif running.last_saved_at is None and not running.asked_preempt:
            found.append(Meeting(request, None, "has not saved yet, nor asked whether to stop"))
        else:
            found.append(Meeting(request, taken.window.starts - request.notice))
    return found


def ends_by(snapshot: Snapshot, request: Request, running: Placement) -> float:
    """When its time limit will have ended this run; infinite without one."""
    if request.time_left is None:
        return inf
    since = snapshot.now if running.running_since is None else running.running_since
    return since + request.time_left + snapshot.pool.overrun


def _taken(snapshot: Snapshot) -> Iterator[Taken]:
    """Each window with its hosts, those that name hosts first."""
    used: list[Taken] = []
    for window in sorted(snapshot.pool.windows, key=lambda one: (not one.hosts, one.starts, one.name)):
        if window.hosts:
            hosts: Iterable[HostView] = [host for host in snapshot.hosts if host.name in window.hosts]
        else:
            others = [
                one for one in used if one.window.starts < window.ends and window.starts < one.window.ends
            ]
            busy = NOWHERE.union(*(one.hosts for one in others))
            hosts = _chosen(snapshot, window, [host for host in snapshot.hosts if host.id not in busy])
        used.append(Taken(window, frozenset(host.id for host in hosts)))
        yield used[-1]


def _chosen(snapshot: Snapshot, window: WindowView, hosts: Sequence[HostView]) -> list[HostView]:
    """Whole hosts that have the window's slots, as few as possible.

    It depends on names, switches and work that cannot be stopped. Once the window is near, the choice is kept
    (`unsettled`), and the window then names these hosts.
    """
    whole = Taken(window, frozenset(host.id for host in hosts))
    firm = tuple([each for each in snapshot.requests if each.running is not None and not each.preemptible])
    in_the_way: set[str] = set()
    for met in meetings(replace(snapshot, requests=firm), whole):
        if met.request.running is not None:
            in_the_way.update(met.request.running.slots)
    order = sorted(
        hosts,
        key=lambda host: (
            host.draining or host.suspended or not host.enabled,
            host.id in in_the_way,
            host.name,
        ),
    )
    chosen: list[HostView] = []
    found = 0
    for host in order:
        if found < window.slots and host.slots:
            chosen.append(host)
            found += len(host.slots)
    for host in sorted(chosen, key=lambda host: len(host.slots)):  # a larger one may have made it needless
        if found - len(host.slots) >= window.slots:
            chosen.remove(host)
            found -= len(host.slots)
    return chosen
