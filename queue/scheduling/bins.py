"""Hosts filed by how many slots they have to give: the answer to "who has n?" without asking every host."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from scheduling.host import Host


class Bins:
    """One bin for each size of host and number of slots; in a bin, hosts stand as in the snapshot.

    Best fit looks into the bins of the fewest slots first, worst fit into those of the largest share.
    """

    def __init__(self, hosts: Sequence[Host], worst: bool) -> None:
        self._hosts = hosts
        self._worst = worst
        self._bins: dict[tuple[int, int], list[int]] = {}  # (slots when empty, slots to give) -> host indexes
        self._in_order: list[tuple[int, int]] = []
        self._slots = [0] * len(hosts)

    def file(self, host: Host, slots: int) -> None:
        """It has `slots` to give now; none, and it stands in no bin."""
        was = self._slots[host.index]
        if slots == was:
            return
        slots = max(slots, 0)
        self._slots[host.index] = slots
        if was:
            left = self._bins[host.cap, was]
            del left[bisect_left(left, host.index)]
        if slots:
            insort(self._bin(host.cap, slots), host.index)

    def _bin(self, cap: int, slots: int) -> list[int]:
        key = (cap, slots)
        if key not in self._bins:
            self._bins[key] = []
            self._in_order = sorted(self._bins, key=self._preference)
        return self._bins[key]

    def _preference(self, key: tuple[int, int]) -> tuple[float, int, int]:
        cap, slots = key
        return (-slots / cap if self._worst else slots, cap, slots)

    def fit(self, need: int, avoid: frozenset[str]) -> Host | None:
        """The host to take `need` slots of, or None."""
        for key in self._in_order:
            if key[1] >= need:
                host = next(self._of(key, avoid), None)
                if host is not None:
                    return host
        return None

    def whole(self, cap: int, count: int, avoid: frozenset[str]) -> list[Host]:
        """Up to `count` hosts of size `cap` that can be had whole."""
        whole = (host for host in self._of((cap, cap), avoid) if not host.strangers)
        return [host for host, _ in zip(whole, range(count), strict=False)]

    def _of(self, key: tuple[int, int], avoid: frozenset[str]) -> Iterator[Host]:
        for index in self._bins.get(key, ()):
            host = self._hosts[index]
            if not host.avoided(avoid):
                yield host
