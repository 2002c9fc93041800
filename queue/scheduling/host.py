"""One host during a pass, hosts filed by their slots, and pairs of hosts that cannot meet: no gang has both."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scheduling.runs import HeldRun
from scheduling.world import HostView, Request

#: host id -> hosts that cannot be in one gang with it
Apart = Mapping[str, frozenset[str]]


@dataclass(slots=True, eq=False)
class Host:
    """Slots are counted; `ids` names the free ones, lowest index last."""

    index: int
    view: HostView
    cap: int = 0  # what may be placed here when it is empty
    free: int = 0
    coming: int = 0  # held by runs that are stopping
    claimed: int = 0  # spoken for by requests of higher standing that wait
    pledged: int = 0  # of these, by requests that start as soon as the stopping runs have ended
    spoken: dict[str, int] = field(default_factory=dict)  # task id -> free slots among those it is pledged
    strangers: int = 0  # held slots on which nothing new may be placed
    cleaned: list[str] = field(default_factory=list)  # after whom slots are cleaned up
    ids: list[int] = field(default_factory=list)
    runs: list[HeldRun] = field(
        default_factory=list
    )  # those that continue; the first to be stopped comes first
    stopping: list[HeldRun] = field(default_factory=list)
    by: list[Request] = field(default_factory=list)  # who laid the claims
    changes: int = 0  # how often any of these numbers has changed

    @property
    def soon(self) -> int:
        """Unclaimed slots once the runs that are stopping have ended."""
        return self.free + self.coming - self.claimed

    def spoken_for(self, lent: bool) -> int:
        """Slots that others claim. `lent`: to work that gives way again, only what is about to be used is denied."""
        return self.pledged if lent else self.claimed

    @property
    def loose(self) -> int:
        """Free slots that no request is pledged beside those which are being freed for it."""
        return self.free - sum(self.spoken.values()) if self.spoken else self.free

    def avoided(self, avoid: frozenset[str]) -> bool:
        return bool(avoid) and (self.view.id in avoid or self.view.name in avoid)


class Bins:
    """Who has n slots to give, without asking every host: one bin for each size of host and number of slots.

    In a bin, hosts stand as in the snapshot. Best fit looks into the bins of the fewest slots first, worst fit into
    those of the largest share.
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


def apart_of(bad_pairs: Collection[frozenset[str]]) -> Apart:
    found: dict[str, frozenset[str]] = {}
    for pair in bad_pairs:
        for host_id in pair:
            found[host_id] = found.get(host_id, frozenset()) | (pair - {host_id})
    return found


def meeting(host_ids: Iterable[str], bad: Apart, others: Iterable[str] = ()) -> list[str]:
    """Those of the hosts, in order, that can meet `others` and those chosen before."""
    barred = {far for host_id in others for far in bad.get(host_id, ())}
    chosen = []
    for host_id in host_ids:
        if host_id not in barred:
            chosen.append(host_id)
            barred |= bad.get(host_id, frozenset())
    return chosen


def agreeable(host_ids: Iterable[str], bad: Apart) -> list[str]:
    """Those with the fewest bad pairs first: they leave the most choice."""
    return sorted(host_ids, key=lambda host_id: len(bad.get(host_id, ())))
