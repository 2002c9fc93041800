"""Where a request may run: one host, or whole hosts of equal size, now or once others have stopped.

Every function answers parts, [(host, slots there)], or None; nothing here changes the board.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from scheduling import reasons
from scheduling.board import Board, Host, Run
from scheduling.reasons import Reason
from scheduling.world import HostView, Request, SlotView, Snapshot

Parts = list[tuple[Host, int]]
MayStop = Callable[[Run], bool]
Cost = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """All that decides where a request may run. Requests of one shape share one answer."""

    need: int
    single_host: bool
    avoid: frozenset[str]
    heterogeneous: bool

    @classmethod
    def of(cls, request: Request, heterogeneous: bool) -> Shape:
        """Zero-slot work needs one place; work of one slot never spans hosts."""
        need = max(1, request.slots)
        return cls(need, request.single_host or need == 1, request.avoid_hosts, heterogeneous)


def whole_hosts(
    board: Board, shape: Shape, cost: Callable[[Host], Cost | None], preferred: Iterable[Host] = ()
) -> Parts | None:
    """The cheapest whole hosts of one size that make up `shape` (of any sizes, where the pool allows it).

    `cost` answers None for a host that cannot be had whole. `preferred` hosts come before all others.
    """
    if shape.single_host:
        return None
    first = {host.index for host in preferred}
    sizes = sorted(board.by_cap, key=lambda cap: (not any(h.index in first for h in board.by_cap[cap]), -cap))
    for cap in sizes:
        count, rest = divmod(shape.need, cap)
        if rest == 0 and count >= 2 and len(board.by_cap[cap]) >= count:
            chosen = _cheapest(board.by_cap[cap], shape, cost, first)[:count]
            if len(chosen) == count:
                return [(host, cap) for host in chosen]
    return _mixed(board, shape, cost, first) if shape.heterogeneous else None


def _cheapest(
    hosts: Iterable[Host], shape: Shape, cost: Callable[[Host], Cost | None], first: set[int]
) -> list[Host]:
    priced = []
    for host in hosts:
        price = None if host.avoided(shape.avoid) or host.strangers else cost(host)
        if price is not None:
            priced.append((host.index not in first, price, host.index, host))
    priced.sort(key=lambda entry: entry[:3])
    return [entry[3] for entry in priced]


def _mixed(board: Board, shape: Shape, cost: Callable[[Host], Cost | None], first: set[int]) -> Parts | None:
    parts: Parts = []
    left = shape.need
    for cap in sorted(board.by_cap, reverse=True):
        for host in _cheapest(board.by_cap[cap], shape, cost, first)[: left // cap]:
            parts.append((host, cap))
            left -= cap
    return parts if left == 0 else None


def now(board: Board, shape: Shape) -> Parts | None:
    """Free slots that nobody of higher standing needs."""
    host = next(board.firm_hosts(shape.need, shape.avoid), None)
    if host is not None:
        return [(host, shape.need)]
    return whole_hosts(board, shape, lambda host: () if host.free == host.cap and not host.claimed else None)


def on_sufferance(board: Board, shape: Shape) -> Parts | None:
    """Free slots that are kept for a gang which cannot use them yet."""
    if not board.reserved:
        return None  # then nothing is free but what `now` has looked at
    fitting = [h for h in board.reserved.values() if h.lendable >= shape.need and not h.avoided(shape.avoid)]
    if fitting:
        sign = -1 if board.worst else 1
        return [(min(fitting, key=lambda host: (sign * host.free, host.index)), shape.need)]
    return whole_hosts(board, shape, lambda host: () if host.lendable == host.cap else None)


def after_stops(
    board: Board, shape: Shape, own: list[Host], first: Callable[[], Host | None]
) -> Parts | None:
    """Slots that are free or being freed. `own`: hosts where runs are stopping for this very request.

    `first` answers the first host of the pool for which `comes_free` is true.
    """

    def whole(host: Host) -> Cost | None:
        return () if host.free + host.coming == host.cap and not host.claimed else None

    for host in sorted(own, key=lambda host: host.index):
        if comes_free(host, shape):
            return [(host, shape.need)]
    if own:
        parts = whole_hosts(board, shape, whole, own)
        if parts is not None and any(host in own for host, _ in parts):
            return parts
    single = first()
    return [(single, shape.need)] if single is not None else whole_hosts(board, shape, whole)


def comes_free(host: Host, shape: Shape) -> bool:
    """Will the runs that are stopping here leave room for it?"""
    return host.coming > 0 and host.soon >= shape.need and not host.avoided(shape.avoid)


def victims_on(host: Host, need: int, may_stop: MayStop) -> list[Run] | None:
    """The fewest runs to stop so that `need` slots come free here; None if that is not to be had."""
    missing = need - host.soon
    chosen: list[Run] = []
    for run in host.runs:
        if missing <= 0:
            break
        if not run.stopping and may_stop(run):
            chosen.append(run)
            missing -= run.parts[host.index]
    if missing > 0:
        return None
    for run in reversed(chosen[:-1]):  # a larger one chosen later may have made this one needless
        if run.parts[host.index] <= -missing:
            chosen.remove(run)
            missing += run.parts[host.index]
    return chosen


def price(victims: Iterable[Run]) -> Cost:
    """What stopping these costs: their highest priority first, then slots, unsaved runs, and age."""
    runs = list(victims)
    if not runs:
        return (-100, 0, 0, 0)
    return (
        -min(run.request.priority for run in runs),
        sum(run.held for run in runs),
        sum(not saves(run) for run in runs),
        -min(run.placement.started_at for run in runs),
    )


def saves(run: Run) -> bool:
    """Has it ever saved, or asked whether it should?"""
    return run.placement.last_saved_at is not None or run.placement.asked_preempt


def by_stopping(
    board: Board, shape: Shape, may_stop: MayStop, single: Host | None
) -> tuple[Parts, list[Run]] | None:
    """The parts that stopping the least opens, and whom to stop. `single`: the best single host, if any."""
    if single is not None:
        return [(single, shape.need)], victims_on(single, shape.need, may_stop) or []

    def whole(host: Host) -> Cost | None:
        if host.claimed:
            return None
        victims = victims_on(host, host.cap, may_stop)
        return None if victims is None else price(victims)

    parts = whole_hosts(board, shape, whole)
    if parts is None:
        return None
    victims: dict[int, Run] = {}
    for host, count in parts:
        victims.update((id(run), run) for run in victims_on(host, count, may_stop) or [])
    return parts, list(victims.values())


def soonest(
    board: Board, shape: Shape, may_stop: MayStop, at: float
) -> tuple[Parts, tuple[float, float] | None] | None:
    """The unclaimed hosts where the request can start first, and when (earliest, latest), if known."""

    def wait(host: Host, need: int) -> tuple[float, float, float] | None:
        """(latest, missing slots, earliest); infinite when unknown."""
        missing = need - host.soon
        ends = []
        for run in host.runs:
            if not run.stopping:
                if may_stop(run):
                    missing -= run.parts[host.index]
                else:
                    first, last = run.placement.ends or (float("inf"), float("inf"))
                    ends.append((last, first, run.parts[host.index]))
        short, latest, earliest = missing, at, at
        for last, first, count in sorted(ends):
            if short <= 0:
                break
            short -= count
            latest, earliest = max(latest, last), max(earliest, first)
        return (float("inf"), missing, float("inf")) if short > 0 else (latest, missing, earliest)

    choices: list[tuple[tuple[float, float, float], Parts]] = []
    for host in board.hosts:
        if host.cap - host.claimed >= shape.need and not host.avoided(shape.avoid):
            time = wait(host, shape.need)
            if time is not None:
                choices.append((time, [(host, shape.need)]))
    spread = whole_hosts(board, shape, lambda host: None if host.claimed else wait(host, host.cap))
    if spread is not None:
        times = [t for t in (wait(host, count) for host, count in spread) if t is not None]
        choices.append(
            ((max(t[0] for t in times), sum(t[1] for t in times), max(t[2] for t in times)), spread)
        )
    if not choices:
        return None
    (latest, _, earliest), parts = min(choices, key=lambda choice: choice[0])
    return parts, None if latest == float("inf") else (min(earliest, latest), latest)


def never(snapshot: Snapshot, shape: Shape, asks: int) -> Reason | None:
    """Why no waiting helps, or None. Counts every host and slot of the pool, also those that are off."""
    pool = snapshot.pool.name
    if not snapshot.hosts:
        return reasons.no_hosts(pool)
    if asks == 0:
        return None
    if _could(snapshot.hosts, shape, len):
        names = [host.name for host in snapshot.hosts if host.name in shape.avoid or host.id in shape.avoid]
        left = tuple(host for host in snapshot.hosts if host.name not in names)
        return None if _could(left, shape, len) else reasons.avoids(asks, names)
    sizes = sorted({len(host.slots) for host in snapshot.hosts if host.slots}, reverse=True)
    if not sizes:
        return reasons.no_slots(asks, pool)
    if shape.single_host:
        return reasons.never_on_one_host(asks, sizes[0])
    total = sum(len(host.slots) for host in snapshot.hosts)
    if asks > total and any(asks % size == 0 for size in sizes):
        return reasons.never_in_pool(asks, total)
    return reasons.not_a_multiple(asks, sizes)


def needs_hosts_that_are_off(snapshot: Snapshot, shape: Shape, asks: int) -> Reason | None:
    """Why it cannot start on what is switched on, although the pool's hosts would do; else None."""

    def usable(slots: tuple[SlotView, ...]) -> int:
        return sum(slot.usable for slot in slots)

    hosts = [h for h in snapshot.hosts if h.name not in shape.avoid and h.id not in shape.avoid]
    on = tuple(host for host in hosts if host.off is None)
    if (on and asks == 0) or (asks > 0 and _could(on, shape, usable)):
        return None
    off = [(host.name, host.off) for host in hosts if host.off is not None]
    for host in on:
        outside = sum(slot.outside is not None for slot in host.slots)
        out = sum(not slot.usable for slot in host.slots) - outside
        if outside:
            off.append((host.name, f"held from outside ({reasons.slots(outside)})"))
        if out:
            off.append((host.name, f"short of {reasons.slots(out)} (disabled or draining)"))
    return reasons.hosts_off(asks, [(name, why) for name, why in off if why is not None])


def _could(hosts: Iterable[HostView], shape: Shape, size: Callable[[tuple[SlotView, ...]], int]) -> bool:
    """Would `shape` fit if these hosts were empty? `size` counts the slots of a host that matter."""
    sizes: dict[int, int] = {}
    for host in hosts:
        slots = size(host.slots)
        if slots:
            sizes[slots] = sizes.get(slots, 0) + 1
    if any(cap >= shape.need for cap in sizes):
        return True
    if shape.single_host:
        return False
    if any(shape.need % cap == 0 and count >= shape.need // cap for cap, count in sizes.items()):
        return True
    left = shape.need
    for cap in sorted(sizes, reverse=True) if shape.heterogeneous else ():
        left -= cap * min(sizes[cap], left // cap)
    return left == 0 and shape.heterogeneous
