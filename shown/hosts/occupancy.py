"""Who holds which slot, as lamps with words: the one reading of it for the pages of pools and hosts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import groupby

from django.db.models import Prefetch, QuerySet

from hosts import observe, registry
from hosts.models import Host, Slot
from jobs import cleaning
from jobs.models import Job, Member, SlotHold
from jobs.states import AllocationState, MemberState
from shown import words

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
class Holder:
    """The job that holds a slot, or that runs on a host without slots."""

    name: str
    label: str
    user: str
    href: str
    state: str

    @property
    def words(self) -> str:
        return f"{self.name} ({self.label}, {self.user})"

    @property
    def profile_href(self) -> str:
        """Where it is shown what it does with its hardware."""
        return f"{self.href}/profiler" if self.href.startswith("/trials/") else self.href


@dataclass(frozen=True)
class Lamp:
    """One slot. `state` is one of STATES; `word` says more: draining, disabled, or how its host is."""

    slot: Slot
    state: str
    word: str
    holder: Holder | None

    @property
    def text(self) -> str:
        """The lamp in a sentence."""
        return f"slot {self.slot.index}: {self.word}"


@dataclass
class Seen:
    """One host with its slots; `state` is the one word of `observe.state_of`."""

    host: Host
    state: str
    lamps: list[Lamp]
    without_slots: list[Holder] = field(default_factory=list)

    @cached_property
    def counts(self) -> Counter[str]:
        return Counter(lamp.state for lamp in self.lamps)

    @property
    def held(self) -> int:
        return self.counts["running"] + self.counts["preparing"]

    @property
    def word(self) -> str:
        return words.host_state(self.state).text

    @property
    def mark(self) -> str:
        """The shape of its lamp."""
        return words.host_state(self.state).lamp

    @property
    def is_ready(self) -> bool:
        return self.state == "ready"

    @property
    def outsiders(self) -> bool:
        return any(lamp.slot.outside for lamp in self.lamps)

    @property
    def models(self) -> list[str]:
        """Brands of its devices; CPU shares are "CPU"."""
        return sorted({model_of(lamp.slot) for lamp in self.lamps})

    @property
    def heard_at(self) -> datetime | None:
        return max(filter(None, [self.host.last_seen_at, self.host.last_heartbeat_at]), default=None)

    @property
    def short_name(self) -> str:
        """Without the domain, and of a long name its end, which tells it from its neighbours."""
        first = self.host.name.split(".")[0]
        name = self.host.name if first.isdigit() else first
        return name if len(name) <= _LONGEST_NAME else f"…{name[1 - _LONGEST_NAME :]}"

    @property
    def holdings(self) -> list[tuple[str, Holder]]:
        """("slots 0-3", holder) in the order of the slots; work without slots last."""
        held = [(lamp.holder, lamp.slot.index) for lamp in self.lamps if lamp.holder]
        held.sort(key=lambda pair: (pair[0].href, pair[1]))
        found = [
            ([index for _, index in pairs], holder)
            for holder, pairs in groupby(held, key=lambda pair: pair[0])
        ]
        found.sort(key=lambda each: each[0][0])
        return [
            *((slots_in_words(indexes), holder) for indexes, holder in found),
            *(("no slot", holder) for holder in self.without_slots),
        ]

    @property
    def text(self) -> str:
        """The whole host in a line: for a cell that is pointed at, and for those who hear the page."""
        said = [f"{self.host.name}: {self.word.lower()}", f"{self.held} of {len(self.lamps)} slots held"]
        said += [f"{where} {holder.words}" for where, holder in self.holdings]
        said += [lamp.text for lamp in self.lamps if lamp.state == "cleaning"]
        said += [lamp.text for lamp in self.lamps if lamp.state in ("outside", "off") and self.is_ready]
        if not self.is_ready and self.host.why_not_used:
            said.append(self.host.why_not_used)
        return "; ".join(said)


def model_of(slot: Slot) -> str:
    return slot.brand or slot.kind.upper()


def slots_in_words(indexes: list[int]) -> str:
    """`slots 0-3, 6`"""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    spans = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"slot{'s' if len(indexes) > 1 else ''} {spans}"


def present() -> QuerySet[Host]:
    """The hosts that have not been taken out, with the slots that are there."""
    slots = Prefetch("slots", Slot.objects.filter(missing=False).order_by("index"))
    hosts = registry.present().select_related("pool")
    return hosts.prefetch_related(slots).order_by("name")


def of(hosts: Iterable[Host]) -> list[Seen]:
    """Hosts of `present()` as they are now."""
    hosts = list(hosts)
    held, cleaned = _held(hosts), _cleaned(hosts)
    aux = _without_slots(hosts)
    found = []
    for host in hosts:
        state = observe.state_of(host)
        lamps = [_lamp(slot, held.get(slot.pk), cleaned.get(slot.pk), state) for slot in host.slots.all()]
        found.append(Seen(host, state, lamps, aux.get(host.pk, [])))
    return found


def _lamp(slot: Slot, holder: Holder | None, cleaned: str | None, host_state: str) -> Lamp:
    switched = (
        "draining" if slot.draining or host_state == "draining" else "disabled" if not slot.enabled else ""
    )
    also = f", {switched}" if switched else ""
    if holder:
        running = holder.state == AllocationState.RUNNING
        doing = "" if running else f", {words.state(holder.state).text.lower()}"
        return Lamp(slot, "running" if running else "preparing", f"{holder.words}{doing}{also}", holder)
    if cleaned:
        return Lamp(slot, "cleaning", f"being cleaned up after {cleaned}{also}", None)
    if slot.outside:
        who = str(slot.outside.get("user") or "someone")
        return Lamp(slot, "outside", f"used outside the queue by {who}{also}", None)
    if switched or host_state != "ready":
        return Lamp(slot, "off", switched or f"the host is {words.host_state(host_state).text.lower()}", None)
    return Lamp(slot, "free", "free", None)


HOLDER_FIELDS = [
    f"{{}}allocation__{name}"
    for name in ("task_id", "task__job__name", "task__job__kind", "task__job__entity_id")
] + ["{}allocation__task__trial__id", "{}allocation__task__job__owner__username", "{}allocation__state"]


def holder_of(row: tuple[object, ...]) -> Holder:
    task, name, kind, entity, trial, user, state = row
    if kind == Job.Kind.EXPERIMENT:
        label, href = f"exp {entity}", f"/trials/{trial}" if trial else f"/experiments/{entity}"
    else:
        label, href = f"cmd {str(task)[:8]}", f"/commands/{task}"  # a command has its task's id
    return Holder(str(name), label, str(user), href, str(state))


def _held(hosts: list[Host]) -> dict[int, Holder]:
    rows = SlotHold.objects.filter(released_at=None, slot__host__in=hosts, member__cleaning_since=None)
    fields = [name.format("member__") for name in HOLDER_FIELDS]
    return {slot: holder_of(tuple(rest)) for slot, *rest in rows.values_list("slot_id", *fields)}


def _cleaned(hosts: list[Host]) -> dict[int, str]:
    """Slot id -> the run after which it is cleaned up, and what is left of that: "demo (exp 12, ada): pid 4711"."""
    rows = SlotHold.objects.filter(
        released_at=None, slot__host__in=hosts, member__cleaning_since__isnull=False
    )
    fields = [name.format("member__") for name in HOLDER_FIELDS]
    found = {}
    for slot, remains, *rest in rows.values_list("slot_id", "member__remains", *fields):
        pids = cleaning.in_words(remains)
        found[slot] = f"{holder_of(tuple(rest)).words}{f': {pids}' if pids else ''}"
    return found


def _without_slots(hosts: list[Host]) -> dict[object, list[Holder]]:
    rows = Member.objects.filter(host__in=hosts, slots=0).exclude(state=MemberState.ENDED).order_by("id")
    found: dict[object, list[Holder]] = defaultdict(list)
    for host, *rest in rows.values_list("host_id", *(name.format("") for name in HOLDER_FIELDS)):
        found[host].append(holder_of(tuple(rest)))
    return found


def totals(seen: Iterable[Seen]) -> Counter[str]:
    """Slots by state of STATES."""
    found: Counter[str] = Counter()
    for each in seen:
        found.update(each.counts)
    return found


@dataclass(frozen=True)
class Usage:
    """The slots of a pool by state, and its work without slots."""

    counts: Counter[str]
    aux_held: int
    aux_capacity: int

    @property
    def slots(self) -> int:
        return sum(self.counts.values())

    @property
    def held(self) -> int:
        return self.counts["running"] + self.counts["preparing"]

    @property
    def percent(self) -> int:
        return round(100 * self.held / self.slots) if self.slots else 0

    @property
    def parts(self) -> list[tuple[str, str, int, float]]:
        """(state, its word, slots, per cent of all), without states that no slot is in."""
        return [
            (state, word, self.counts[state], round(100 * self.counts[state] / self.slots, 2))
            for state, word in STATES.items()
            if self.counts[state]
        ]


def usage(seen: list[Seen], aux_per_host: int) -> Usage:
    """Return the usage of one pool's hosts; only ready ones take work without slots."""
    ready = sum(1 for each in seen if each.is_ready)
    return Usage(totals(seen), sum(len(each.without_slots) for each in seen), ready * aux_per_host)
