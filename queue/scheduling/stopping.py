"""Whom to stop: the hosts where stopping the least makes room, found by an index."""

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
from scheduling.runs import EVERYBODY, NOBODY, Rights, Run


@dataclass(frozen=True, slots=True)
class Offer:
    """Stopping `victims` makes room on a host, for all who stand before `line`, while the host does not change."""

    victims: Sequence[Run]
    line: Standing
    cost: Cost
    changes: int


class Stopping:
    """Finds victims for one request after the other, in the order of the queue."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._hosts: dict[tuple[int, bool, Rights], Cheapest] = {}
        self._offers: dict[tuple[int, int, Rights], Offer] = {}

    def best(self, asker: Standing, shape: Shape, rights: Rights) -> tuple[Parts, list[Run]] | None:
        """The parts that stopping the least opens, and whom to stop; None if no stopping is enough."""
        parts: Parts | None
        single = self._cheapest(shape.need, False, rights).first(asker, 1, shape.avoid)
        if single:
            parts = [(single[0], shape.need)]
        else:
            parts = whole_hosts(
                self._board,
                shape,
                lambda cap, count: self._cheapest(cap, True, rights).first(asker, count, shape.avoid),
            )
        if parts is None:
            return None
        victims: dict[Run, None] = {}
        for host, count in parts:
            offer = self._offer(count, rights, host, asker)
            victims.update(dict.fromkeys(offer.victims if offer else ()))
        return parts, list(victims)

    def _cheapest(self, need: int, whole: bool, rights: Rights) -> Cheapest:
        key = (need, whole, rights)
        if key not in self._hosts:
            if whole:
                hosts = [host for host in self._board.by_cap[need] if not host.strangers]
            else:
                hosts = [host for host in self._board.hosts if host.cap >= need and host.runs]
            bound, cost = partial(_bound, need), partial(self._cost, need, whole, rights)
            self._hosts[key] = Cheapest(self._board, hosts, bound, cost)
        return self._hosts[key]

    def _cost(self, need: int, whole: bool, rights: Rights, host: Host, asker: Standing) -> Cost | None:
        if whole and host.claimed:
            return None
        offer = self._offer(need, rights, host, asker)
        return offer.cost if offer else None

    def _offer(self, need: int, rights: Rights, host: Host, asker: Standing) -> Offer | None:
        key = (host.index, need, rights)
        known = self._offers.get(key)
        if known is not None and known.changes == host.changes and asker < known.line:
            return known
        victims = victims_on(host, need, rights, asker)
        if victims is None:
            return None
        line = min((rights.line(run) for run in victims), default=EVERYBODY)
        self._offers[key] = offer = Offer(victims, line, price(victims), host.changes)
        return offer


def _bound(need: int, host: Host) -> Cost | None:
    """The grade down to which runs must be stopped, whoever asks; None if that is never enough."""
    missing = need - host.soon
    if missing <= 0:
        return (-inf,)
    for run in host.runs:
        if run.line is not NOBODY and not run.stopping:
            missing -= run.parts[host.index]
            if missing <= 0:
                return (-run.grade,)
    return None


def victims_on(host: Host, need: int, rights: Rights, asker: Standing) -> list[Run] | None:
    """The fewest runs to stop so that `need` slots come free here; None if that is not to be had."""
    missing = need - host.soon
    chosen: list[Run] = []
    for run in host.runs:
        if missing <= 0:
            break
        if not run.stopping and asker < rights.line(run):
            chosen.append(run)
            missing -= run.parts[host.index]
    if missing > 0:
        return None
    for run in reversed(chosen[:-1]):  # a larger one chosen later may have made this one needless
        if run.parts[host.index] <= -missing:
            chosen.remove(run)
            missing += run.parts[host.index]
    return chosen


def price(victims: Sequence[Run]) -> Cost:
    """What stopping these costs: the lowest grade among them, then slots, unsaved runs, and age."""
    if not victims:
        return (-inf,)
    return (
        -min(run.grade for run in victims),
        sum(run.held for run in victims),
        sum(run.unsaved for run in victims),
        -min(run.started for run in victims),
    )
