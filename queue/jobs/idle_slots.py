"""Slots that are held and stand idle, as the last look found them (dispatch.idle_gpus writes `Slot.idle_since`)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db.models import F, QuerySet

from hosts.models import Host
from jobs.models import SlotHold


def held() -> QuerySet[SlotHold]:
    """The holds of idle slots. A mark from before the run that holds the slot now was about another."""
    return SlotHold.objects.filter(released_at=None, slot__idle_since__gte=F("member__started_at"))


def of_hosts(hosts: Iterable[Host]) -> dict[int, datetime]:
    """Slot id -> since when it has been idle."""
    rows = held().filter(slot__host__in=list(hosts))
    return {slot_id: since for slot_id, since in rows.values_list("slot_id", "slot__idle_since") if since}


def of_task(task_id: str) -> int:
    """How many GPUs of a task that runs stand idle."""
    return held().filter(member__allocation__task_id=task_id).count()


def of_jobs(job_ids: Iterable[object]) -> dict[object, int]:
    """Job id -> how many of its GPUs stand idle; jobs without one are left out."""
    rows = held().filter(member__allocation__task__job_id__in=list(job_ids))
    found: dict[object, int] = {}
    for job_id in rows.values_list("member__allocation__task__job_id", flat=True):
        found[job_id] = found.get(job_id, 0) + 1
    return found
