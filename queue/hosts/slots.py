"""The slots of a host, brought in line with what the doctor found there, and who uses them without the queue."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from django.db import transaction
from django.db.models import ProtectedError
from django.utils import timezone

from events.announce import announce
from events.models import Event
from events.record import record_all, store
from hosts.models import Host, Slot
from hosts.pools import mark_dirty

User = Mapping[str, Any]
SLOTS_MAX = 1024
_AT_ONCE = 500


@dataclass(frozen=True)
class FoundSlot:
    """A GPU (or MIG instance) by its UUID, or a CPU share, which has none. Memory in MiB."""

    kind: str
    uuid: str = ""
    brand: str = ""
    memory_mb: int | None = None


def cpu_shares(count: int) -> list[FoundSlot]:
    """The slots of a host without GPUs."""
    return [FoundSlot(Slot.Kind.CPU, brand="CPU")] * count


def register(host: Host, found: list[FoundSlot]) -> None:
    """Make the rows of `host` what was found: a GPU keeps its row by UUID, a CPU share by its index.

    One that is gone loses its row, or is marked missing where history points at it.
    """
    with transaction.atomic():
        rows = {_key(row.kind, row.uuid, row.index): row for row in host.slots.select_for_update()}
        wanted = {_key(slot.kind, slot.uuid, number): slot for number, slot in enumerate(found)}
        for key in rows.keys() - wanted.keys():
            if _gone(rows[key]):
                del rows[key]
        used = {row.index for row in rows.values()}
        free = (index for index in count() if index not in used)
        for key, slot in wanted.items():
            row = rows.get(key) or Slot(host=host, index=next(free))
            back = row.pk is None or row.missing
            row.kind, row.uuid, row.brand, row.memory_mb, row.missing = (
                slot.kind, slot.uuid, slot.brand, slot.memory_mb, False,
            )  # fmt: skip
            row.save()
            if back:
                _record(row, "found", brand=row.brand)


def add(found: Mapping[Host, Sequence[FoundSlot]]) -> None:
    """The slots of hosts that have none yet, all at once."""
    rows = [
        Slot(
            host=host, index=index, kind=slot.kind, uuid=slot.uuid, brand=slot.brand, memory_mb=slot.memory_mb
        )
        for host, slots in found.items()
        for index, slot in enumerate(slots)
    ]
    Slot.objects.bulk_create(rows, batch_size=_AT_ONCE)
    record_all(_event(row, "found", brand=row.brand) for row in rows)


def _key(kind: str, uuid: str, index: int) -> str:
    return uuid or f"{kind}:{index}"


def _gone(row: Slot) -> bool:
    """Whether the row could be deleted."""
    if not row.missing:
        _record(row, "missing", brand=row.brand)
    try:
        with transaction.atomic():
            row.delete()
    except ProtectedError:
        row.missing = True
        row.save(update_fields=["missing"])
        return False
    return True


def note_outside(host_id: uuid.UUID, users: Mapping[str, Sequence[User]]) -> None:
    """Bring the slots of a host in line with `users`: GPU UUID -> {"user", "pid", "command"} of outsiders there.

    Each change leaves an event. Nothing is placed on a slot that somebody uses without the queue.
    """
    with transaction.atomic():
        Host.objects.filter(pk=host_id).update(gpu_users_at=timezone.now())
        rows = Slot.objects.select_for_update(of=("self",), no_key=True).select_related("host").order_by("pk")
        changed = [row for row in rows.filter(host_id=host_id).exclude(uuid="") if _noted(row, users)]
        if changed:
            announce("hosts")
            mark_dirty(changed[0].host.pool_id)


def _noted(row: Slot, users: Mapping[str, Sequence[User]]) -> bool:
    """Whether it changed. Of several on one GPU the one that was noted stays while it is there."""
    here = [{name: user.get(name) for name in ("user", "pid", "command")} for user in users.get(row.uuid, ())]
    if row.outside in here or (not here and not row.outside):
        return False
    former, row.outside = row.outside, here[0] if here else {}
    row.save(update_fields=["outside"])
    _record(row, "outside" if here else "outside_left", **(row.outside or former))
    return True


def _record(row: Slot, reason: str, **more: object) -> None:
    store(_event(row, reason, **more))


def _event(row: Slot, reason: str, **more: object) -> Event:
    detail = {"index": row.index, "uuid": row.uuid, **more}
    actor = f"host:{row.host.name}"
    return Event(kind=Event.Kind.SLOT, subject=str(row), reason=reason, actor=actor, detail=detail, pools=[])
