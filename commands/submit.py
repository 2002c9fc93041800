"""A submission becomes a command, its job and its task, in one transaction or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from accounts.models import User
from accounts.refusals import Together
from commands.config import CommandConfig
from commands.models import Command, Service
from commands.states import CommandState
from events.announce import announce
from events.models import Event
from events.record import record
from hosts.models import ResourcePool
from jobs import dependencies
from jobs import transitions as jobs
from jobs.accepting import once, refuse_too_many, settle
from jobs.models import Job, Task
from jobs.states import Reason
from submissions.models import Context


@dataclass(frozen=True)
class Shown:
    """What a TensorBoard shows: experiments with all their trials, and single trials."""

    experiment_ids: Sequence[int] = ()
    trial_ids: Sequence[int] = ()


@once(Command)
def create(
    *,
    owner: User,
    config: CommandConfig,
    context: Context,
    workspace_number: int,
    idempotency_key: str | None,
    actor: str,
    kind: Job.Kind = Job.Kind.COMMAND,
    shown: Shown = Shown(),
) -> Command:
    """Make the command. A repeated `idempotency_key` returns the first one. Raises Refusal."""
    effective = config.effective()
    pool = accepted(effective, owner, workspace_number)
    resources = effective["resources"]
    command_id = uuid.uuid4()
    job = jobs.create_job(
        kind=kind,
        name=effective["description"],
        owner=owner,
        pool=pool,
        priority=resources["priority"] or pool.default_priority,
        weight=resources["weight"],
        max_slots=None,
        preemptible=False,
        active=True,
        entity_id=str(command_id),
        depends_on=dependencies.found(effective["depends_on"]),
        actor=actor,
    )
    task = jobs.create_task(
        job=job,
        task_id=str(command_id),
        kind=Task.Kind.COMMAND,
        name=effective["description"],
        slots=resources["slots"],
        single_host=True,
        max_time_seconds=resources["max_time"],
        only_hosts=resources["hosts"],
        actor=actor,
    )
    command = Command.objects.create(
        id=command_id,
        job=job,
        task=task,
        owner=owner,
        description=effective["description"],
        config=effective,
        context=context,
        workspace_number=workspace_number,
        idempotency_key=idempotency_key,
    )
    record(
        Event.Kind.COMMAND,
        command_id,
        to_state=CommandState.ACTIVE,
        reason=Reason.SUBMITTED,
        actor=actor,
        job_id=job.pk,
        task_id=task.pk,
        pools=[job.pool_id],
    )
    _listen(command, kind, shown)
    announce("commands")
    return command


def accepted(effective: dict[str, Any], owner: User, workspace: int | None = None) -> ResourcePool:
    """The pool of a command with this config; it and the time limit are written there. Raises Refusal, all at once."""
    resources = effective["resources"]
    with Together() as faults:
        with faults.step():
            refuse_too_many(owner)
        with faults.step():
            dependencies.found(effective["depends_on"])
        return settle(
            resources,
            resources["slots"],
            owner=owner,
            role=owner.acting_role,
            workspace=workspace,
            single_host=True,
        )


def _listen(command: Command, kind: Job.Kind, shown: Shown) -> None:
    """What people use of it through the server, if anything."""
    if kind == Job.Kind.COMMAND and not command.config["environment"]["proxy_ports"]:
        return
    seconds = command.config["idle_timeout"]
    if seconds is None and kind == Job.Kind.TENSORBOARD:
        seconds = settings.TENSORBOARD_IDLE_SECONDS
    Service.objects.create(
        command=command,
        idle_timeout_seconds=seconds or None,
        experiment_ids=list(shown.experiment_ids),
        trial_ids=list(shown.trial_ids),
    )
