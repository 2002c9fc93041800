"""Arrays of commands as they are shown: how many elements wait, run and have ended, in one row."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet

from commands.models import Command
from commands.states import CommandState
from jobs.models import Job
from jobs.states import TaskState

_OPEN = Q(state__in=[CommandState.ACTIVE, CommandState.STOPPING_KILLED])
_RUNS = Q(task__state=TaskState.RUNNING)
_COUNTED = {
    "waiting": _OPEN & ~_RUNS,
    "running": _OPEN & _RUNS,
    "done": Q(state=CommandState.COMPLETED),
    "failed": Q(state=CommandState.ERROR),
    "canceled": Q(state=CommandState.CANCELED),
}


@dataclass(frozen=True)
class ArrayCounts:
    """The elements of an array."""

    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    canceled: int = 0

    @property
    def state(self) -> str:
        """One word for all of them, as a command has one."""
        if self.running or self.waiting:
            return "RUNNING" if self.running else "QUEUED"
        return "ERROR" if self.failed else "CANCELED" if self.canceled else "COMPLETED"

    @property
    def total(self) -> int:
        return self.waiting + self.running + self.done + self.failed + self.canceled

    @property
    def has_ended(self) -> bool:
        return not (self.running or self.waiting)

    @property
    def words(self) -> str:
        """`90 done, 8 running, 2 waiting, 0 failed`."""
        shown = [
            (self.done, "done"),
            (self.running, "running"),
            (self.waiting, "waiting"),
            (self.failed, "failed"),
        ]
        canceled = [(self.canceled, "canceled")] if self.canceled else []
        return ", ".join(f"{number:,} {word}" for number, word in [*shown, *canceled])


def counts_by_job(job_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, ArrayCounts]:
    """The elements of these arrays, whose ids are those of their jobs."""
    if not job_ids:
        return {}
    counts = {name: Count("pk", filter=which) for name, which in _COUNTED.items()}
    rows = Command.objects.filter(job_id__in=job_ids).order_by().values("job_id").annotate(**counts)
    return {job_id: ArrayCounts(*numbers) for job_id, *numbers in rows.values_list("job_id", *_COUNTED)}


def counts_of(job_id: uuid.UUID) -> ArrayCounts:
    """The elements of one array."""
    return counts_by_job([job_id])[job_id]


def folded(rows: QuerySet[Command]) -> QuerySet[Command]:
    """The rows with one for each array: the first of its elements among them."""
    elements = rows.filter(array_index__isnull=False).order_by("job_id", "array_index").distinct("job_id")
    return rows.filter(Q(array_index=None) | Q(pk__in=elements.values("pk")))


def find(text: str) -> Job | None:
    """The job of the array whose id is the text or begins with it; None if there is none, or several."""
    digits = text.strip().lower().replace("-", "")
    if not digits or len(digits) > 32 or not set(digits) <= set("0123456789abcdef"):
        return None
    bounds = uuid.UUID(digits.ljust(32, "0")), uuid.UUID(digits.ljust(32, "f"))
    found = list(
        Job.objects.select_related("owner", "pool").filter(kind=Job.Kind.ARRAY, pk__range=bounds)[:2]
    )
    return found[0] if len(found) == 1 else None
