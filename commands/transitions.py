"""The one writer of a command's state (law 2), and what a person may ask of it: to be killed."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from commands.models import Command
from commands.states import END_STATES, STEPS, CommandState
from events.announce import announce
from events.models import Event
from events.prepared import Prepared
from events.record import record
from events.steps import step
from jobs import transitions as jobs
from jobs.models import Allocation, Job, Task
from jobs.states import AllocationState, JobState, Reason, StopKind, TaskState

#: what an array as a whole is, by its elements
_WORST_FIRST = (CommandState.ERROR, CommandState.CANCELED, CommandState.COMPLETED)
KILLED_BEFORE_START = "killed before it started"


def lock(command_id: uuid.UUID | str) -> Command:
    """The command, locked for the rest of the transaction: always before its task and its allocation."""
    return _command.get(uuid.UUID(str(command_id)))


def locked() -> QuerySet[Command]:
    return Command.objects.select_related("job", "owner").select_for_update(of=("self",), no_key=True)


_command = Prepared(locked, "pk", uuid.UUID(int=0))


def set_state(
    command: Command,
    to: CommandState,
    *,
    reason: Reason,
    actor: str,
    at: datetime | None = None,
    **fields: Any,
) -> bool:
    """Guarded step of a locked command, with its event; `fields` are written with it. `at`: its end, if not now."""
    if to in END_STATES:
        fields["ended_at"] = at or timezone.now()
    event = Event(
        kind=Event.Kind.COMMAND,
        subject=str(command.pk),
        reason=reason,
        actor=actor,
        detail={"code": fields["exit_code"]} if fields.get("exit_code") is not None else {},
        job_id=command.job_id,
        task_id=command.task_id,
        pools=[command.job.pool_id],
    )
    if not step(command, STEPS, to, event, **fields):
        return False
    announce("commands", f"task:{command.task_id}", f"job:{command.job_id}")
    return True


def end(
    command: Command,
    to: CommandState,
    ending: str,
    *,
    reason: Reason,
    actor: str,
    exit_code: int | None = None,
    at: datetime | None = None,
) -> None:
    """The command is over, and with it its task and its job; the job of an array with its last element.

    `at`: when, if not now.
    """
    set_state(command, to, reason=reason, actor=actor, at=at, exit_code=exit_code, ending=ending)
    succeeded, is_element = to == CommandState.COMPLETED, command.array_index is not None
    jobs.set_task_state(
        command.task_id, TaskState.ENDED, reason=reason, actor=actor, at=at,
        succeeded=succeeded if is_element else None,
    )  # fmt: skip
    if is_element:
        _end_array(jobs.element_ended(command.task_id), reason=reason, actor=actor, at=at)
    else:
        jobs.set_job_state(
            command.job_id, JobState.ENDED, reason=reason, actor=actor, at=at, succeeded=succeeded
        )


def _end_array(job: Job, *, reason: Reason, actor: str, at: datetime | None) -> None:
    """The array of a locked job is over once all its elements are: failed if one of them did, else killed or done."""
    states = Counter(Command.objects.filter(job=job).values_list("state", flat=True))
    if states.keys() - END_STATES:
        return
    to = next(each for each in _WORST_FIRST if states[each])
    succeeded = to == CommandState.COMPLETED
    jobs.set_job_state(job.pk, JobState.ENDED, reason=reason, actor=actor, at=at, succeeded=succeeded)
    record(
        Event.Kind.COMMAND, job.entity_id, from_state=CommandState.ACTIVE, to_state=to, reason=reason, actor=actor,
        detail={"elements": {each: states[each] for each in _WORST_FIRST if states[each]}}, job_id=job.pk,
        pools=[job.pool_id],
    )  # fmt: skip


@transaction.atomic
def kill_array(job_id: uuid.UUID, *, actor: str) -> int:
    """End all elements of an array that have not ended, and return how many there were.

    Those that wait end by as many statements for a thousand as for one, the last of all with its array as any command.
    """
    elements = Command.objects.filter(job_id=job_id).exclude(state__in=END_STATES)
    rows = elements.select_related("job").select_for_update(of=("self",), no_key=True).order_by("pk")
    opened = list(rows)
    jobs.lock_tasks([each.task_id for each in opened])
    waiting = set(
        Task.objects.filter(pk__in=[each.task_id for each in opened], state=TaskState.WAITING)
        .exclude(allocations__in=Allocation.objects.exclude(state=AllocationState.TERMINATED))
        .values_list("pk", flat=True)
    )
    at_rest = [each for each in opened if each.task_id in waiting][1:]
    for command in opened:
        if command.task_id not in waiting:
            kill(command.pk, actor=actor)
    for first in [each for each in opened if each.task_id in waiting][:1]:
        _kill_waiting(at_rest, actor)  # locks the job, so no attempt is locked after this
        kill(first.pk, actor=actor)
    return len(opened)


def _kill_waiting(commands: Sequence[Command], actor: str) -> None:
    """End these locked elements of an array, whose tasks are locked and wait."""
    if not commands:
        return
    reason, at = Reason.KILLED_BY_USER, timezone.now()
    Command.objects.filter(pk__in=[each.pk for each in commands]).update(
        state=CommandState.CANCELED, ended_at=at, ending=KILLED_BEFORE_START
    )
    job = commands[0].job
    Event.objects.bulk_create(
        Event(
            kind=Event.Kind.COMMAND, subject=str(each.pk), from_state=each.state, to_state=CommandState.CANCELED,
            reason=reason, actor=actor, job_id=job.pk, task_id=each.task_id, pools=[job.pool_id],
        )
        for each in commands
    )  # fmt: skip
    jobs.end_waiting_elements(job, [each.task_id for each in commands], reason=reason, actor=actor, at=at)
    announce("commands", f"job:{job.pk}", *[f"task:{each.task_id}" for each in commands])


@transaction.atomic
def kill(command_id: uuid.UUID | str, *, actor: str) -> Command:
    """End it now. One that waits ends at once, one that has ended is left as it is."""
    command = lock(command_id)
    if not set_state(command, CommandState.STOPPING_KILLED, reason=Reason.KILLED_BY_USER, actor=actor):
        return command
    reason = Reason.KILLED_BY_USER
    if not stop_attempt(command, reason=reason, actor=actor):
        end(command, CommandState.CANCELED, KILLED_BEFORE_START, reason=reason, actor=actor)
    return command


def stop_attempt(command: Command, *, reason: Reason, actor: str) -> bool:
    """Stop the attempt of a locked command that has not ended; False if there is none."""
    jobs.lock_tasks([command.task_id])
    running = Allocation.objects.filter(task_id=command.task_id).exclude(state=AllocationState.TERMINATED)
    allocation_id = running.values_list("pk", flat=True).first()
    if allocation_id is None:
        return False
    grace = settings.KILL_GRACE_SECONDS
    jobs.request_stop(allocation_id, StopKind.STOP, reason=reason, actor=actor, grace_seconds=grace)
    return True
