"""Slots of hosts and who holds them: shared by the records of hosts, agents and pools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from hosts.models import Host, Slot
from jobs import idle_slots
from jobs.models import SlotHold
from jobs.states import AllocationState
from webui.api.answers import Answer, Maybe, Stored, Time
from webui.api.views import Json


class HolderRecord(Answer):
    """What holds a slot. `idleSince`: since when the GPU has been idle; null if it is in use."""

    allocation_id: str
    task_id: str
    job_id: str
    name: str
    username: str
    idle_since: Time | None


class RemainRecord(Answer):
    """A process left by a run; `state` is the kernel's letter (`D`: waiting in the kernel)."""

    pid: int
    user: Maybe[str] = None
    command: Maybe[str] = None
    state: Maybe[str] = None


class CleaningRecord(Answer):
    """An ended run whose processes may still be on the slot.

    `failedAt`: since when they are known to have survived SIGKILL, so that the host was drained.
    """

    allocation_id: str
    task_id: str
    job_id: str
    name: str
    username: str
    since: Time
    failed_at: Time | None
    remains: Stored[list[RemainRecord]]


class DeviceRecord(Answer):
    id: int
    brand: str
    uuid: str
    type: str


class SlotCounts(Answer):
    """`states`: container state -> number of slots held by containers in that state."""

    states: dict[str, int]
    disabled: int
    draining: int
    total: int


class SlotStats(Answer):
    type_stats: Stored[dict[str, SlotCounts]]
    brand_stats: Stored[dict[str, SlotCounts]]


@dataclass
class Holds:
    """What holds each slot now, by the slot's id; apart from it, after whom slots are cleaned up."""

    by_slot: dict[int, SlotHold] = field(default_factory=dict)
    cleaned: dict[int, SlotHold] = field(default_factory=dict)

    @classmethod
    def of(cls, hosts: Iterable[Host]) -> Holds:
        held = SlotHold.objects.filter(slot__host__in=list(hosts), released_at=None)
        rows = list(held.select_related("member__allocation__task__job__owner"))
        by_slot = {row.slot_id: row for row in rows if row.member.cleaning_since is None}
        return cls(by_slot, {row.slot_id: row for row in rows if row.slot_id not in by_slot})

    def encode(self, slot: Slot) -> HolderRecord | None:
        """Who holds the slot, in the words of the console; None when nobody does."""
        hold = self.by_slot.get(slot.pk)
        if hold is None:
            return None
        is_idle = idle_slots.is_idle(slot.idle_since, hold.member.started_at)
        return HolderRecord(**_run(hold), idle_since=slot.idle_since if is_idle else None)

    def encode_cleaning(self, slot: Slot) -> CleaningRecord | None:
        """After whom the slot is being cleaned up, and what is left there; None when it is not."""
        hold = self.cleaned.get(slot.pk)
        if hold is None:
            return None
        member = hold.member
        return CleaningRecord.of(
            member, **_run(hold), since=member.cleaning_since, failed_at=member.cleaning_failed_at
        )


def _run(hold: SlotHold) -> Json:
    task = hold.member.allocation.task
    return {
        "allocation_id": hold.member.allocation_id,
        "task_id": task.pk,
        "job_id": str(task.job_id),
        "name": task.name,
        "username": task.job.owner.username,
    }


def device_type(kind: str) -> str:
    return f"TYPE_{kind.upper()}"


_CONTAINER_STATES = {
    AllocationState.ASSIGNED: "STATE_ASSIGNED",
    AllocationState.STARTING: "STATE_STARTING",
    AllocationState.RUNNING: "STATE_RUNNING",
    AllocationState.TERMINATING: "STATE_RUNNING",
}


def container_state(hold: SlotHold) -> str:
    return _CONTAINER_STATES.get(AllocationState(hold.member.allocation.state), "STATE_RUNNING")


def device(slot: Slot) -> DeviceRecord:
    return DeviceRecord(id=slot.index, brand=slot.brand, uuid=slot.uuid, type=device_type(slot.kind))


def stats(slots: Iterable[Slot], holds: Holds) -> SlotStats:
    """Determined's counts by type and by brand, which know no missing slot: it counts as disabled."""
    by_type: dict[str, Json] = {}
    by_brand: dict[str, Json] = {}
    for slot in slots:
        for table, name in ((by_type, device_type(slot.kind)), (by_brand, slot.brand or slot.kind)):
            row = table.setdefault(name, {"states": Counter(), "disabled": 0, "draining": 0, "total": 0})
            row["total"] += 1
            row["disabled"] += not slot.enabled or slot.missing
            row["draining"] += slot.draining
            if hold := holds.by_slot.get(slot.pk):
                row["states"][container_state(hold)] += 1
    return SlotStats(type_stats=by_type, brand_stats=by_brand)
