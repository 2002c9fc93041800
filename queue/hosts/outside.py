"""Slots that somebody uses without the queue: noted, shown, and not given to anybody until they have left."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from events.announce import announce
from events.models import Event
from events.record import record
from hosts.models import Host, Slot
from hosts.pools import mark_dirty

User = Mapping[str, Any]


def note(host_id: uuid.UUID, users: Mapping[str, Sequence[User]]) -> int:
    """Bring the slots of a host in line with `users`: GPU UUID -> {"user", "pid", "command"} of outsiders there.

    The number of slots that changed; each change leaves an event.
    """
    with transaction.atomic():
        Host.objects.filter(pk=host_id).update(gpu_users_at=timezone.now())
        slots = (
            Slot.objects.select_for_update(of=("self",), no_key=True).select_related("host").order_by("pk")
        )
        changed = [slot for slot in slots.filter(host_id=host_id).exclude(uuid="") if _noted(slot, users)]
        if changed:
            announce("hosts")
            mark_dirty(changed[0].host.pool_id)
    return len(changed)


def _noted(slot: Slot, users: Mapping[str, Sequence[User]]) -> bool:
    """Whether it changed. Of several on one GPU the one that was noted stays while it is there."""
    here = [
        {name: user.get(name) for name in ("user", "pid", "command")} for user in users.get(slot.uuid, ())
    ]
    if slot.outside in here or (not here and not slot.outside):
        return False
    former, slot.outside = slot.outside, here[0] if here else {}
    slot.save(update_fields=["outside"])
    record(
        Event.Kind.SLOT,
        f"{slot.host_id}/{slot.index}",
        reason="outside" if here else "outside_left",
        actor=f"host:{slot.host.name}",
        detail={"index": slot.index, "uuid": slot.uuid, **(slot.outside or former)},
    )
    return True
