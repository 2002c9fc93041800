"""Hosts by what they cost, each priced as late as possible."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Protocol

from scheduling.board import Board
from scheduling.host import Host
from scheduling.runs import Standing

Cost = tuple[float, ...]


class Prices(Protocol):
    """What hosts cost; None for "not here"."""

    def bound(self, host: Host) -> Cost | None:
        """What it costs at least, whoever asks; quickly answered."""

    def cost(self, host: Host, asker: Standing) -> Cost | None:
        """What it costs one who stands there in the queue."""

    def reached(self, asker: Standing, cost: Cost) -> bool:
        """May a host of that cost, or of a higher one, be had by who stands there? In doubt, yes."""


class Cheapest:
    """The hosts of least cost for those who ask, one after the other in the order of the queue.

    Costs rise as the pass goes on (who asks later may stop less, and others have taken what was cheap), except
    on hosts of which the board says that they were eased.
    """

    def __init__(self, board: Board, hosts: Iterable[Host], prices: Prices) -> None:
        self._board = board
        self._prices = prices
        self._cursor = len(board.eased)
        hosts, bound = list(hosts), prices.bound
        #: host index -> number of its entry; others in the heap are stale
        self._entry = dict.fromkeys([host.index for host in hosts], 0)
        #: (cost, host index, number)
        self._heap: list[tuple[Cost, int, int]] = [
            (price, host.index, 0) for host in hosts if (price := bound(host)) is not None
        ]
        heapq.heapify(self._heap)

    def _look_again(self, index: int) -> None:
        price = self._prices.bound(self._board.hosts[index])
        if price is not None:
            self._entry[index] += 1
            heapq.heappush(self._heap, (price, index, self._entry[index]))

    def first(self, asker: Standing, count: int, avoid: frozenset[str]) -> list[Host]:
        """Up to `count` hosts, the cheapest first (of equals, the first in the snapshot)."""
        eased = self._board.eased
        if self._cursor < len(eased):
            for index in self._entry.keys() & eased[self._cursor :]:
                self._look_again(index)
            self._cursor = len(eased)
        found: list[Host] = []
        passed: list[tuple[Cost, int, int]] = []
        for host in self._priced(asker, avoid, passed):
            found.append(host)
            if len(found) == count:
                break
            passed.append(heapq.heappop(self._heap))
        for entry in passed:
            heapq.heappush(self._heap, entry)
        return found

    def _priced(
        self, asker: Standing, avoid: frozenset[str], passed: list[tuple[Cost, int, int]]
    ) -> Iterator[Host]:
        """The host on top of the heap, priced for this asker; who wants the next takes it off before.

        Hosts to avoid are not priced: they are taken off, and `passed` tells them.
        """
        heap, hosts, cost_of = self._heap, self._board.hosts, self._prices.cost
        while heap:
            price, index, number = heap[0]
            if not self._prices.reached(asker, price):
                return
            if avoid and hosts[index].avoided(avoid):
                passed.append(heapq.heappop(heap))
                continue
            cost = cost_of(hosts[index], asker) if self._entry[index] == number else None
            if cost is None:
                heapq.heappop(heap)
            elif cost == price:
                yield hosts[index]
            else:
                heapq.heapreplace(heap, (cost, index, number))
