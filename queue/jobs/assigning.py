"""Gives tasks their slots, any number of them with a few statements; part of `jobs.transitions`, the one writer.

The unique constraints decide: a slot, a task or a port that was given away meanwhile makes the whole call Stale.
What a pass has planned from its snapshot is compared with the rows as they are now: people edit them in between.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import F, Sum
from django.db.models.functions import Greatest
from django.utils import timezone

from accounts.models import Cluster, token_hash
from events.announce import announce, wake_all
from events.many_rows import insert
from events.models import Event
from hosts.models import BEFORE_BURN_IN, Host, Slot
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


RUN_TOKEN_CHARACTERS = 2 * hashlib.sha256().digest_size


def run_token(allocation: Allocation) -> str:
    """The allocation's token, derived again whenever a member is launched, so that it is stored nowhere."""
    return _token(allocation.pk, allocation.gang_secret)


def _token(allocation_id: str, gang_secret: str) -> str:
    text = f"run-token:{allocation_id}:{gang_secret}"
    return hmac.new(settings.SECRET_KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class _Waiting:
    """What an assignment needs to know of a task that may start."""

    task_id: str
    slots: int
    run_count: int
    job_id: uuid.UUID
    kind: str
    entity_id: str
    pool_id: int
    max_slots: int | None
    submitted_at: datetime


@dataclass(frozen=True)
class Assigned:
    """An attempt that was made."""

    id: str
    task_id: str
    number: int


@dataclass(frozen=True)
class _Attempt:
    item: Assignment
    task: _Waiting
    number: int

    @property
    def id(self) -> str:
        return f"{self.task.task_id}.{self.number}"


@transaction.atomic
def assign_all(wanted: Sequence[Assignment], *, actor: str) -> list[Assigned]:
    """The attempts made, without those that are not as they were planned any more or whose host has no port left.

    Raises Stale when a slot was taken meanwhile; nothing at all is changed then.
    """
    tasks = _waiting(wanted)
    above = Cluster.get().attempts_above if tasks else 0
    attempts = [
        _Attempt(item, task, _next_number(task.run_count, above))
        for item in wanted
        if (task := tasks.get(item.task_id)) is not None
    ]
    leased = ports.choose([(attempt.id, attempt.item.placement[0][0]) for attempt in attempts])
    attempts = [attempt for attempt in attempts if attempt.id in leased]
    if not attempts:
        return []
    try:
        with transaction.atomic():
            members = _hold(attempts, leased)
    except IntegrityError as error:
        raise Stale(f"slots for {', '.join(attempt.id for attempt in attempts)} have been taken") from error
    Task.objects.filter(pk__in=[attempt.task.task_id for attempt in attempts]).update(
        state=TaskState.RUNNING, run_count=Greatest(F("run_count"), above) + 1, not_before=None
    )
    _record(attempts, actor)
    wake_all("dispatch.tasks.launch", [(member,) for member in members])
    return [Assigned(attempt.id, attempt.task.task_id, attempt.number) for attempt in attempts]


def _next_number(run_count: int, above: int) -> int:
    """Above those of all attempts of the task and `above`."""
    return max(run_count, above) + 1


def new_allocation(task: Task, above: int, **fields: Any) -> Allocation:
    """The task's next attempt, not saved yet."""
    number = _next_number(task.run_count, above)
    allocation = Allocation(
        id=f"{task.pk}.{number}", task=task, number=number, pool_id=task.job.pool_id, **fields
    )
    allocation.token_hash = token_hash(run_token(allocation))
    return allocation


def _hold(attempts: Sequence[_Attempt], leased: Mapping[str, Mapping[str, int]]) -> list[int]:
    """Write the attempts with their members, slots and ports, and the first starts of jobs; the ids of the members."""
    ids = [attempt.id for attempt in attempts]
    secret_of = {attempt_id: secrets.token_hex() for attempt_id in ids}
    now = timezone.now()
    insert(
        Allocation,
        {
            "id": ids,
            "task_id": [attempt.task.task_id for attempt in attempts],
            "number": [attempt.number for attempt in attempts],
            "pool_id": [attempt.task.pool_id for attempt in attempts],
            "slots": [attempt.task.slots for attempt in attempts],
            "on_sufferance": [attempt.item.on_sufferance for attempt in attempts],
            "token_hash": [token_hash(_token(*each)) for each in secret_of.items()],
            "gang_secret": [*secret_of.values()],
            "ports": [leased[attempt_id] for attempt_id in ids],
            "assigned_at": [now] * len(ids),
        },
    )
    placed = [
        (attempt.id, index, host_id, slots)
        for attempt in attempts
        for index, (host_id, slots) in enumerate(attempt.item.placement)
    ]
    members: list[int] = insert(
        Member,
        {
            "allocation_id": [attempt_id for attempt_id, _, _, _ in placed],
            "index": [index for _, index, _, _ in placed],
            "host_id": [host_id for _, _, host_id, _ in placed],
            "slots": [len(slots) for _, _, _, slots in placed],
        },
    )
    held = [
        (slot_id, member)
        for member, (_, _, _, slots) in zip(members, placed, strict=True)
        for slot_id in slots
    ]
    insert(SlotHold, {"slot_id": [slot for slot, _ in held], "member_id": [member for _, member in held]})
    leases = [
        (attempt.item.placement[0][0], port, attempt.id)
        for attempt in attempts
        for port in leased[attempt.id].values()
    ]
    insert(
        PortLease,
        {
            "host_id": [host_id for host_id, _, _ in leases],
            "port": [port for _, port, _ in leases],
            "allocation_id": [attempt_id for _, _, attempt_id in leases],
        },
    )
    first = {attempt.task.job_id: attempt.task for attempt in reversed(attempts)}
    jobs = sorted(
        first
    )  # in one order, as others may add the same; a job that started before keeps its record
    insert(
        FirstStart,
        {
            "job_id": jobs,
            "pool_id": [first[job].pool_id for job in jobs],
            "submitted_at": [first[job].submitted_at for job in jobs],
        },
        at=now,
        ignore_conflicts=True,
    )
    return members


def _record(attempts: Sequence[_Attempt], actor: str) -> None:
    """The events of both steps, and who is told to look. The pass that assigns needs no mark: it has seen it."""
    hosts = {host_id for attempt in attempts for host_id, _ in attempt.item.placement}
    names = dict(Host.objects.filter(pk__in=hosts).values_list("pk", "name"))
    topics = {"hosts"}
    rows: list[tuple[str, str, str, str, Reason, dict[str, Any], uuid.UUID, str]] = []
    for attempt in attempts:
        item, task = attempt.item, attempt.task
        reason = Reason.BACKFILLED if item.on_sufferance else Reason.SCHEDULED
        detail = {
            "hosts": [names[host_id] for host_id, _ in item.placement],
            "slots": [len(slots) for _, slots in item.placement],
        }
        about = (task.job_id, task.task_id)
        rows += [
            (Event.Kind.TASK, task.task_id, TaskState.WAITING, TaskState.RUNNING, reason, {}, *about),
            (Event.Kind.ALLOCATION, attempt.id, "", AllocationState.ASSIGNED, reason, detail, *about),
        ]
        topics |= {f"allocation:{attempt.id}", f"pool:{task.pool_id}"}
        topics |= {*topics_of(task.task_id, task.job_id, task.kind, task.entity_id)}
    columns = ("kind", "subject", "from_state", "to_state", "reason", "detail", "job_id", "task_id")
    insert(Event, dict(zip(columns, zip(*rows, strict=True), strict=True)), actor=actor)
    announce(*topics)


def _waiting(wanted: Sequence[Assignment]) -> dict[str, _Waiting]:
    """Tasks by id that may still start as planned, locked; without those that an edit has overtaken.

    All is read after the locks, which may have waited for a person: whoever moves a job to another pool locks its
    tasks too, and whoever drains a host locks its row.
    """
    ids = [item.task_id for item in wanted]
    lock_tasks(ids)
    rows = (
        Task.objects.filter(pk__in=ids, state=TaskState.WAITING, job__state=JobState.ACTIVE, blocked_by="")
        .exclude(not_before__gt=timezone.now())
        .values_list(
            "pk", "slots", "run_count", "job_id", "job__kind", "job__entity_id", "job__pool_id", "job__max_slots",
            "job__submitted_at",
        )
    )  # fmt: skip
    tasks = {row[0]: _Waiting(*row) for row in rows}
    pools = _pools_of_usable({host for item in wanted for host, _ in item.placement})
    slots = _usable({slot for item in wanted for _, ids in item.placement for slot in ids})
    fitting = [
        item
        for item in wanted
        if (task := tasks.get(item.task_id)) is not None and _fits(item, task, pools, slots)
    ]
    return {item.task_id: tasks[item.task_id] for item in _within_max_slots(fitting, tasks)}


def _pools_of_usable(host_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
    """Pools by id of the hosts where work may still be placed, which stay so until this transaction ends.

    Where Slurm starts nothing, it gives no nodes either: what it has given may be used, whatever it was seen to say.
    To a host that waits for its burn-in no pass gives anything, only `commands.burn_in`.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT id, pool_id FROM {Host._meta.db_table} WHERE id = ANY(%s) AND enabled"
            " AND (NOT draining OR drain_cause = ANY(%s)) AND admission = %s ORDER BY id FOR KEY SHARE",
            [list(host_ids), [Host.Drain.SLURM, *BEFORE_BURN_IN], Host.Admission.READY],
        )
        return dict(cursor.fetchall())


def _usable(slot_ids: Collection[int]) -> set[int]:
    """Those of the slots where work may still be placed."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT array_agg(id) FROM {Slot._meta.db_table}"
            " WHERE id = ANY(%s::bigint[]) AND enabled AND NOT draining AND NOT missing",
            ["{" + ",".join(map(str, slot_ids)) + "}"],
        )
        return set(cursor.fetchone()[0] or ())


def _fits(item: Assignment, task: _Waiting, pools: Mapping[uuid.UUID, int], usable: set[int]) -> bool:
    """Are the hosts still of the job's pool and in use, and are these the slots that the task asks for?"""
    slots = [slot for _, ids in item.placement for slot in ids]
    return (
        all(pools.get(host_id) == task.pool_id for host_id, _ in item.placement)
        and len(slots) == task.slots
        and usable.issuperset(slots)
    )


def _within_max_slots(items: Sequence[Assignment], tasks: Mapping[str, _Waiting]) -> list[Assignment]:
    """Without those that would exceed the limit of their job, which may have been lowered since."""
    limited = {task.job_id for item in items if (task := tasks[item.task_id]).max_slots is not None}
    if not limited:
        return list(items)
    open_ones = Allocation.objects.filter(task__job__in=limited).exclude(state=AllocationState.TERMINATED)
    held: Counter[uuid.UUID] = Counter(
        dict(open_ones.values_list("task__job").annotate(Sum("slots")).values_list("task__job", "slots__sum"))
    )
    kept = []
    for item in items:
        task = tasks[item.task_id]
        most = task.max_slots
        if most is None or held[task.job_id] + task.slots <= most:
            held[task.job_id] += task.slots
            kept.append(item)
    return kept
