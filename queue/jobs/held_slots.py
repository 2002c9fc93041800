"""Slots that runs hold: those that stand idle, and switching one off.

What is idle is as the last look found it (dispatch.watching.idle_gpus writes `Slot.idle_since`).
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import F, QuerySet

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


def is_idle(idle_since: datetime | None, started_at: datetime | None) -> bool:
    """Whether a slot's mark is about the run that has held it since `started_at`, not about one before it."""
    return idle_since is not None and started_at is not None and idle_since >= started_at


def held() -> QuerySet[SlotHold]:
    """The holds of idle slots: `is_idle`, as a query."""
    held = SlotHold.objects.filter(released_at=None, member__cleaning_since=None)
    return held.filter(slot__idle_since__gte=F("member__started_at"))


def of_task(task_id: str) -> int:
    """How many GPUs of a task that runs stand idle."""
    return held().filter(member__allocation__task_id=task_id).count()
