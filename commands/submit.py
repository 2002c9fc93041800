"""A submission becomes a command, its job and its task, in one transaction or not at all."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import IntegrityError, transaction

from accounts.models import User
from commands.config import CommandConfig
from commands.models import Command
from commands.states import CommandState
from events.announce import announce
from events.models import Event
from events.record import record
from hosts.models import ResourcePool
from hosts.pools import default_pool_for
from jobs import queue_rules, time_limits
from jobs import transitions as jobs
from jobs.models import Job, Task
from jobs.states import Reason
from submissions.models import Context


class Refused(Exception):
    """The submission cannot be accepted; the message is a sentence for the user."""


def pool_for(name: str, slots: int) -> ResourcePool:
    """The pool that a config names, or the default one for so many slots. Raises Refused."""
    if not name:
        return default_pool_for(slots)
    pool = ResourcePool.objects.filter(name=name).first()
    if pool is None:
        known = ", ".join(ResourcePool.objects.values_list("name", flat=True)) or "none"
        raise Refused(f"resource pool {name} does not exist; the pools are: {known}.")
    return pool


def create(
    *,
    owner: User,
    config: CommandConfig,
    context: Context,
    workspace_number: int,
    idempotency_key: str | None,
    actor: str,
) -> Command:
    """Make the command. A repeated `idempotency_key` returns the first one. Raises Refused."""
    if idempotency_key and (first := Command.objects.filter(idempotency_key=idempotency_key).first()):
        return first
    try:
        return _create(owner, config, context, workspace_number, idempotency_key, actor)
    except IntegrityError:
        first = Command.objects.filter(idempotency_key=idempotency_key).first() if idempotency_key else None
        if first is None:
            raise
        return first


@transaction.atomic
def _create(
    owner: User,
    config: CommandConfig,
    context: Context,
    workspace_number: int,
    idempotency_key: str | None,
    actor: str,
) -> Command:
    effective = config.effective()
    resources = effective["resources"]
    pool = pool_for(resources["resource_pool"], resources["slots"])
    resources["resource_pool"] = pool.name
    resources["max_time"] = _max_time(pool, resources)
    asked = resources["priority"]
    if asked is not None and (error := queue_rules.floor_error(pool, owner.role, asked)):
        raise Refused(error)
    command_id = uuid.uuid4()
    job = jobs.create_job(
        kind=Job.Kind.COMMAND,
        name=effective["description"],
        owner=owner,
        pool=pool,
        priority=asked or pool.default_priority,
        weight=resources["weight"],
        max_slots=None,
        preemptible=False,
        active=True,
        entity_id=str(command_id),
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
    )
    announce("commands")
    return command


def _max_time(pool: ResourcePool, resources: dict[str, Any]) -> int | None:
    try:
        return time_limits.seconds_for(pool, resources["max_time"])
    except time_limits.TooLong as error:
        raise Refused(str(error)) from error
