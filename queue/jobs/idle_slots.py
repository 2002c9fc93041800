"""Slots that are held and idle, as the last look found them (dispatch.watching.idle_gpus writes `Slot.idle_since`)."""

from __future__ import annotations

from datetime import datetime

from django.db.models import F, QuerySet

from jobs.models import SlotHold


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
