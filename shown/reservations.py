"""What hosts that are reserved for gangs cost a pool: slots that are idle there, and who waits because of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from dispatch.passes import last_plan
from hosts.models import ResourcePool
from jobs.labels import label_of
from jobs.models import Task

_HOUR = 3600


@dataclass(frozen=True)
class Reservation:
    """Hosts that are reserved for a task. `free`: slots there that are free; `idle_hours`: slot-hours idle so far."""

    task_id: str
    job_id: str
    label: str
    hosts: list[str]
    since: datetime
    free: int
    idle_hours: float
    keeps_from: int


def of_pool(pool: ResourcePool) -> list[Reservation]:
    """The reservations of the pool as of its last forecast, those that have cost most first."""
    kept = last_plan.of(pool).reservations
    tasks = Task.objects.select_related("job").in_bulk(list(kept))
    found = [
        Reservation(
            task_id=task_id,
            job_id=str(tasks[task_id].job_id),
            label=label_of(tasks[task_id].job.kind, tasks[task_id].job.entity_id),
            hosts=each["hosts"],
            since=datetime.fromtimestamp(each["since"], UTC),
            free=each["free"],
            idle_hours=each["slot_seconds"] / _HOUR,
            keeps_from=each["keeps_from"],
        )
        for task_id, each in kept.items()
        if task_id in tasks
    ]
    return sorted(found, key=lambda each: (-each.idle_hours, each.label))
