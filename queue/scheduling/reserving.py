"""Where a gang that cannot start now can start soonest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from scheduling.board import Board
from scheduling.cheapest import Cheapest, Cost
from scheduling.fitting import Parts, Shape, whole_hosts
from scheduling.host import Host
from scheduling.ranking import Standing
from scheduling.runs import EVERYBODY, Rights

#: (earliest, latest) start
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Outlook:
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
        self._hosts: dict[tuple[int, bool, Rights], Cheapest] = {}
        self._outlooks: dict[tuple[int, Rights], Outlook] = {}

    def soonest(self, asker: Standing, shape: Shape, rights: Rights) -> tuple[Parts, Span | None] | None:
        """The unclaimed hosts where it can start first, and when, if that is known; None if all are claimed."""
        choices: list[tuple[Cost, Parts]] = []
        single = self._cheapest(shape.need, False, rights).first(asker, 1, shape.avoid)
        if single:
            choices.append((self._wait(shape.need, rights, single[0], asker), [(single[0], shape.need)]))
        spread = whole_hosts(
            self._board,
            shape,
            lambda cap, count: self._cheapest(cap, True, rights).first(asker, count, shape.avoid),
        )
        if spread is not None:
            waits = [self._wait(count, rights, host, asker) for host, count in spread]
            latest, earliest = max(wait[0] for wait in waits), max(wait[2] for wait in waits)
            choices.append(((latest, sum(wait[1] for wait in waits), earliest), spread))
        if not choices:
            return None
        (latest, _, earliest), parts = min(choices, key=lambda choice: choice[0])
        return parts, None if latest == inf else (min(earliest, latest), latest)

    def _cheapest(self, need: int, whole: bool, rights: Rights) -> Cheapest:
        key = (need, whole, rights)
        if key not in self._hosts:
            if whole:
                hosts = [host for host in self._board.by_cap[need] if not host.strangers]
            else:
                hosts = [host for host in self._board.hosts if host.cap >= need]
            cost = partial(self._cost, need, whole, rights)
            self._hosts[key] = Cheapest(self._board, hosts, lambda host: (self._now,), cost)
        return self._hosts[key]

    def _cost(self, need: int, whole: bool, rights: Rights, host: Host, asker: Standing) -> Cost | None:
        if host.cap - host.claimed < need or (whole and host.claimed):
            return None
        return self._wait(need, rights, host, asker)

    def _wait(self, need: int, rights: Rights, host: Host, asker: Standing) -> tuple[float, float, float]:
        """(latest, missing slots, earliest); infinite when unknown."""
        outlook = self._outlook(rights, host, asker)
        missing = need - host.soon - outlook.stoppable
        if missing <= 0:
            return (self._now, missing, self._now)
        if missing > len(outlook.ends):
            return (inf, missing, inf)
        latest, earliest = outlook.ends[missing - 1]
        return (latest, missing, earliest)

    def _outlook(self, rights: Rights, host: Host, asker: Standing) -> Outlook:
        key = (host.index, rights)
        known = self._outlooks.get(key)
        if known is not None and known.changes == host.changes and asker < known.line:
            return known
        stoppable, line = 0, EVERYBODY
        going_on: list[tuple[float, float, int]] = []
        for run in host.runs:
            if not run.stopping:
                if asker < rights.line(run):
                    stoppable += run.parts[host.index]
                    line = min(line, rights.line(run))
                else:
                    earliest, latest = run.placement.ends or (inf, inf)
                    going_on.append((latest, earliest, run.parts[host.index]))
        ends: list[Span] = []
        last, first = self._now, self._now
        for latest, earliest, count in sorted(going_on):
            last, first = max(last, latest), max(first, earliest)
            ends += [(last, first)] * count
        self._outlooks[key] = outlook = Outlook(stoppable, ends, line, host.changes)
        return outlook
