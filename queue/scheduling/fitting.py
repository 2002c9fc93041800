"""Where a request may run: one host, or whole hosts of equal size, now or once what is stopping has ended.

Every function answers parts, [(host, slots there)], or None; nothing here changes the board.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from scheduling.board import Board
from scheduling.host import Host, agreeable, meeting
from scheduling.world import Request

Parts = list[tuple[Host, int]]
#: (size, how many at most) -> hosts of that size that can be had whole, the best first
Candidates = Callable[[int, int], list[Host]]


@dataclass(frozen=True, slots=True)
class Shape:
    """All that decides where a request may run. Requests of one shape share one answer."""

    need: int
    single_host: bool
    avoid: frozenset[str]
    heterogeneous: bool

    @classmethod
    def of(cls, request: Request, heterogeneous: bool, closed: frozenset[str] = frozenset()) -> Shape:
        """Zero-slot work needs one place; work of one slot never spans hosts. `closed`: ids of hosts to do without."""
        need = max(1, request.slots)
        return cls(need, request.single_host or need == 1, request.avoid_hosts | closed, heterogeneous)


def whole_hosts(
    board: Board, shape: Shape, candidates: Candidates, sizes: Iterable[int] | None = None
) -> Parts | None:
    """The best whole hosts of one size that make up `shape`, or of any sizes where the pool allows it.

    `sizes`: which to try, in order; all of the board's, the largest first, if not given.
    """
    if shape.single_host:
        return None
    for cap in sizes or board.by_cap:
        count, rest = divmod(shape.need, cap)
        if rest == 0 and 2 <= count <= len(board.by_cap[cap]):
            hosts = _can_meet(board, candidates, cap, count, [])
            if len(hosts) == count:
                return [(host, cap) for host in hosts]
    return _mixed(board, shape, candidates) if shape.heterogeneous else None


def _mixed(board: Board, shape: Shape, candidates: Candidates) -> Parts | None:
    parts: Parts = []
    left = shape.need
    for cap in board.by_cap:
        for host in _can_meet(board, candidates, cap, left // cap, [host for host, _ in parts]):
            parts.append((host, cap))
            left -= cap
    return parts if left == 0 else None


def _can_meet(
    board: Board, candidates: Candidates, cap: int, count: int, others: Sequence[Host]
) -> list[Host]:
    """The first `count` candidates whose ranks can meet each other and those on `others`; or fewer."""
    if not count or not board.apart:
        return candidates(cap, count) if count else []
    hosts = {host.view.id: host for host in candidates(cap, len(board.by_cap[cap]))}
    held = [host.view.id for host in others]
    chosen = meeting(hosts, board.apart, held)
    if len(chosen) < count:
        chosen = meeting(agreeable(hosts, board.apart), board.apart, held)
    return [hosts[host_id] for host_id in chosen[:count]]


def now(board: Board, shape: Shape, last: frozenset[str] = frozenset()) -> Parts | None:
    """Free slots that nobody of higher standing needs. `last`: ids of hosts that are used only if no others do."""
    if last and (found := now(board, replace(shape, avoid=shape.avoid | last))) is not None:
        return found
    host = board.firm.fit(shape.need, shape.avoid)
    if host is not None:
        return [(host, shape.need)]
    return whole_hosts(board, shape, lambda cap, count: board.firm.whole(cap, count, shape.avoid))


def on_sufferance(board: Board, shape: Shape) -> Parts | None:
    """Free slots that are kept for a gang which cannot use them yet. (Where `now` found none.)"""
    host = board.lendable.fit(shape.need, shape.avoid)
    if host is not None:
        return [(host, shape.need)]
    return whole_hosts(board, shape, lambda cap, count: board.lendable.whole(cap, count, shape.avoid))


def after_own_stops(board: Board, shape: Shape, own: Collection[Host], *, lent: bool) -> Parts | None:
    """Slots that are free or being freed, some of them on `own`: hosts where runs are stopped for this very request.

    `lent`: also those that are kept for a gang which cannot use them yet.
    """
    own = [host for host in sorted(own, key=lambda host: host.index) if not host.avoided(shape.avoid)]
    soon = {host.index: host.free + host.coming - host.spoken_for(lent) for host in own}
    for host in own:
        if soon[host.index] >= shape.need:
            return [(host, shape.need)]
    mine = [host for host in own if soon[host.index] == host.cap and not host.strangers]

    def candidates(cap: int, count: int) -> list[Host]:
        first = [host for host in mine if host.cap == cap]
        more = _free_first(board, cap, count + len(first), shape.avoid)
        return [*first, *(host for host in more if host not in first)][:count]

    return (
        whole_hosts(board, shape, candidates, sorted({host.cap for host in mine}, reverse=True))
        if mine
        else None
    )


def after_stops(board: Board, shape: Shape, own: Collection[Host]) -> Parts | None:
    """Slots that are free or being freed, on `own` if possible (where `now` found none)."""
    parts = after_own_stops(board, shape, own, lent=False) if own else None
    if parts is not None:
        return parts
    fitting = board.soon.fit(shape.need, shape.avoid)
    if fitting is not None:
        return [(fitting, shape.need)]
    return whole_hosts(board, shape, lambda cap, count: _free_first(board, cap, count, shape.avoid))


def _free_first(board: Board, cap: int, count: int, avoid: frozenset[str]) -> list[Host]:
    """Up to `count` whole hosts: the free ones, then those being freed."""
    free = board.firm.whole(cap, count, avoid)
    if len(free) == count:
        return free
    taken = set(free)
    soon = board.soon.whole(cap, count + len(free), avoid)
    return [*free, *(host for host in soon if host not in taken)][:count]
