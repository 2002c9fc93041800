"""Who holds the slots of hosts, has held them, or leaves them idle."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import F, Q
from django.utils import timezone

from hosts.models import Host
from jobs import cleaning, held_slots
from jobs.models import Job, Member, SlotHold
from jobs.states import MemberState
from trainmaster.protocol import run_key


@dataclass(frozen=True)
class Holder:
    """The job that holds a slot, or that runs on a host without slots."""

    task_id: str
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
class Hold:
    """The run that holds a slot; with `cleaning_since` it has ended, and `remains` may still be there."""

    holder: Holder
    slot_id: int
    allocation_id: str
    member: int
    task_name: str
    job_id: uuid.UUID
    started_at: datetime | None
    cleaning_since: datetime | None
    cleaning_failed_at: datetime | None
    remains: cleaning.Remains

    @property
    def run_key(self) -> str:
        return run_key(self.allocation_id, self.member)

    @property
    def cleaned(self) -> str:
        """After what the slot is cleaned up, and what is left of that: `demo (exp 12, ada): pid 4711`."""
        pids = cleaning.in_words(self.remains)
        return f"{self.holder.words}{f': {pids}' if pids else ''}"


@dataclass(frozen=True)
class IdleGpus:
    """GPUs of one host that a run holds and does not use, for as long as the first of them."""

    host: str
    slots: list[int]
    since: datetime
    holder: Holder

    @property
    def slots_in_words(self) -> str:
        return slots_in_words(self.slots)


@dataclass(frozen=True)
class HostRun:
    """One gang member. `ended_at` None: it is still running."""

    holder: Holder
    slots: list[int]
    started_at: datetime
    ended_at: datetime | None

    @property
    def where(self) -> str:
        return slots_in_words(self.slots)

    @property
    def seconds(self) -> float:
        return ((self.ended_at or timezone.now()) - self.started_at).total_seconds()


#: the newest runs of a host; a page of more would be none
MOST_RUNS = 200
_HOLD_FIELDS = (
    "slot_id", "member__allocation_id", "member__index", "member__allocation__task__name",
    "member__allocation__task__job_id", "member__started_at", "member__cleaning_since", "member__cleaning_failed_at",
    "member__remains",
)  # fmt: skip


def _fields(member: str = "") -> list[str]:
    """What `_holder` takes; `member`: the path to a gang member."""
    job = ["task__job__name", "task__job__kind", "task__job__entity_id"]
    names = ["task_id", *job, "task__trial__id", "task__job__owner__username", "state"]
    return [f"{member}allocation__{name}" for name in names]


def _holder(row: tuple[object, ...]) -> Holder:
    task, name, kind, entity, trial, user, state = row
    if kind == Job.Kind.EXPERIMENT:
        label, href = f"exp {entity}", f"/trials/{trial}" if trial else f"/experiments/{entity}"
    else:
        label, href = f"cmd {str(task)[:8]}", f"/commands/{task}"  # a command has its task's id
    return Holder(str(task), str(name), label, str(user), href, str(state))


def holds(hosts: Sequence[Host]) -> dict[int, Hold]:
    """Slot id -> what holds it now."""
    rows = SlotHold.objects.filter(released_at=None, slot__host__in=hosts)
    mine = len(_HOLD_FIELDS)
    found = [
        Hold(_holder(row[mine:]), *row[:mine])
        for row in rows.values_list(*_HOLD_FIELDS, *_fields("member__"))
    ]
    return {hold.slot_id: hold for hold in found}


def without_slots(hosts: Sequence[Host]) -> dict[uuid.UUID, list[Holder]]:
    """Host id -> what runs there without slots."""
    rows = Member.objects.filter(host__in=hosts, slots=0).exclude(state=MemberState.ENDED).order_by("id")
    found: dict[uuid.UUID, list[Holder]] = defaultdict(list)
    for host, *rest in rows.values_list("host_id", *_fields()):
        found[host].append(_holder(tuple(rest)))
    return found


def idle() -> list[IdleGpus]:
    """The GPUs that runs hold and do not use, the longest idle first."""
    rows = held_slots.held().order_by("slot__idle_since", "slot__host__name", "slot__index")
    fields = ["slot__host__name", "slot__index", "slot__idle_since", *_fields("member__")]
    found: dict[tuple[str, str], IdleGpus] = {}
    for host, slot, since, *rest in rows.values_list(*fields):
        holder = _holder(tuple(rest))
        found.setdefault((host, holder.href), IdleGpus(host, [], since, holder)).slots.append(slot)
    return list(found.values())


def runs(host: Host, first_time: float, last_time: float) -> list[HostRun]:
    """What held slots of the host, or ran there without, between two times (epoch seconds); the newest first."""
    first, last = (datetime.fromtimestamp(at, UTC) for at in (first_time, last_time))
    rows = (
        Member.objects.filter(Q(ended_at=None) | Q(ended_at__gte=first), host=host)
        .filter(allocation__assigned_at__lte=last)
        .annotate(held=ArrayAgg("holds__slot__index", filter=Q(holds__isnull=False), default=[]))
        .annotate(began=F("allocation__assigned_at"))
        .order_by("-began", "-pk")
    )
    return [
        HostRun(_holder(tuple(rest)), list(held), began, ended)
        for held, began, ended, *rest in rows.values_list("held", "began", "ended_at", *_fields())[:MOST_RUNS]
    ]


def slots_in_words(indexes: Sequence[int]) -> str:
    """`slots 0-3, 6`, or `no slot`."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    if not runs:
        return "no slot"
    spans = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"slot{'s' if len(indexes) > 1 else ''} {spans}"
