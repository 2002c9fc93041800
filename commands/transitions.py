"""The one writer of a command's state (law 2), and what a person may ask of it: to be killed."""

from __future__ import annotations

import uuid
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
from events.steps import step
from jobs import transitions as jobs
from jobs.models import Allocation
from jobs.states import AllocationState, JobState, Reason, StopKind, TaskState


def lock(command_id: uuid.UUID | str) -> Command:
    """The command, locked for the rest of the transaction: always before its task and its allocation."""
    return locked().get(pk=command_id)


def locked() -> QuerySet[Command]:
    return Command.objects.select_related("job", "owner").select_for_update(of=("self",), no_key=True)


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
    """The command is over, and with it its task and its job. `at`: when, if not now."""
    set_state(command, to, reason=reason, actor=actor, at=at, exit_code=exit_code, ending=ending)
    jobs.set_task_state(command.task_id, TaskState.ENDED, reason=reason, actor=actor, at=at)
    succeeded = to == CommandState.COMPLETED
    jobs.set_job_state(command.job_id, JobState.ENDED, reason=reason, actor=actor, at=at, succeeded=succeeded)


@transaction.atomic
def kill(command_id: uuid.UUID | str, *, actor: str) -> Command:
    """End it now. One that waits ends at once, one that has ended is left as it is."""
    command = lock(command_id)
    if not set_state(command, CommandState.STOPPING_KILLED, reason=Reason.KILLED_BY_USER, actor=actor):
        return command
    reason = Reason.KILLED_BY_USER
    if not stop_attempt(command, reason=reason, actor=actor):
        end(command, CommandState.CANCELED, "killed before it started", reason=reason, actor=actor)
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
