"""A submission becomes a command, or an array of them, with job and tasks, in one transaction or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.utils import timezone

from accounts.models import User
from accounts.refusals import Code, Refusal, Together
from commands import arrays, corresponding
from commands.config import CommandConfig, check
from commands.models import Command, Service
from commands.states import CommandState
from events.announce import announce
from events.models import Event
from hosts.models import ResourcePool
from jobs import deadlines
from jobs import transitions as jobs
from jobs.accepting import once, refuse_too_many, settle
from jobs.labels import label_of
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
    preemptible: bool = False,
    by_server: bool = False,
    gang: bool = False,
) -> Command:
    """Make the command, or all elements of an array by as many statements; of an array, the first element is returned.

    A repeated `idempotency_key` returns the first one again. `preemptible`: it may be stopped for other work, and
    whoever submits it sees to it that it starts again. `by_server`: its owner has not asked for it. `gang`: it may
    have several hosts. Raises Refusal.
    """
    effective = config.effective()
    pool = accepted(effective, owner, workspace_number, by_server=by_server, gang=gang)
    indices = _indices(effective)
    ids = [uuid.uuid4() for _ in indices.values] if indices else [uuid.uuid4()]
    places = indices.values if indices else [None]
    own = dict(zip(indices.values, map(str, ids), strict=True)) if indices else {}
    resources, entity = effective["resources"], uuid.uuid4() if indices else ids[0]
    job = jobs.create_job(
        kind=Job.Kind.ARRAY if indices else kind,
        name=effective["description"],
        owner=owner,
        pool=pool,
        priority=resources["priority"] or pool.default_priority,
        weight=resources["weight"],
        max_slots=None,
        preemptible=preemptible,
        active=True,
        entity_id=str(entity),
        depends_on=corresponding.wanted(effective["depends_on"], own),
        elements=len(ids) if indices else None,
        at_once=indices.at_once if indices else None,
        deadline_at=deadlines.of(resources, timezone.now()),
        actor=actor,
    )
    names = [_name(effective, place) for place in places]
    tasks = jobs.create_tasks(
        job=job,
        named={str(pk): name for pk, name in zip(ids, names, strict=True)},
        kind=Task.Kind.COMMAND,
        actor=actor,
        asked={
            "slots": resources["slots"],
            "single_host": not gang,
            "max_time_seconds": resources["max_time"],
            "only_hosts": resources["hosts"],
        },
    )
    commands = [
        Command(
            id=pk,
            job=job,
            task=task,
            owner=owner,
            description=name,
            config=effective,
            context=context,
            workspace_number=workspace_number,
            array_index=place,
            idempotency_key=idempotency_key if pk == ids[0] else None,
        )
        for pk, task, name, place in zip(ids, tasks, names, places, strict=True)
    ]
    Command.objects.bulk_create(commands)
    about: dict[str, Any] = {
        "kind": Event.Kind.COMMAND, "reason": Reason.SUBMITTED, "actor": actor, "to_state": CommandState.ACTIVE,
        "job_id": job.pk, "pools": [job.pool_id],
    }  # fmt: skip
    events = [Event(**about, subject=str(each.pk), task_id=each.task_id) for each in commands]
    whole = [Event(**about, subject=job.entity_id)] if indices else []
    Event.objects.bulk_create(events + whole)
    _listen(commands, kind, shown)
    announce("commands")
    return commands[0]


def _indices(effective: dict[str, Any]) -> arrays.Indices | None:
    text = effective.get("array")
    return arrays.parse(text, settings.ELEMENTS_PER_ARRAY) if text else None


def _name(effective: dict[str, Any], place: int | None) -> str:
    """What lists call it, with the index of an element."""
    mark = "" if place is None else f" [{place}]"
    return str(effective["description"])[: 255 - len(mark)] + mark


def accepted(
    effective: dict[str, Any],
    owner: User,
    workspace: int | None = None,
    *,
    by_server: bool = False,
    gang: bool = False,
) -> ResourcePool:
    """The pool of a command with this config; it and the time limit are written there. Raises Refusal, all at once."""
    resources = effective["resources"]
    with Together() as faults:
        with faults.step():
            indices = _indices(effective)
            if not by_server:
                refuse_too_many(owner, len(indices.values) if indices else 1)
        with faults.step():
            corresponding.wanted(
                effective["depends_on"], dict.fromkeys(indices.values if indices else (), "")
            )
        return settle(
            resources,
            resources["slots"],
            owner=owner,
            role=owner.acting_role,
            workspace=workspace,
            single_host=not gang,
            slurm=effective.get("slurm"),
            by_server=by_server,
        )


def _listen(commands: Sequence[Command], kind: Job.Kind, shown: Shown) -> None:
    """What people use of each through the server, if anything."""
    config = commands[0].config
    if kind == Job.Kind.COMMAND and not config["environment"]["proxy_ports"]:
        return
    seconds = config["idle_timeout"]
    if seconds is None and kind == Job.Kind.TENSORBOARD:
        seconds = settings.TENSORBOARD_IDLE_SECONDS
    Service.objects.bulk_create(
        Service(
            command=command,
            idle_timeout_seconds=seconds or None,
            experiment_ids=list(shown.experiment_ids),
            trial_ids=list(shown.trial_ids),
        )
        for command in commands
    )


def rerun(
    array: Job, indices: str, *, owner: User, actor: str, idempotency_key: str | None = None
) -> Command:
    """Submit elements of an array again, as an array with the same code and config; its first element.

    `indices`: as in a config; empty, those that failed or were canceled. Raises Refusal.
    """
    elements = Command.objects.filter(job=array)
    states = dict(elements.values_list("array_index", "state"))
    label = label_of(array.kind, array.entity_id)
    if indices:
        try:
            wanted = arrays.parse(indices, settings.ELEMENTS_PER_ARRAY)
        except ValueError as error:
            raise Refusal(f"indices: found {indices!r}, allowed: {error}.", field="indices") from None
        if missing := [index for index in wanted.values if index not in states]:
            raise Refusal(f"{label} has no element {missing[0]}.", Code.NOT_FOUND, field="indices")
        at_once = wanted.at_once or array.at_once
        wanted = arrays.Indices(wanted.values, at_once)
    else:
        again = {CommandState.ERROR, CommandState.CANCELED}
        values = sorted(index or 0 for index, state in states.items() if state in again)
        if not values:
            raise Refusal(f"No element of {label} failed or was canceled.", Code.CONFLICT)
        wanted = arrays.Indices(tuple(values), array.at_once)
    first = elements.select_related("context").order_by("array_index")[0]
    return create(
        owner=owner,
        config=check({**first.config, "array": str(wanted), "depends_on": []}),
        context=first.context,
        workspace_number=first.workspace_number,
        idempotency_key=idempotency_key,
        actor=actor,
    )
