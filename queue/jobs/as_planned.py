"""What a pass planned from its snapshot, against the rows as they are now: people edit them in between."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from django.db import connection
from django.db.models import Sum
from django.utils import timezone

from hosts.models import Host, Slot
from jobs.job_transitions import lock_tasks
from jobs.models import Allocation, Task
from jobs.states import AllocationState, JobState, TaskState


@dataclass(frozen=True)
class Assignment:
    """A task and where it is to run: host id and slot ids per member, member 0 first; no ids for zero slots."""

    task_id: str
    placement: Sequence[tuple[uuid.UUID, Sequence[int]]]
    on_sufferance: bool = False


def waiting(wanted: Sequence[Assignment]) -> dict[str, Task]:
    """Tasks by id that may still start as planned, locked; without those that an edit has overtaken.

    All is read after the locks, which may have waited for a person: whoever moves a job to another pool locks its
    tasks too, and whoever drains a host locks its row.
    """
    lock_tasks([item.task_id for item in wanted])
    rows = Task.objects.filter(
        pk__in=[item.task_id for item in wanted],
        state=TaskState.WAITING,
        job__state=JobState.ACTIVE,
        blocked_by="",
    ).exclude(not_before__gt=timezone.now())
    tasks = {task.pk: task for task in rows.select_related("job")}
    pools = _pools_of_usable({host for item in wanted for host, _ in item.placement})
    slots = set(
        Slot.objects.filter(
            pk__in=[slot for item in wanted for _, ids in item.placement for slot in ids],
            enabled=True,
            draining=False,
            missing=False,
        ).values_list("pk", flat=True)
    )
    fitting = [
        item
        for item in wanted
        if (task := tasks.get(item.task_id)) is not None and _fits(item, task, pools, slots)
    ]
    return {item.task_id: tasks[item.task_id] for item in _within_max_slots(fitting, tasks)}


def _pools_of_usable(host_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
    """Pools by id of the hosts where work may still be placed, which stay so until this transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT id, pool_id FROM {Host._meta.db_table} WHERE id = ANY(%s) AND enabled AND NOT draining"
            " AND admission = %s ORDER BY id FOR KEY SHARE",
            [list(host_ids), Host.Admission.READY],
        )
        return dict(cursor.fetchall())


def _fits(item: Assignment, task: Task, pools: Mapping[uuid.UUID, int], usable: set[int]) -> bool:
    """Are the hosts still of the job's pool and in use, and are these the slots that the task asks for?"""
    slots = [slot for _, ids in item.placement for slot in ids]
    return (
        all(pools.get(host_id) == task.job.pool_id for host_id, _ in item.placement)
        and len(slots) == task.slots
        and usable.issuperset(slots)
    )


def _within_max_slots(items: Sequence[Assignment], tasks: Mapping[str, Task]) -> list[Assignment]:
    """Without those that would exceed the limit of their job, which may have been lowered since."""
    limited = {task.job_id for item in items if (task := tasks[item.task_id]).job.max_slots is not None}
    if not limited:
        return list(items)
    open_ones = Allocation.objects.filter(task__job__in=limited).exclude(state=AllocationState.TERMINATED)
    held: Counter[uuid.UUID] = Counter(
        dict(open_ones.values_list("task__job").annotate(Sum("slots")).values_list("task__job", "slots__sum"))
    )
    kept = []
    for item in items:
        task = tasks[item.task_id]
        most = task.job.max_slots
        if most is None or held[task.job_id] + task.slots <= most:
            held[task.job_id] += task.slots
            kept.append(item)
    return kept
