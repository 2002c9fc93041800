"""The one writer of the states of jobs and tasks (law 2); the steps and the events of allocations, too.

Callers outside of this room reach all of it through `jobs.transitions`.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from django.db import transaction
from django.db.models import Max
from django.db.models.functions import Greatest
from django.utils import timezone

from accounts.models import User
from events.announce import announce
from events.models import Event
from events.prepared import Prepared, cursor
from events.record import record, store
from events.steps import Table, joined, step
from hosts.models import ResourcePool
from hosts.pools import hold, mark_dirty
from jobs import dependencies
from jobs.dependencies import Wanted
from jobs.models import Allocation, Job, Task
from jobs.states import (
    ALLOCATION_STEPS,
    JOB_STEPS,
    NEVER_STARTED,
    TASK_STEPS,
    AllocationState,
    JobState,
    Reason,
    TaskState,
)


@joined
def create_job(
    *,
    kind: Job.Kind,
    name: str,
    owner: User,
    pool: ResourcePool,
    priority: int,
    weight: float,
    max_slots: int | None,
    preemptible: bool,
    active: bool,
    actor: str,
    entity_id: str = "",
    depends_on: Sequence[Wanted] = (),
    elements: int | None = None,
    at_once: int | None = None,
    deadline_at: datetime | None = None,
) -> Job:
    """A new job at the end of those of its priority. `entity_id`: what it is about, where that is known already.

    `elements`: those of an array, whose job has the id that `entity_id` says; `at_once` of them may run at a time.
    `depends_on`: jobs that must end first. Raises Refusal where the pool was removed.
    """
    hold(pool)
    state = JobState.ACTIVE if active else JobState.PAUSED
    job = Job.objects.create(
        id=uuid.UUID(entity_id) if elements else uuid.uuid4(),
        kind=kind,
        name=name,
        owner=owner,
        pool=pool,
        priority=priority,
        weight=weight,
        max_slots=max_slots,
        preemptible=preemptible,
        state=state,
        position=_last_position(pool, priority),
        entity_id=entity_id,
        elements=elements,
        at_once=at_once,
        deadline_at=deadline_at,
    )
    if depends_on:
        dependencies.put(job, depends_on)
    record(Event.Kind.JOB, job.id, to_state=state, reason=Reason.SUBMITTED, actor=actor, job_id=job.id)
    mark_dirty(pool.pk)
    return job


def _last_position(pool: ResourcePool, priority: int) -> float:
    """Behind every place of this priority, even if the clock was set back or a move went far.

    A place that a job had before its deadline moved it ahead counts too: the job may come back to it.
    """
    rows = Job.objects.filter(pool=pool, priority=priority).exclude(state=JobState.ENDED)
    last = rows.aggregate(last=Max(Greatest("position", "usual_position")))["last"]
    now = timezone.now().timestamp()
    return now if last is None else max(now, last + 1.0)


_job = Prepared(lambda: Job.objects.select_for_update(no_key=True), "pk", uuid.UUID(int=0))
_task = Prepared(
    lambda: Task.objects.select_related("job").select_for_update(of=("self",), no_key=True), "pk", "no task"
)


@joined
def set_job_state(
    job_id: uuid.UUID,
    to: JobState,
    *,
    reason: Reason,
    actor: str,
    at: datetime | None = None,
    succeeded: bool | None = None,
) -> bool:
    """`at`: when it ended, if not now; `succeeded`: whether it then had done what it was for."""
    job = _job.get(job_id)
    ended = (at or timezone.now()) if to == JobState.ENDED else None
    event = Event(kind=Event.Kind.JOB, subject=str(job_id), reason=reason, actor=actor, job_id=job_id)
    if not step(job, JOB_STEPS, to, event, ended_at=ended, succeeded=succeeded if ended else None):
        return False
    dependencies.ended_or_revived(job)
    mark_dirty(job.pool_id)
    return True


def element_ended(task_id: str) -> Job:
    """Tell those that wait for this element of an array. Its job is locked: elements end one after another."""
    task = Task.objects.get(pk=task_id)
    job = dependencies.lock([task.job_id])[task.job_id]
    dependencies.elements_ended([task])
    return job


def end_waiting_elements(
    job: Job, task_ids: Sequence[str], *, reason: Reason, actor: str, at: datetime
) -> None:
    """End these locked tasks of an array, which wait: by as many statements as for one. It does not end the job."""
    dependencies.lock([job.pk])
    Task.objects.filter(pk__in=task_ids).update(
        state=TaskState.ENDED, ended_at=at, not_before=None, blocked_by="", succeeded=False
    )
    tasks = list(Task.objects.filter(pk__in=task_ids))
    events = [event_of(Event.Kind.TASK, task.pk, task, reason, actor) for task in tasks]
    for event in events:
        event.from_state, event.to_state = TaskState.WAITING, TaskState.ENDED
    Event.objects.bulk_create(events)
    dependencies.elements_ended(tasks)
    mark_dirty(job.pool_id)


@transaction.atomic
def revive_job(
    job_id: uuid.UUID,
    *,
    pool: ResourcePool,
    actor: str,
    priority: int | None = None,
    weight: float | None = None,
    max_slots: int | None = None,
    depends_on: Sequence[Wanted] | None = None,
    deadline_at: datetime | None,
) -> bool:
    """A job that has ended is active again, at the end of those of its priority; False when it has not ended.

    What may be left out stays as it was then. Raises Refusal where the pool was removed.
    """
    hold(pool)
    job = dependencies.lock([job_id, *(each.job_id for each in depends_on or ())])[job_id]
    if job.state != JobState.ENDED:
        return False
    given = {"priority": priority, "weight": weight, "max_slots": max_slots}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    changes |= {"deadline_at": deadline_at, "late_told_at": None}
    # neither a user nor its former deadline gave it the place that it has now
    changes |= {"moved_at": None, "usual_position": None}
    position = _last_position(pool, job.priority if priority is None else priority)
    Job.objects.filter(pk=job_id).update(pool=pool, position=position, **changes)
    if depends_on is not None:
        dependencies.put(job, depends_on)
    return set_job_state(job_id, JobState.ACTIVE, reason=Reason.ACTIVATED_BY_USER, actor=actor)


@joined
def create_task(
    *,
    job: Job,
    task_id: str,
    kind: Task.Kind,
    name: str,
    slots: int,
    single_host: bool,
    actor: str,
    max_time_seconds: int | None = None,
    only_hosts: Sequence[str] = (),
) -> Task:
    """A new request for slots; it waits, or rests with its job."""
    asked = {
        "slots": slots,
        "single_host": single_host,
        "max_time_seconds": max_time_seconds,
        "only_hosts": only_hosts,
    }
    return create_tasks(job=job, named={task_id: name}, kind=kind, actor=actor, asked=asked)[0]


@joined
def create_tasks(
    *, job: Job, named: Mapping[str, str], kind: Task.Kind, actor: str, asked: Mapping[str, Any]
) -> list[Task]:
    """Tasks of a job that all ask for the same, by two statements. `named`: id -> name."""
    state = TaskState.WAITING if job.state == JobState.ACTIVE else TaskState.PAUSED
    values = {**asked, "only_hosts": list(asked["only_hosts"])}
    tasks = [
        Task(id=task_id, job=job, kind=kind, name=name, state=state, **values)
        for task_id, name in named.items()
    ]
    Task.objects.bulk_create(tasks)
    events = [event_of(Event.Kind.TASK, task.pk, task, Reason.SUBMITTED, actor) for task in tasks]
    for event in events:
        event.to_state = state
    Event.objects.bulk_create(events)
    mark_dirty(job.pool_id)
    announce(*chain.from_iterable(topics_of(task.pk, job.pk, job.kind, job.entity_id) for task in tasks))
    return tasks


@joined
def set_task_state(
    task_id: str,
    to: TaskState,
    *,
    reason: Reason,
    actor: str,
    not_before: datetime | None = None,
    blocked_by: str = "",
    detail: dict[str, Any] | None = None,
    at: datetime | None = None,
    succeeded: bool | None = None,
    recovers: bool = False,
) -> bool:
    """WAITING, PAUSED or ENDED (`at`: when, if not now); only `assign` makes a task RUNNING.

    `succeeded`: of an element of an array, whether it has done what it was for. `recovers`: it waits because we know
    that its attempt has lost its host; it stays so after attempts that never started.
    """
    task = _task.get(task_id)
    if to == TaskState.RUNNING:
        return False
    values: dict[str, Any] = {"failed_starts": []} if task.state == TaskState.ENDED else {}
    values["ended_at"] = (at or timezone.now()) if to == TaskState.ENDED else None
    values |= {"not_before": not_before, "blocked_by": blocked_by, "succeeded": succeeded}
    still_recovers = task.recovers and reason in NEVER_STARTED
    values["recovers"] = to == TaskState.WAITING and (recovers or still_recovers)
    return step_task(task, TASK_STEPS, to, reason, actor, detail, **values)


def step_task(
    task: Task,
    table: Table,
    to: TaskState,
    reason: Reason,
    actor: str,
    detail: dict[str, Any] | None = None,
    **values: Any,
) -> bool:
    """One guarded step of a task, by the writers of states alone."""
    event = event_of(Event.Kind.TASK, task.pk, task, reason, actor, detail)
    if not step(task, table, to, event, **values):
        return False
    _tell(task)
    return True


def lock_tasks(task_ids: Collection[str]) -> None:
    """Hold these tasks until the transaction ends, so that no pass gives one of them slots meanwhile.

    For decisions that depend on whether a task has an open attempt: look for it after this. Tasks are locked
    before allocations, in one order. Everywhere without the key (no_key): a row that points at one may be written
    twice in a transaction, which checks the key, and that must wait for nobody.
    """
    with cursor() as locks:
        locks.execute("SELECT FROM jobs_task WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE", [[*task_ids]])


@transaction.atomic
def unblock(task_id: str) -> None:
    """The task waited for something other than slots, and need not any more."""
    task = Task.objects.select_related("job").get(pk=task_id)
    if Task.objects.filter(pk=task_id).exclude(blocked_by="").update(blocked_by=""):
        mark_dirty(task.job.pool_id)


def avoid_host(task_id: str, host_name: str) -> None:
    """Do not place the task there again. Its experiment is locked."""
    task = Task.objects.select_for_update(no_key=True).get(pk=task_id)
    if host_name not in task.avoid_hosts:
        Task.objects.filter(pk=task_id).update(avoid_hosts=[*task.avoid_hosts, host_name])
        mark_dirty(task.job.pool_id)


def record_new(task: Task, actor: str) -> None:
    """The event row of a task that was just created."""
    event = event_of(Event.Kind.TASK, task.pk, task, Reason.SUBMITTED, actor)
    event.to_state = task.state
    store(event)
    _tell(task)


def event_of(
    kind: Event.Kind, subject: str, task: Task, reason: str, actor: str, detail: dict[str, Any] | None = None
) -> Event:
    """The event row, not saved yet, of what happens to a task, to an attempt of it or to a member of one."""
    about = {"kind": kind, "subject": subject, "reason": reason, "actor": actor, "detail": detail or {}}
    return Event(**about, job_id=task.job_id, task_id=task.pk)


def _tell(task: Task) -> None:
    mark_dirty(task.job.pool_id)
    announce_task(task)


def announce_task(task: Task) -> None:
    announce(*topics_of(task.pk, task.job_id, task.job.kind, task.job.entity_id))


def topics_of(task_id: str, job_id: uuid.UUID, kind: str, entity_id: str) -> list[str]:
    """Who shows a task (see `events.announce`); kind and entity are those of its job."""
    topics = [f"task:{task_id}", f"log:{task_id}", f"job:{job_id}"]
    if kind == Job.Kind.EXPERIMENT:
        topics.append(f"experiment:{entity_id}")
    return topics


def step_allocation(
    allocation: Allocation,
    to: AllocationState,
    reason: str,
    actor: str,
    detail: dict[str, Any] | None = None,
    *,
    table: Table = ALLOCATION_STEPS,
    **values: Any,
) -> bool:
    """One guarded step of a locked allocation, by the writers of states alone; `detail` as its reason has it."""
    event = event_of(Event.Kind.ALLOCATION, allocation.pk, allocation.task, reason, actor, detail)
    if not step(allocation, table, to, event, **values):
        return False
    _announce_allocation(allocation)
    return True


def record_allocation(
    allocation: Allocation,
    reason: str,
    actor: str,
    detail: dict[str, Any] | None = None,
    *,
    is_new: bool = False,
) -> None:
    """The event row of a new allocation, or of what leaves the state as it is; `detail` as its reason has it."""
    event = event_of(Event.Kind.ALLOCATION, allocation.pk, allocation.task, reason, actor, detail)
    event.from_state, event.to_state = "" if is_new else allocation.state, allocation.state
    store(event)
    _announce_allocation(allocation)


def _announce_allocation(allocation: Allocation) -> None:
    announce(f"allocation:{allocation.pk}")
    announce_task(allocation.task)
    announce(f"pool:{allocation.pool_id}", "hosts")
