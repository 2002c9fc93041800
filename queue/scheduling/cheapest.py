"""Hosts by what they cost, each priced as late as possible."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

from scheduling.board import Board
from scheduling.host import Host
from scheduling.ranking import Standing

Cost = tuple[float, ...]


class Cheapest:
    """The hosts of least cost for those who ask, one after the other in the order of the queue.

    `bound` answers at once what a host costs at least, `cost` what it costs one who stands at a given place; both
    answer None for "not here". Costs rise as the pass goes on (who asks later may stop less, and others
    have taken what was cheap), except on hosts of which the board says that they were eased.
    """

    def __init__(
        self,
        board: Board,
        hosts: Iterable[Host],
        bound: Callable[[Host], Cost | None],
        cost: Callable[[Host, Standing], Cost | None],
    ) -> None:
        self._board = board
        self._bound = bound
        self._cost = cost
        self._cursor = len(board.eased)
        self._among = frozenset(host.index for host in hosts)
        self._price: dict[int, Cost] = {}  # host index -> the price under which it stands in the heap now
        self._heap: list[tuple[Cost, int]] = []
        for host in hosts:
            price = bound(host)
            if price is not None:
                self._price[host.index] = price
                self._heap.append((price, host.index))
        heapq.heapify(self._heap)

    def first(self, asker: Standing, count: int, avoid: frozenset[str]) -> list[Host]:
        """Up to `count` hosts, the cheapest first (of equals, the first in the snapshot)."""
        self._look_again_at_eased_hosts()
        found: list[Host] = []
        passed: list[tuple[Cost, int]] = []
        for entry in self._priced(asker):
            host = self._board.hosts[entry[1]]
            if not host.avoided(avoid):
                found.append(host)
                if len(found) == count:
                    break
            passed.append(heapq.heappop(self._heap))
        for entry in passed:
            heapq.heappush(self._heap, entry)
        return found

    def _priced(self, asker: Standing) -> Iterator[tuple[Cost, int]]:
        """The top of the heap, priced for this asker, until nothing is left; who goes on takes it off before."""
        heap = self._heap
        while heap:
            price, index = heap[0]
            if self._price.get(index) is not price:  # it stands elsewhere in the heap by now
                heapq.heappop(heap)
                continue
            cost = self._cost(self._board.hosts[index], asker)
            if cost is None:
                heapq.heappop(heap)
                del self._price[index]
            elif cost == price:
                yield heap[0]
            else:
                self._price[index] = cost
                heapq.heapreplace(heap, (cost, index))

    def _look_again_at_eased_hosts(self) -> None:
        eased = self._board.eased
        if self._cursor < len(eased):
            for index in self._among.intersection(eased[self._cursor :]):
                price = self._bound(self._board.hosts[index])
                if price is not None:
                    self._price[index] = price
                    heapq.heappush(self._heap, (price, index))
            self._cursor = len(eased)
