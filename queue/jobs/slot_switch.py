"""Switching a slot off for new work, and what becomes of the run that holds it."""

from __future__ import annotations

from django.db import transaction

from hosts import registry
from hosts.models import Slot
from jobs import transitions
from jobs.models import SlotHold
from jobs.states import Reason, StopKind


@transaction.atomic
def disable(slot_id: int, *, drain: bool, actor: str) -> Slot:
    """Place nothing new on the slot. With `drain` what runs there ends in its own time.

    Without, the attempt that holds it is stopped, on all its hosts, and tried again without counting a restart.
    """
    if not drain:
        holds = SlotHold.objects.filter(slot_id=slot_id, released_at=None)
        for allocation_id in holds.values_list("member__allocation_id", flat=True):
            transitions.request_stop(allocation_id, StopKind.STOP, reason=Reason.HOST_DISABLED, actor=actor)
    return registry.switch_slot(slot_id, enabled=drain, draining=drain, actor=actor)
