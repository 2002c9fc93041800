"""A submission becomes an experiment, its job and its first trials, in one transaction or not at all."""

from __future__ import annotations

import secrets

from django.db import IntegrityError, transaction

from accounts.models import User
from events.announce import announce
from events.models import Event
from events.record import record
from experiments import search
from experiments.config import ExperimentConfig
from experiments.models import Experiment, Project
from experiments.states import ExperimentState
from hosts.models import ResourcePool
from hosts.pools import default_pool_for
from jobs import queue_rules, time_limits
from jobs import transitions as jobs
from jobs.models import Job
from jobs.states import Reason
from submissions.models import Context


class Refused(Exception):
    """The submission cannot be accepted; the message is a sentence for the user."""


def pool_for(name: str, slots: int = 1) -> ResourcePool:
    """The pool that a config names, or the default one for so many slots."""
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
    config: ExperimentConfig,
    original: str,
    context: Context,
    project: Project,
    parent: Experiment | None,
    activate: bool,
    idempotency_key: str | None,
    actor: str,
) -> Experiment:
    """Make the experiment. A repeated `idempotency_key` returns the first one. Raises Refused."""
    if idempotency_key and (first := Experiment.objects.filter(idempotency_key=idempotency_key).first()):
        return first
    try:
        return _create(owner, config, original, context, project, parent, activate, idempotency_key, actor)
    except IntegrityError:
        first = (
            Experiment.objects.filter(idempotency_key=idempotency_key).first() if idempotency_key else None
        )
        if first is None:
            raise
        return first


@transaction.atomic
def _create(
    owner: User,
    config: ExperimentConfig,
    original: str,
    context: Context,
    project: Project,
    parent: Experiment | None,
    activate: bool,
    idempotency_key: str | None,
    actor: str,
) -> Experiment:
    effective = config.effective()
    resources = effective["resources"]
    pool = pool_for(resources.get("resource_pool") or "", resources["slots_per_trial"])
    asked = resources.get("priority")
    if asked is not None and (error := queue_rules.floor_error(pool, owner.role, asked)):
        raise Refused(error)
    seed = (effective.get("reproducibility") or {}).get("experiment_seed")
    if seed is None:
        seed = secrets.randbelow(2**31)
        effective["reproducibility"] = {"experiment_seed": seed}
    resources["resource_pool"] = pool.name
    resources["max_time"] = _max_time(pool, resources.get("max_time"))
    job = jobs.create_job(
        kind=Job.Kind.EXPERIMENT,
        name=effective["name"],
        owner=owner,
        pool=pool,
        priority=asked or pool.default_priority,
        weight=resources.get("weight") or 1.0,
        max_slots=resources.get("max_slots"),
        preemptible=effective.get("preemptible") is not False,
        active=activate,
        actor=actor,
    )
    experiment = Experiment.objects.create(
        job=job,
        state=ExperimentState.ACTIVE if activate else ExperimentState.PAUSED,
        name=effective["name"],
        description=effective.get("description") or "",
        labels=effective.get("labels") or [],
        owner=owner,
        project=project,
        parent=parent,
        config=effective,
        original_config=original,
        context=context,
        seed=seed,
        idempotency_key=idempotency_key,
    )
    Job.objects.filter(pk=job.pk).update(entity_id=str(experiment.pk))
    job.entity_id = str(experiment.pk)
    record(
        Event.Kind.EXPERIMENT,
        experiment.pk,
        to_state=experiment.state,
        reason=Reason.SUBMITTED,
        actor=actor,
        job_id=job.pk,
        experiment_id=experiment.pk,
    )
    search.start(experiment, actor=actor)
    announce("experiments")
    return experiment


def _max_time(pool: ResourcePool, asked: int | None) -> int | None:
    try:
        return time_limits.seconds_for(pool, asked)
    except time_limits.TooLong as error:
        raise Refused(str(error)) from error
