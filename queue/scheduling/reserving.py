"""Where a gang that cannot start now can start soonest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import NamedTuple

from scheduling.board import Board
from scheduling.cheapest import Cheapest, Cost
from scheduling.fitting import Parts, Shape, whole_hosts
from scheduling.host import Host
from scheduling.runs import EVERYBODY, Rights, Standing

#: (earliest, latest) start
Span = tuple[float, float]


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
        self._outlooks: dict[tuple[int, Rights], Outlook] = {}
        self._waits: dict[tuple[int, bool, Rights], tuple[Waits, Cheapest]] = {}

    def soonest(self, asker: Standing, shape: Shape, rights: Rights) -> Parts | None:
        """The unclaimed hosts where it can start first; None if all are claimed."""
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
        return min(choices, key=lambda choice: choice[0])[1] if choices else None

    def _for(self, need: int, whole: bool, rights: Rights) -> tuple[Waits, Cheapest]:
        key = (need, whole, rights)
        if key not in self._waits:
            waits = Waits(need, whole, self._now, partial(self._outlook, rights))
            self._waits[key] = waits, Cheapest(self._board, self._board.hosts_for(need, whole), waits)
        return self._waits[key]

    def _outlook(self, rights: Rights, host: Host, asker: Standing) -> Outlook:
        key = (host.index, rights)
        known = self._outlooks.get(key)
        if known is None or known.changes != host.changes or not asker < known.line:
            self._outlooks[key] = known = outlook(host, rights, asker, self._now)
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
            going_on.append((latest, earliest, run.parts[host.index]))
    ends: list[Span] = []
    last = first = now
    for latest, earliest, count in sorted(going_on):
        last, first = max(last, latest), max(first, earliest)
        ends += [(last, first)] * count
    return Outlook(stoppable, ends, line, host.changes)
