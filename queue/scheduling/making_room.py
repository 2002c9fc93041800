"""Where a request that cannot start now gets slots: where stopping the least makes room, where a gang starts soonest.

Both are found by an index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from math import inf
from typing import NamedTuple

from scheduling.board import Board
from scheduling.cheapest import Cheapest, Cost
from scheduling.fitting import Parts, Shape, whole_hosts
from scheduling.group_rules import OfGroup
from scheduling.group_shares import Path, path_of
from scheduling.host import Host
from scheduling.runs import EVERYBODY, NOBODY, HeldRun, Rights, Standing, stop_order

#: what it costs where nothing must be stopped
NOTHING: Cost = (-inf,)
#: (earliest, latest) start
Span = tuple[float, float]


class Offer(NamedTuple):
    """Stopping `victims` makes room on a host, for all who stand before `line`, while the host does not change."""

    victims: Sequence[HeldRun]
    cost: Cost
    line: Standing
    changes: int


class Stopping:
    """Finds victims for one request after the other, in the order of the queue."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._offers: dict[tuple[int, bool, Rights, int], tuple[Offers, Cheapest]] = {}
        self._stoppable: dict[Rights, Counter[int]] = {}  # host index -> slots

    def best(
        self, asker: Standing, shape: Shape, rights: Rights, *, lent: bool
    ) -> tuple[Parts, list[HeldRun]] | None:
        """The parts that stopping the least opens, and whom to stop; None if no stopping is enough.

        `lent`: also on hosts that are reserved for a gang which cannot start yet, to run there until it can.
        """
        offers, cheapest = self._for(shape.need, False, rights, lent)
        single = cheapest.first(asker, 1, shape.avoid)
        if single:
            return [(single[0], shape.need)], list(offers.of(single[0], asker).victims)

        def candidates(cap: int, count: int) -> list[Host]:
            return self._for(cap, True, rights, lent)[1].first(asker, count, shape.avoid)

        parts = whole_hosts(self._board, shape, candidates)
        if parts is None:
            return None
        victims: dict[HeldRun, None] = {}  # a run may hold slots on several of the hosts
        for host, cap in parts:
            victims.update(dict.fromkeys(self._for(cap, True, rights, lent)[0].of(host, asker).victims))
        if all(len(run.parts) == 1 for run in victims):
            return parts, list(victims)
        return self._spared(shape, parts, sorted(victims, key=stop_order), lent)

    def _spared(
        self, shape: Shape, parts: Parts, victims: list[HeldRun], lent: bool
    ) -> tuple[Parts, list[HeldRun]]:
        """Without those made needless by a run that also holds other hosts: these come free as a whole too."""
        hosts = {index: self._board.hosts[index] for run in victims for index in run.parts}
        hosts |= {host.index: host for host, _ in parts}
        for run in reversed(victims):
            rest = [other for other in victims if other is not run]
            found = self._whole_after(shape, rest, hosts.values(), lent)
            if found is not None:
                victims = rest
        return self._whole_after(shape, victims, hosts.values(), lent) or parts, victims

    def _whole_after(
        self, shape: Shape, victims: list[HeldRun], hosts: Iterable[Host], lent: bool
    ) -> Parts | None:
        """The parts, of `hosts` that come free as a whole when these are stopped."""
        whole = [host for host in hosts if _comes_free(host, victims, lent) and not host.avoided(shape.avoid)]

        def candidates(cap: int, count: int) -> list[Host]:
            return [host for host in whole if host.cap == cap][:count]

        return whole_hosts(self._board, shape, candidates)

    def _for(self, need: int, whole: bool, rights: Rights, lent: bool) -> tuple[Offers, Cheapest]:
        #: where something is kept for others, more may be found each time that something is kept
        kept = 1 + len(self._board.kept) if lent and isinstance(rights, OfGroup) else int(lent)
        key = (need, whole, rights, kept)
        if key not in self._offers:
            rights = rights.lending() if lent else rights
            offers = Offers(need, whole, rights, lent)
            if isinstance(rights, OfGroup):
                hosts = self._promising(rights, need, whole, lent)
            else:
                hosts = self._board.hosts_for(need, whole)
            self._offers[key] = offers, Cheapest(self._board, hosts, offers)
        return self._offers[key]

    def _promising(self, rights: OfGroup, need: int, whole: bool, lent: bool) -> list[Host]:
        """Those on which enough may come free for requests with these rights: most hosts have few runs of a group.

        What is lent is looked for only where something is kept for others.
        """
        if rights not in self._stoppable:
            runs = self._board.runs if rights.takes else self._of_path.get(rights.path, ())
            self._stoppable[rights] = rights.look_at(run for run in runs if not run.stopping)
        stoppable, hosts = self._stoppable[rights], self._board.hosts
        if whole:  # the others have none of its runs, and are not whole without
            free = self._board.soon.whole(need, len(hosts), frozenset())
            mine = [hosts[index] for index in stoppable] + free + (self._board.kept if lent else [])
            found = [host for host in dict.fromkeys(mine) if host.cap == need and not host.strangers]
        elif lent:
            found = [host for host in dict.fromkeys(self._board.kept) if host.cap >= need]
        else:
            freed = {host.index for some in self._board.stopping_for.values() for host in some}
            found = [host for index in stoppable.keys() | freed if (host := hosts[index]).cap >= need]
        return [host for host in found if host.free + host.coming + stoppable[host.index] >= need]

    @cached_property
    def _of_path(self) -> dict[Path, list[HeldRun]]:
        found: dict[Path, list[HeldRun]] = {}
        for run in self._board.runs:
            found.setdefault(path_of(run.request), []).append(run)
        return found


class Offers:
    """What must be stopped on each host so that `need` slots come free there. `lent`: see `Stopping.best`."""

    def __init__(self, need: int, whole: bool, rights: Rights, lent: bool) -> None:
        self._need = need
        self._whole = whole
        self._rights = rights
        #: of the runs that may be stopped; None: that is found out run by run
        self._lines = rights.lines if isinstance(rights, OfGroup) else None
        self._lent = lent
        self._line_of = rights.line if self._lines is None else partial(_known_line, self._lines)
        self._known: dict[int, Offer] = {}

    def bound(self, host: Host) -> Cost | None:
        """The grade down to which runs must be stopped."""
        missing = self._need - (host.free + host.coming - (host.pledged if self._lent else host.claimed))
        if missing <= 0:  # `_missing`, spelled out for speed
            return NOTHING
        lines = self._lines
        for run in host.runs:
            if run.line is not NOBODY if lines is None else run in lines:
                missing -= run.parts[host.index]
                if missing <= 0:
                    return (-run.grade,)
        return None

    def cost(self, host: Host, asker: Standing) -> Cost | None:
        if self._whole and host.spoken_for(self._lent):
            return None
        offer = self._known.get(host.index)
        if offer is None or offer.changes != host.changes or not asker < offer.line:
            offer = self._made(host, asker)
            if offer is None:
                return None
            self._known[host.index] = offer
        return offer.cost

    def reached(self, asker: Standing, cost: Cost) -> bool:
        return self._rights.reaches(asker, -cost[0])

    def of(self, host: Host, asker: Standing) -> Offer:
        """The offer of a host for which this asker has just been told the cost."""
        return self._known[host.index]

    def _missing(self, host: Host) -> int:
        """Slots that do not come free by themselves."""
        return self._need - (host.free + host.coming - host.spoken_for(self._lent))

    def _made(self, host: Host, asker: Standing) -> Offer | None:
        """Stop as few runs as possible, in the order of stopping; None if all are not enough."""
        missing = self._missing(host)
        victims: list[HeldRun] = []
        index, line_of = host.index, self._line_of
        for run in host.runs:
            if missing <= 0:
                break
            if asker < line_of(run):
                victims.append(run)
                missing -= run.parts[index]
        if missing > 0:
            return None
        if missing < 0:
            _spare_the_needless(victims, index, -missing)
        if len(victims) == 1:
            run = victims[0]
            return Offer(
                victims, (-run.grade, run.held, run.unsaved, -run.started), line_of(run), host.changes
            )
        return Offer(victims, price(victims), min(map(line_of, victims), default=EVERYBODY), host.changes)


def _known_line(lines: Mapping[HeldRun, Standing], run: HeldRun) -> Standing:
    return lines.get(run, NOBODY)


def _comes_free(host: Host, victims: Sequence[HeldRun], lent: bool) -> bool:
    """As a whole, if these are stopped."""
    coming = host.coming + sum(run.parts.get(host.index, 0) for run in victims)
    return not host.strangers and not host.spoken_for(lent) and host.free + coming == host.cap


def _spare_the_needless(victims: list[HeldRun], index: int, over: int) -> None:
    """`over`: slots that come free beyond the need; a larger run stopped later may have made smaller ones needless."""
    for run in reversed(victims[:-1]):
        if run.parts[index] <= over:
            victims.remove(run)
            over -= run.parts[index]


def price(victims: Sequence[HeldRun]) -> Cost:
    """The lowest grade that is stopped, then slots, unsaved runs, and age."""
    if not victims:
        return NOTHING
    held = unsaved = 0
    oldest = inf
    for run in victims:
        held += run.held
        unsaved += run.unsaved
        if run.started < oldest:
            oldest = run.started
    return (-victims[-1].grade, held, unsaved, -oldest)


class Outlook(NamedTuple):
    """When slots of one host come free, for all who stand before `line`, while the host does not change.

    `stoppable`: slots of runs that may be stopped. `ends[n]`: (latest, earliest) time when n + 1 more have ended.
    """

    stoppable: int
    ends: Sequence[Span]
    line: Standing
    changes: int


class Reserving:
    """Finds hosts to keep for one gang after the other, in the order of the queue."""

    def __init__(self, board: Board, now: float) -> None:
        self._board = board
        self._now = now
        self._outlooks = Outlooks(now)
        self._waits: dict[tuple[int, bool, Rights], tuple[Waits, Cheapest]] = {}

    def soonest(self, asker: Standing, shape: Shape, rights: Rights) -> tuple[Span, Parts] | None:
        """((earliest, latest start), there): the unclaimed hosts where it can start first; None if all are claimed."""
        choices: list[tuple[Cost, Parts]] = []
        waits, cheapest = self._for(shape.need, False, rights)
        for host in cheapest.first(asker, 1, shape.avoid):
            choices.append((waits.wait(host, asker), [(host, shape.need)]))

        def candidates(cap: int, count: int) -> list[Host]:
            return self._for(cap, True, rights)[1].first(asker, count, shape.avoid)

        spread = whole_hosts(self._board, shape, candidates)
        if spread is not None:
            each = [self._for(cap, True, rights)[0].wait(host, asker) for host, cap in spread]
            latest, earliest = max(wait[0] for wait in each), max(wait[2] for wait in each)
            choices.append(((latest, sum(wait[1] for wait in each), earliest), spread))
        if not choices:
            return None
        cost, parts = min(choices, key=lambda choice: choice[0])
        return (cost[2], cost[0]), parts

    def _for(self, need: int, whole: bool, rights: Rights) -> tuple[Waits, Cheapest]:
        key = (need, whole, rights)
        if key not in self._waits:
            waits = Waits(need, whole, self._now, partial(self._outlooks.of, rights))
            self._waits[key] = waits, Cheapest(self._board, self._board.hosts_for(need, whole), waits)
        return self._waits[key]


class Outlooks:
    """Those of all hosts, each made once while it holds."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._known: dict[tuple[int, Rights], Outlook] = {}

    def of(self, rights: Rights, host: Host, asker: Standing) -> Outlook:
        key = (host.index, rights)
        known = self._known.get(key)
        if known is None or known.changes != host.changes or not asker < known.line:
            self._known[key] = known = outlook(host, rights, asker, self._now)
        return known


class Waits:
    """How long `need` slots of each host must be waited for."""

    def __init__(
        self, need: int, whole: bool, now: float, outlook: Callable[[Host, Standing], Outlook]
    ) -> None:
        self._need = need
        self._whole = whole
        self._now = now
        self._outlook = outlook

    def bound(self, host: Host) -> Cost | None:
        return None if host.claimed > host.cap - self._need else (self._now,)

    def cost(self, host: Host, asker: Standing) -> Cost | None:
        if host.cap - host.claimed < self._need or (self._whole and host.claimed):
            return None
        return self.wait(host, asker)

    def reached(self, asker: Standing, cost: Cost) -> bool:
        return True

    def wait(self, host: Host, asker: Standing) -> tuple[float, float, float]:
        """(latest, missing slots, earliest); infinite when unknown."""
        outlook = self._outlook(host, asker)
        missing = self._need - host.soon - outlook.stoppable
        if missing <= 0:
            return (self._now, missing, self._now)
        if missing > len(outlook.ends):
            return (inf, missing, inf)
        latest, earliest = outlook.ends[missing - 1]
        return (latest, missing, earliest)


def outlook(host: Host, rights: Rights, asker: Standing, now: float) -> Outlook:
    stoppable, line = 0, EVERYBODY
    going_on: list[tuple[float, float, int]] = []
    for run in host.runs:
        its_line = rights.line(run)
        if asker < its_line:
            stoppable += run.parts[host.index]
            line = min(line, its_line)
        else:
            earliest, latest = run.placement.ends or (inf, inf)
            if run.young and asker < rights.line_once_old(run):  # it may be stopped later
                earliest, latest = min(earliest, run.left_alone_until), min(latest, run.left_alone_until)
            going_on.append((latest, earliest, run.parts[host.index]))
    ends: list[Span] = []
    last = first = now
    for latest, earliest, count in sorted(going_on):
        last, first = max(last, latest), max(first, earliest)
        ends += [(last, first)] * count
    return Outlook(stoppable, ends, line, host.changes)
