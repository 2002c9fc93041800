"""Gives tasks their slots, any number of them with a few statements; part of `jobs.transitions`, the one writer.

The unique constraints decide: a slot, a task or a port that was given away meanwhile makes the whole call Stale.
What a pass has planned from its snapshot is compared with the rows as they are now: people edit them in between.
"""

from __future__ import annotations

import hashlib
import hmac
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import F, Sum
from django.db.models.functions import Greatest
from django.utils import timezone

from accounts.models import Cluster, token_hash
from events.announce import announce, wake_all
from events.models import Event
from hosts.models import Host, Slot
from jobs import ports
from jobs.job_transitions import lock_tasks, topics_of
from jobs.models import Allocation, FirstStart, Member, PortLease, SlotHold, Task
from jobs.states import AllocationState, JobState, Reason, TaskState


@dataclass(frozen=True)
class Assignment:
    """A task and where it is to run: host id and slot ids per member, member 0 first; no ids for zero slots."""

    task_id: str
    placement: Sequence[tuple[uuid.UUID, Sequence[int]]]
    on_sufferance: bool = False


class Stale(Exception):
    """What a plan wanted to use was taken meanwhile; the next pass sees the new world."""


def run_token(allocation: Allocation) -> str:
    """The allocation's token, derived again whenever a member is launched, so that it is stored nowhere."""
    text = f"run-token:{allocation.pk}:{allocation.gang_secret}"
    return hmac.new(settings.SECRET_KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


@transaction.atomic
def assign_all(wanted: Sequence[Assignment], *, actor: str) -> list[Allocation]:
    """The allocations made, without those that are not as they were planned any more or whose host has no port left.

    Raises Stale when a slot was taken meanwhile; nothing at all is changed then.
    """
    tasks = _waiting(wanted)
    items = [item for item in wanted if item.task_id in tasks]
    above = Cluster.get().attempts_above if items else 0
    allocations = {
        item.task_id: new_allocation(
            task := tasks[item.task_id], above, slots=task.slots, on_sufferance=item.on_sufferance
        )
        for item in items
    }
    leases = ports.choose([(allocations[item.task_id], item.placement[0][0]) for item in items])
    items = [item for item in items if allocations[item.task_id].ports]
    made = [allocations[item.task_id] for item in items]
    try:
        with transaction.atomic():
            Allocation.objects.bulk_create(made)
            members = _hold(items, allocations)
            PortLease.objects.bulk_create(leases)
            _keep_first(made)
    except IntegrityError as error:
        raise Stale(f"slots for {', '.join(allocations)} have been taken") from error
    Task.objects.filter(pk__in=[item.task_id for item in items]).update(
        state=TaskState.RUNNING, run_count=Greatest(F("run_count"), above) + 1, not_before=None
    )
    _record(items, allocations, actor)
    wake_all("dispatch.tasks.launch", [(member.pk,) for member in members])
    return made


def new_allocation(task: Task, above: int, **fields: Any) -> Allocation:
    """The task's next attempt, not saved yet; its number is above those of all attempts of the task and `above`."""
    number = max(task.run_count, above) + 1
    allocation = Allocation(
        id=f"{task.pk}.{number}", task=task, number=number, pool_id=task.job.pool_id, **fields
    )
    allocation.token_hash = token_hash(run_token(allocation))
    return allocation


def _hold(items: Sequence[Assignment], allocations: dict[str, Allocation]) -> list[Member]:
    """Members and the holds of their slots."""
    placed = [
        (Member(allocation=allocations[item.task_id], index=index, host_id=host_id, slots=len(slots)), slots)
        for item in items
        for index, (host_id, slots) in enumerate(item.placement)
    ]
    members = Member.objects.bulk_create(member for member, _ in placed)
    SlotHold.objects.bulk_create(
        SlotHold(slot_id=slot_id, member=member) for member, slots in placed for slot_id in slots
    )
    return members


def _keep_first(made: Sequence[Allocation]) -> None:
    """Record the first start of each job; a job that started before keeps its record."""
    first = {each.task.job_id: each for each in reversed(made)}
    rows = [
        FirstStart(
            job=each.task.job,
            pool_id=each.pool_id,
            submitted_at=each.task.job.submitted_at,
            at=each.assigned_at,
        )
        for _, each in sorted(first.items())
    ]
    FirstStart.objects.bulk_create(rows, ignore_conflicts=True)


def _record(items: Sequence[Assignment], allocations: dict[str, Allocation], actor: str) -> None:
    """The events of both steps, and who is told to look. The pass that assigns needs no mark: it has seen it."""
    hosts = {host_id for item in items for host_id, _ in item.placement}
    names = dict(Host.objects.filter(pk__in=hosts).values_list("pk", "name"))
    events, topics = [], {"hosts"}
    for item in items:
        allocation = allocations[item.task_id]
        task = allocation.task
        common = {
            "reason": Reason.BACKFILLED if item.on_sufferance else Reason.SCHEDULED,
            "actor": actor,
            "job_id": task.job_id,
            "task_id": task.pk,
        }
        detail = {
            "hosts": [names[host_id] for host_id, _ in item.placement],
            "slots": [len(slots) for _, slots in item.placement],
        }
        events += [
            Event(
                kind=Event.Kind.TASK,
                subject=task.pk,
                from_state=TaskState.WAITING,
                to_state=TaskState.RUNNING,
                **common,
            ),
            Event(
                kind=Event.Kind.ALLOCATION,
                subject=allocation.pk,
                to_state=AllocationState.ASSIGNED,
                detail=detail,
                **common,
            ),
        ]
        topics |= {f"allocation:{allocation.pk}", f"pool:{allocation.pool_id}", *topics_of(task)}
    Event.objects.bulk_create(events)
    announce(*topics)


def _waiting(wanted: Sequence[Assignment]) -> dict[str, Task]:
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
