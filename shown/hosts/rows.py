"""Hosts as they are shown: the state of each, and of each of its slots who holds it, as lamps with words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import groupby

from django.db.models import Prefetch, QuerySet

from hosts import registry
from hosts.models import Host, Slot
from jobs import held_slots
from jobs.states import AllocationState
from shown import words
from shown.hosts import holders, spares
from shown.hosts.holders import Hold, Holder, slots_in_words
from shown.hosts.spares import SpareHost

#: what a slot may be, in the order of the bar: (state, its word)
STATES = {
    "running": "running",
    "preparing": "starting or stopping",
    "cleaning": "being cleaned up after a run",
    "free": "free",
    "outside": "used from outside the queue",
    "off": "off",
}
#: above this many slots of one host a bar stands for the lamps
MOST_LAMPS = 32
_LONGEST_NAME = 11  # of a cell


@dataclass(frozen=True)
class SlotRow:
    """One slot. `state` is one of STATES; `word` says more: draining, disabled, or how its host is.

    `hold`: the run that holds it; `cleaned`: the one after which it is being cleaned up.
    """

    slot: Slot
    state: str
    word: str
    hold: Hold | None = None
    cleaned: Hold | None = None

    @property
    def holder(self) -> Holder | None:
        return self.hold.holder if self.hold else None

    @property
    def idle_since(self) -> datetime | None:
        """Since when the run that holds it has left it idle."""
        idle = self.hold and held_slots.is_idle(self.slot.idle_since, self.hold.started_at)
        return self.slot.idle_since if idle else None

    @property
    def text(self) -> str:
        """The slot in a sentence."""
        return f"slot {self.slot.index}: {self.word}"


@dataclass
class HostRow:
    """One host with all its slots by index, missing ones too. Only `slots`, those that are there, are counted."""

    host: Host
    all_slots: list[SlotRow]
    without_slots: list[Holder] = field(default_factory=list)
    #: kept by its pool for work whose host fails
    spare: SpareHost | None = None

    @property
    def state(self) -> str:
        return self.host.state

    @cached_property
    def slots(self) -> list[SlotRow]:
        return [each for each in self.all_slots if not each.slot.missing]

    @property
    def missing(self) -> list[Slot]:
        """The slots that the doctor no longer finds."""
        return [each.slot for each in self.all_slots if each.slot.missing]

    @cached_property
    def counts(self) -> Counter[str]:
        return Counter(each.state for each in self.slots)

    @property
    def held(self) -> int:
        return held_of(self.counts)

    @property
    def word(self) -> words.Word:
        return words.host_state(self.state)

    @property
    def why(self) -> str:
        """Why it gets no work, or not all work; empty if it gets any."""
        return self.host.why_not_used or (self.spare.sentence if self.spare else "")

    @property
    def is_ready(self) -> bool:
        return self.state == "ready"

    @property
    def outsiders(self) -> bool:
        return any(each.slot.outside for each in self.slots)

    @property
    def models(self) -> list[str]:
        """Brands of its devices; CPU shares are "CPU"."""
        return sorted({each.slot.brand or each.slot.kind.upper() for each in self.slots})

    @property
    def short_name(self) -> str:
        """Without the domain, and of a long name its end, which tells it from its neighbors."""
        first = self.host.name.split(".")[0]
        name = self.host.name if first.isdigit() else first
        return name if len(name) <= _LONGEST_NAME else f"…{name[1 - _LONGEST_NAME :]}"

    @property
    def holdings(self) -> list[tuple[str, Holder]]:
        """("slots 0-3", holder) in the order of the slots; work without slots last."""
        held = [(each.holder, each.slot.index) for each in self.slots if each.holder]
        held.sort(key=lambda pair: (pair[0].href, pair[1]))
        found = [
            ([index for _, index in pairs], holder)
            for holder, pairs in groupby(held, key=lambda pair: pair[0])
        ]
        found.sort(key=lambda each: each[0][0])
        return [
            *((slots_in_words(indexes), holder) for indexes, holder in found),
            *((slots_in_words([]), holder) for holder in self.without_slots),
        ]

    @property
    def text(self) -> str:
        """The whole host in a line: for a cell that is pointed at, and for those who hear the page."""
        said = [f"{self.host.name}: {self.word.text.lower()}", f"{self.held} of {len(self.slots)} slots held"]
        said += [f"{where} {holder.words}" for where, holder in self.holdings]
        said += [each.text for each in self.slots if each.state == "cleaning"]
        said += [each.text for each in self.slots if each.state in ("outside", "off") and self.is_ready]
        if self.why and (self.spare or not self.is_ready):
            said.append(self.why)
        return "; ".join(said)


def present() -> QuerySet[Host]:
    """The hosts that have not been taken out, by name, with all their slots by index."""
    slots = Prefetch("slots", Slot.objects.order_by("index"))
    return registry.present().select_related("pool").prefetch_related(slots).order_by("name")


def of(hosts: Iterable[Host], *, aux: bool = True) -> list[HostRow]:
    """Hosts of `present()` as they are now; `aux`: with what runs there without slots, which is one more query."""
    hosts = list(hosts)
    holds = holders.holds(hosts)
    without_slots = holders.without_slots(hosts) if aux else {}
    kept = spares.of_hosts(hosts)
    found = []
    for host in hosts:
        slots = [_slot_row(slot, holds.get(slot.pk), host.state) for slot in host.slots.all()]
        found.append(HostRow(host, slots, without_slots.get(host.pk, []), kept.get(str(host.pk))))
    return found


def _slot_row(slot: Slot, hold: Hold | None, host_state: str) -> SlotRow:
    switched = (
        "quarantined" if slot.quarantine else "draining" if slot.draining or host_state == "draining"
        else "disabled" if not slot.enabled else ""
    )  # fmt: skip
    also = f", {switched}" if switched else ""
    if hold and hold.cleaning_since:
        return SlotRow(slot, "cleaning", f"being cleaned up after {hold.cleaned}{also}", cleaned=hold)
    if hold:
        running = hold.holder.state == AllocationState.RUNNING
        doing = "" if running else f", {words.state(hold.holder.state).text.lower()}"
        state = "running" if running else "preparing"
        return SlotRow(slot, state, f"{hold.holder.words}{doing}{also}", hold=hold)
    if slot.outside:
        who = str(slot.outside.get("user") or "someone")
        return SlotRow(slot, "outside", f"used outside the queue by {who}{also}")
    if switched or host_state != "ready":
        return SlotRow(slot, "off", switched or f"the host is {words.host_state(host_state).text.lower()}")
    return SlotRow(slot, "free", "free")


def held_of(counts: Mapping[str, int]) -> int:
    """How many of the slots that are counted by state are held by jobs."""
    return counts["running"] + counts["preparing"]


def totals(rows: Iterable[HostRow]) -> Counter[str]:
    """Slots by state of STATES."""
    return sum((each.counts for each in rows), Counter[str]())
