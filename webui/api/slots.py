"""Slots of hosts and who holds them: shared by the records of hosts, agents and pools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hosts.models import Slot
from jobs.states import AllocationState
from shown.hosts.holders import Hold
from shown.hosts.rows import SlotRow
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


def encode_holder(row: SlotRow) -> HolderRecord | None:
    """Who holds the slot, in the words of the console."""
    return HolderRecord(**_run(row.hold), idle_since=row.idle_since) if row.hold else None


def encode_cleaning(row: SlotRow) -> CleaningRecord | None:
    """After whom the slot is being cleaned up, and what is left there."""
    hold = row.cleaned
    if hold is None:
        return None
    return CleaningRecord.of(hold, **_run(hold), since=hold.cleaning_since, failed_at=hold.cleaning_failed_at)


def _run(hold: Hold) -> Json:
    return {
        "allocation_id": hold.allocation_id,
        "task_id": hold.holder.task_id,
        "job_id": str(hold.job_id),
        "name": hold.task_name,
        "username": hold.holder.user,
    }


def device_type(kind: str) -> str:
    return f"TYPE_{kind.upper()}"


def container_state(hold: Hold) -> str:
    """As the allocation's; what stops is still running."""
    state = AllocationState(hold.holder.state)
    is_before = state in (AllocationState.ASSIGNED, AllocationState.STARTING)
    return f"STATE_{state}" if is_before else "STATE_RUNNING"


def device(slot: Slot) -> DeviceRecord:
    return DeviceRecord(id=slot.index, brand=slot.brand, uuid=slot.uuid, type=device_type(slot.kind))


def is_draining(slot: Slot) -> bool:
    """In the dialect a slot drains with its host."""
    return slot.draining or slot.host.draining


def is_enabled(slot: Slot) -> bool:
    """Whether new work may start on it: in the dialect what drains is disabled, and so is a disabled host's slot."""
    return slot.enabled and slot.host.enabled and not slot.missing and not is_draining(slot)


def stats(rows: Iterable[SlotRow]) -> SlotStats:
    """Determined's counts by type and by brand, which know no missing slot: it counts as disabled."""
    by_type: dict[str, Json] = {}
    by_brand: dict[str, Json] = {}
    for each in rows:
        slot = each.slot
        for table, name in ((by_type, device_type(slot.kind)), (by_brand, slot.brand or slot.kind)):
            row = table.setdefault(name, {"states": Counter(), "disabled": 0, "draining": 0, "total": 0})
            row["total"] += 1
            row["disabled"] += not is_enabled(slot)
            row["draining"] += is_draining(slot)
            if each.hold:
                row["states"][container_state(each.hold)] += 1
    return SlotStats(type_stats=by_type, brand_stats=by_brand)
