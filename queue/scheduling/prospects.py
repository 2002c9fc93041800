"""What the hosts of a pool could take if they were empty: why a request never starts, whatever ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from operator import attrgetter

from scheduling import reasons
from scheduling.fitting import Shape
from scheduling.host import agreeable, apart_of, meeting
from scheduling.reasons import Reason
from scheduling.spares import RECOVERIES, Spares
from scheduling.windows import NOWHERE, Closings
from scheduling.world import HostView, Request, Snapshot


class Prospects:
    """Asked once for each shape; a shape costs no look at every host. `only`: names of hosts, the others left out."""

    def __init__(
        self,
        snapshot: Snapshot,
        only: frozenset[str] = frozenset(),
        closings: Closings | None = None,
        spares: Spares | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._only = only
        self._unready = sorted(only & snapshot.pool.unready)
        self._among: dict[frozenset[str], Prospects] = {}
        self._index: dict[str, int] = {}  # host id or name -> index
        for index, host in enumerate(snapshot.hosts):
            self._index[host.id] = self._index[host.name] = index
        self._sizes = Counter(len(host.slots) for host in snapshot.hosts)
        #: host id -> slots that can be used there, of hosts that are on
        self._usable = {host.id: _usable(host) for host in snapshot.hosts if host.off is None}
        self._sizes_on = Counter(self._usable.values())
        self._needing = [host for host in snapshot.hosts if host.needs_account]
        self._known: dict[tuple[object, ...], Reason | None] = {}
        #: what windows take
        self.closings = closings or Closings.of(snapshot)
        self.spares = spares or Spares.of(snapshot, self.closings)
        self._unions: dict[tuple[frozenset[str], frozenset[str]], frozenset[str]] = {}

    @property
    def closes(self) -> bool:
        """Are there requests to which hosts are closed?"""
        return self.closings is not None or self.spares is not None

    @property
    def owners(self) -> dict[str, str]:
        """Host id -> as whose share its free slots count now (`Spares.shares_of`); empty under maintenance."""
        spares = dict.fromkeys(self.spares.ids, RECOVERIES) if self.spares else {}
        return {**self.closings.owners, **spares} if self.closings else spares

    def closed(self, request: Request) -> frozenset[str]:
        """Ids of the hosts that a window, or being kept as spares, closes to this request now."""
        by_windows = NOWHERE if self.closings is None else self.closings.closed(request)
        kept = NOWHERE if self.spares is None else self.spares.closed(request)
        if not (by_windows and kept):
            return by_windows or kept
        # one object for equal sets: the planner compares them often
        return self._unions.setdefault((by_windows, kept), by_windows | kept)

    def closed_at(self, request: Request, at: float) -> frozenset[str]:
        """Ids of the hosts that a window closes to it at another time."""
        return NOWHERE if self.closings is None else self.closings.closed_at(request, at)

    def alike(self, request: Request) -> object:
        """Equal for requests to which the same hosts are closed at all times."""
        by_windows = None if self.closings is None else self.closings.alike(request)
        return by_windows if self.spares is None else (by_windows, self.spares.may_use(request))

    def notes(self, request: Request) -> list[str]:
        """Which hosts it does without now, although they could take it."""
        notes = reasons.failed_there(request.failed_hosts)
        if self.closings is not None:
            notes = [*notes, *self.closings.notes(request)]
        return [*notes, *self.note_of_spares(request)] if self.spares is not None else notes

    def kept_for(self, request: Request) -> frozenset[str]:
        """Ids of the spares that it may use, once nothing else is free."""
        return self.spares.ids if self.spares is not None and request.recovers else NOWHERE

    def note_of_spares(self, request: Request) -> list[str]:
        """Which hosts are kept from it."""
        kept = self.spares is not None and self.spares.closed(request)
        return [self.spares.note] if kept and self.spares else []

    def notes_of_host(self, request: Request, host_id: str) -> list[str]:
        """Why this host is closed to it now."""
        notes = self.closings.notes(request, host_id) if self.closings else []
        kept = self.spares is not None and host_id in self.spares.closed(request)
        return [*notes, "kept as a spare"] if kept else notes

    def hopeless(self, request: Request) -> Reason | None:
        """Why a request of this shape cannot start although nothing else ran, now or ever; None if it could."""
        if request.only_hosts != self._only:
            return self.of(request).hopeless(request)
        closed = self.closed(request)
        key = (
            request.slots, request.single_host, request.avoid_hosts, request.has_account, request.recovers, closed,
        )  # fmt: skip
        if key not in self._known:
            self._known[key] = self._hopeless(request) or self._closed_to(request, closed)
        return self._known[key]

    def _closed_to(self, request: Request, closed: frozenset[str]) -> Reason | None:
        """Why it cannot start on the hosts that are not closed to it; None if it could."""
        if not closed or not self._hopeless_without(request, closed):
            return None
        if self.closings and self._hopeless_without(request, self.closings.closed(request)):
            return self.closings.reason(request)
        return self.spares.reason(request) if self.spares else None

    def _hopeless_without(self, request: Request, hosts: frozenset[str]) -> Reason | None:
        return self._hopeless(replace(request, avoid_hosts=request.avoid_hosts | hosts)) if hosts else None

    def _hopeless(self, request: Request) -> Reason | None:
        shape = Shape.of(request, self._snapshot.pool.allow_heterogeneous_fits)
        return (
            self.lacks_account(request)
            or self.never(shape, request.slots)
            or self.never_beside_spares(request)
            or self.needs_hosts_that_are_off(shape, request.slots)
            or self.bad_pairs(shape)
        )

    def of(self, request: Request) -> Prospects:
        """What the hosts could take that the request's config allows."""
        only = request.only_hosts
        if only == self._only:
            return self
        if only not in self._among:
            places = sorted(self._index[name] for name in only if name in self._index)
            hosts = tuple(self._snapshot.hosts[place] for place in places)
            among = replace(self._snapshot, hosts=hosts)
            self._among[only] = Prospects(among, only, self.closings, self.spares)
        return self._among[only]

    def _told(self, reason: Reason | None) -> Reason | None:
        if reason is None or not self._only:
            return reason
        gone = self._only.difference(self._index, self._unready)
        return reasons.among(reason, reasons.only_hosts(sorted(self._only), sorted(gone)))

    def too_long(self, request: Request) -> Reason | None:
        """Why it never runs here, where that is for its time limit."""
        longest = self._snapshot.pool.longest_max_time
        if longest is None or request.max_time is None or request.max_time <= longest:
            return None
        return reasons.time_limit(request.max_time, longest, self._snapshot.pool.name)

    def lacks_account(self, request: Request) -> Reason | None:
        """Why it never runs here, where that is because its owner has no account of their own."""
        if request.has_account or not self._needing:
            return None
        shape = Shape.of(request, self._snapshot.pool.allow_heterogeneous_fits)
        needing = {host.id for host in self._needing}
        own = [host for host in self._avoided(shape) if host.id not in needing]
        with_them = self._sizes - Counter(len(host.slots) for host in own)
        left = with_them - Counter(len(host.slots) for host in self._needing)
        if len(self._needing) + len(own) == len(self._snapshot.hosts) or (
            request.slots and could(with_them, shape) and not could(left, shape)
        ):
            pool = self._snapshot.pool
            return reasons.lacks_account(
                [host.name for host in self._needing], pool.name, shared=pool.shared_account
            )
        return None

    def never(self, shape: Shape, asks: int) -> Reason | None:
        """Why no waiting helps, or None. Counts every host and slot of the pool, also those that are off."""
        if self._unready:  # nobody knows how large they are
            return None
        if self._only and not self._snapshot.hosts:
            return reasons.hosts_gone(sorted(self._only))
        return self._told(self._never(shape, asks))

    def never_beside_spares(self, request: Request) -> Reason | None:
        """Why the hosts that are not kept as spares are always too few for it, or None."""
        if self.spares is None or self.spares.may_use(request) or self._unready:
            return None
        shape = Shape.of(request, self._snapshot.pool.allow_heterogeneous_fits)
        return self._told(self.spares.never(request.slots, _fewest(self._sizes, shape)))

    def _never(self, shape: Shape, asks: int) -> Reason | None:
        pool = self._snapshot.pool.name
        if not self._snapshot.hosts:
            return reasons.no_hosts(pool)
        if asks == 0:
            return None
        avoided = self._avoided(shape)
        if could(self._sizes, shape):
            left = self._sizes - Counter(len(host.slots) for host in avoided)
            return None if could(left, shape) else reasons.avoids(asks, [host.name for host in avoided])
        sizes = sorted((size for size in self._sizes if size), reverse=True)
        if not sizes:
            return reasons.no_slots(asks, pool)
        if shape.single_host:
            return reasons.never_on_one_host(asks, sizes[0])
        total = sum(size * count for size, count in self._sizes.items())
        if asks > total and any(asks % size == 0 for size in sizes):
            off = [host.off for host in self._snapshot.hosts if host.off is not None]
            return reasons.never_in_pool(asks, total, len(self._snapshot.hosts), off)
        return reasons.not_a_multiple(asks, sizes)

    def needs_hosts_that_are_off(self, shape: Shape, asks: int) -> Reason | None:
        """Why it cannot start on what is switched on, although the pool's hosts would do; else None."""
        avoided = self._avoided(shape)
        on = self._sizes_on - Counter(self._usable[host.id] for host in avoided if host.off is None)
        has_hosts = self._snapshot.hosts or self._unready
        if not has_hosts or (on and asks == 0) or (asks > 0 and could(on, shape)):
            return None
        names = {host.name for host in avoided}
        hosts = [host for host in self._snapshot.hosts if host.name not in names]
        off = [(host.name, why) for host in hosts if (why := host.off) is not None]
        off += [(name, "not ready") for name in self._unready]
        for host in hosts:
            if host.off is None:
                off += [(host.name, why) for why in _short_of(host)]
        return self._told(reasons.hosts_off(asks, off))

    def bad_pairs(self, shape: Shape) -> Reason | None:
        """Why no gang of this shape can be formed, where that is because ranks cannot meet; else None."""
        bad = self._snapshot.pool.bad_pairs
        if not bad or any(cap >= shape.need for cap in self._sizes_on):
            return None
        avoided = {host.id for host in self._avoided(shape)}
        hosts = {h.id: h for h in self._snapshot.hosts if h.off is None and h.id not in avoided}
        apart = apart_of(bad)
        left = meeting(agreeable(hosts, apart), apart)
        if could(Counter(_usable(hosts[host_id]) for host_id in left), shape):
            return None
        known = [sorted(hosts[host_id].name for host_id in pair) for pair in bad if pair <= hosts.keys()]
        return self._told(reasons.bad_pairs(sorted((first, second) for first, second in known)))

    def _avoided(self, shape: Shape) -> list[HostView]:
        """In the order of the snapshot."""
        indexes = {self._index[name] for name in shape.avoid if name in self._index}
        return [self._snapshot.hosts[index] for index in sorted(indexes)]


def demand(queue: Iterable[Request], prospects: Prospects) -> list[Request]:
    """The slot work that runs, and what waits and could start if it were alone; without what yields to all."""
    closes, able = prospects.closes, dict[object, bool]()
    found = []
    for request in queue:
        if not request.slots or request.blocked is not None or request.yields:
            continue
        if request.running is None:
            key = (_kind(request), closes and prospects.alike(request))
            may = able.get(key)
            if may is None:
                able[key] = may = not (prospects.hopeless(request) or prospects.too_long(request))
            if not may:
                continue
        found.append(request)
    return found


#: what decides, besides windows, whether a request could start if it were alone
_kind: Callable[[Request], tuple[object, ...]] = attrgetter(
    "slots", "single_host", "avoid_hosts", "has_account", "only_hosts", "max_time"
)


def elsewhere_first(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which requests that could not be started somewhere are tried elsewhere first.

    They avoid their `failed_hosts`, unless nothing else that is on could take them.
    """
    if not any(request.failed_hosts and request.running is None for request in snapshot.requests):
        return snapshot
    prospects = Prospects(snapshot)
    return replace(snapshot, requests=tuple(_elsewhere_first(prospects, each) for each in snapshot.requests))


def _elsewhere_first(prospects: Prospects, request: Request) -> Request:
    if not request.failed_hosts or request.running is not None:
        return request
    elsewhere = replace(request, avoid_hosts=request.avoid_hosts | request.failed_hosts)
    if prospects.hopeless(elsewhere) is None:
        return elsewhere
    return replace(request, failed_hosts=frozenset())


def _usable(host: HostView) -> int:
    usable = [
        slot
        for slot in host.slots
        if slot.enabled and not slot.draining and slot.outside is None and slot.cleaning is None
    ]  # usable, spelled out for speed
    return len(usable)


def _short_of(host: HostView) -> Iterator[str]:
    """Why not all slots of a host that is on can be used."""
    outside = sum(slot.outside is not None for slot in host.slots)
    after = [slot.cleaning for slot in host.slots if slot.outside is None and slot.cleaning is not None]
    out = len(host.slots) - _usable(host) - outside - len(after)
    if outside:
        yield f"in use from outside the queue ({reasons.slots(outside)})"
    if after:
        listed = reasons.listed(dict.fromkeys(after))
        yield f"short of {reasons.slots(len(after))} (being cleaned up after {listed})"
    if out:
        yield f"short of {reasons.slots(out)} (disabled or draining)"


def _fewest(sizes: Counter[int], shape: Shape) -> int:
    """How many hosts of these sizes `shape` takes at least, where it fits at all."""
    caps = sorted((cap for cap in sizes if cap), reverse=True)
    if not caps or caps[0] >= shape.need:
        return 1
    for cap in caps:
        if shape.need % cap == 0 and sizes[cap] >= shape.need // cap:
            return shape.need // cap
    left, hosts = shape.need, 0
    for cap in caps:
        count = min(sizes[cap], left // cap)
        left, hosts = left - cap * count, hosts + count
    return hosts


def could(sizes: Counter[int], shape: Shape) -> bool:
    """Would `shape` fit if hosts of these sizes were empty?"""
    if any(cap >= shape.need for cap in sizes):
        return True
    if shape.single_host:
        return False
    caps = sorted((cap for cap in sizes if cap), reverse=True)
    if any(shape.need % cap == 0 and sizes[cap] >= shape.need // cap for cap in caps):
        return True
    left = shape.need
    for cap in caps if shape.heterogeneous else ():
        left -= cap * min(sizes[cap], left // cap)
    return left == 0 and shape.heterogeneous
