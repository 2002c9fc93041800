"""Attempts that their user starts outside the queue: they hold no slots, and nobody launches, stops or removes them.

A part of `jobs.transitions`, the one writer; the steps that no other attempt may take are in the DETACHED tables of
`jobs.states`. What a detached run has none of stands in rows that the rest never meets: its job is born ENDED, so no
queue has it; its pool is one that nobody sees; its machine is a host that `Host.objects` leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from accounts.models import Cluster, User
from events.models import Event
from events.record import record
from hosts.models import Host, ResourcePool
from jobs.assigning import new_allocation
from jobs.job_transitions import lock_tasks, record_allocation, record_new, step_allocation, step_task
from jobs.models import Allocation, Job, Member, Task
from jobs.states import (
    DETACHED_ALLOCATION_STEPS,
    DETACHED_MEMBER_STEPS,
    DETACHED_TASK_STEPS,
    AllocationState,
    JobState,
    MemberState,
    Reason,
    TaskState,
)

#: No pool of a person's can have this name (hosts.pool_edits), and as a removed one it is nowhere shown.
POOL = "(unmanaged)"
#: The machine of a run that names none, as Determined's clients do.
UNNAMED_MACHINE = "unmanaged"


def pool() -> ResourcePool:
    """Where detached jobs belong, since every job belongs to a pool; made on first use."""
    return ResourcePool.with_removed.get_or_create(
        name=POOL, defaults={"removed": True, "description": "Detached runs, outside all queues."}
    )[0]


def machine(name: str) -> Host:
    """The row of a user's own machine; made on first use."""
    return Host.with_machines.get_or_create(
        name=name or UNNAMED_MACHINE,
        transport=Host.Transport.NONE,
        defaults={"pool": pool(), "admission": Host.Admission.READY},
    )[0]


def create_job(*, name: str, owner: User, actor: str) -> Job:
    """A job that asks for nothing and so stands in no queue."""
    job = Job.objects.create(
        kind=Job.Kind.EXPERIMENT, name=name, owner=owner, pool=pool(), state=JobState.ENDED, position=0.0
    )
    record(Event.Kind.JOB, job.id, to_state=job.state, reason=Reason.SUBMITTED, actor=actor, job_id=job.id)
    return job


def create_task(*, job: Job, task_id: str, name: str, actor: str) -> Task:
    """A task that rests until its user starts it."""
    task = Task.objects.create(
        id=task_id, job=job, kind=Task.Kind.TRIAL, name=name, slots=0, state=TaskState.PAUSED
    )
    record_new(task, actor)
    return task


@transaction.atomic
def begin(task_id: str, machines: Sequence[str], *, actor: str) -> Allocation | None:
    """A new attempt with a member on each machine; None while the task has an open one. Its experiment is locked."""
    lock_tasks([task_id])
    task = Task.objects.select_related("job").get(pk=task_id)
    if TaskState(task.state) not in DETACHED_TASK_STEPS:
        return None
    now = timezone.now()
    above = Cluster.get().attempts_above
    allocation = new_allocation(task, above, slots=0, state=AllocationState.STARTING)
    allocation.save(force_insert=True)
    hosts = {
        name: machine(name) for name in sorted(set(machines))
    }  # in one order, as whoever else makes them
    Member.objects.bulk_create(
        Member(
            allocation=allocation, index=index, host=hosts[name], slots=0,
            state=MemberState.LAUNCHED, launched_at=now, heartbeat_at=Now(),
        )
        for index, name in enumerate(machines)
    )  # fmt: skip
    _task_runs(task, Reason.STARTED_BY_USER, actor, run_count=allocation.number)
    names = list(dict.fromkeys(hosts[name].name for name in machines))
    record_allocation(allocation, Reason.STARTED_BY_USER, actor, {"hosts": names}, is_new=True)
    return allocation


@transaction.atomic
def heard_again(allocation: Allocation) -> None:
    """An attempt that was given up in silence goes on; it is locked, with its task."""
    fields: dict[str, Any] = {
        "started_at": allocation.started_at or timezone.now(), "ended_at": None, "settled_at": None,
        "exit_reason": "", "exit_code": None, "exit_detail": {}, "stop_kind": "", "stop_reason": "", "stop_actor": "",
        "stop_requested_at": None, "stop_grace_seconds": None,
    }  # fmt: skip
    if not step_allocation(
        allocation,
        AllocationState.RUNNING,
        Reason.HEARD_AGAIN,
        "server",
        table=DETACHED_ALLOCATION_STEPS,
        **fields,
    ):
        return
    allocation.members.filter(
        state__in=DETACHED_MEMBER_STEPS, exit_reason=Reason.NO_SIGN_OF_LIFE
    ).update(
        state=MemberState.RUNNING, started_at=F("launched_at"), heartbeat_at=Now(), ended_at=None, exit_reason="",
    )  # fmt: skip
    task = Task.objects.select_related("job").get(pk=allocation.task_id)
    _task_runs(task, Reason.HEARD_AGAIN, "server")


def _task_runs(task: Task, reason: Reason, actor: str, **values: Any) -> None:
    step_task(task, DETACHED_TASK_STEPS, TaskState.RUNNING, reason, actor, ended_at=None, **values)
