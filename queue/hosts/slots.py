"""The slots of a host, brought in line with what the doctor found there."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from django.db import transaction
from django.db.models import ProtectedError

from events.models import Event
from events.record import record
from hosts.models import Host, Slot


@dataclass(frozen=True)
class FoundSlot:
    """A GPU (or MIG instance) by its UUID, or a CPU share, which has none. Memory in MiB."""

    kind: str
    uuid: str = ""
    brand: str = ""
    memory_mb: int | None = None


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
                _record(row, "found")


def _key(kind: str, uuid: str, index: int) -> str:
    return uuid or f"{kind}:{index}"


def _gone(row: Slot) -> bool:
    """Whether the row could be deleted."""
    if not row.missing:
        _record(row, "missing")
    try:
        with transaction.atomic():
            row.delete()
    except ProtectedError:
        row.missing = True
        row.save(update_fields=["missing"])
        return False
    return True


def _record(row: Slot, reason: str) -> None:
    detail = {"index": row.index, "uuid": row.uuid, "brand": row.brand}
    record(
        Event.Kind.SLOT,
        f"{row.host_id}/{row.index}",
        reason=reason,
        actor=f"host:{row.host.name}",
        detail=detail,
    )
