"""A submission becomes an experiment, its job and its first trials, in one transaction or not at all."""

from __future__ import annotations

import secrets
from typing import Any

from django.utils import timezone

import searching
from accounts.models import User
from accounts.refusals import Refusal, Together
from events.announce import announce
from events.models import Event
from events.record import record
from experiments import s3_stores, search, sources
from experiments.config import ExperimentConfig
from experiments.models import Experiment, Project
from experiments.states import ExperimentState
from experiments.templates import Used, note_use
from hosts.models import ResourcePool
from jobs import deadlines, dependencies, detached
from jobs import transitions as jobs
from jobs.accepting import once, refuse_too_many, settle
from jobs.models import Job
from jobs.states import Reason
from submissions.models import Context


@once(Experiment)
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
    unmanaged: bool = False,
    external_id: str | None = None,
    template: Used | None = None,
) -> Experiment:
    """Make the experiment. A repeated `idempotency_key` returns the first one. Raises Refusal.

    An `unmanaged` one has no trials yet, and nothing of it is ever queued; `external_id` is its user's name for it.
    `template` is what `config` was merged with, kept beside it.
    """
    effective = config.effective()
    if parent is not None and parent.unmanaged:
        raise Refusal(unmanaged_parent(parent))
    pool = accepted(effective, owner, unmanaged=unmanaged, workspace=project.workspace_id)
    seed = _seed(effective)
    if pool is None:
        job = detached.create_job(name=effective["name"], owner=owner, actor=actor)
    else:
        job = _queued(effective, owner, pool, activate, actor)
    experiment = Experiment.objects.create(
        job=job,
        state=ExperimentState.ACTIVE if activate or unmanaged else ExperimentState.PAUSED,
        name=effective["name"],
        description=effective.get("description") or "",
        labels=effective.get("labels") or [],
        owner=owner,
        project=project,
        parent=parent,
        config=effective,
        original_config=original,
        template_name=template.name if template else "",
        template_config=template.config if template else {},
        context=context,
        seed=seed,
        idempotency_key=idempotency_key,
        unmanaged=unmanaged,
        external_id=external_id,
    )
    note_use(template, owner, f"experiment {experiment.pk}")
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
        pools=[] if unmanaged else [job.pool_id],
    )
    if not unmanaged:
        search.start(experiment, actor=actor)
    announce("experiments")
    return experiment


def accepted(
    effective: dict[str, Any], owner: User, *, unmanaged: bool = False, workspace: int | None = None
) -> ResourcePool | None:
    """The pool of an experiment with this config, None for an unmanaged one; it and the time limit are written there.

    Raises Refusal, with all that such an experiment could not begin with. The caller holds a transaction.
    """
    pool, resources = None, effective["resources"]
    with Together() as faults:
        with faults.step():
            sources.found(effective)
        if refusal := s3_stores.endpoint_refusal(effective.get("checkpoint_storage") or {}):
            faults.refused.append(Refusal(refusal))
        if not unmanaged:
            with faults.step():
                refuse_too_many(owner)
            with faults.step():
                asks = resources["slots_per_trial"]
                pool = settle(
                    resources,
                    asks,
                    owner=owner,
                    role=owner.acting_role,
                    workspace=workspace,
                    slurm=effective.get("slurm"),
                )
            with faults.step():
                dependencies.found(effective["depends_on"])
            with faults.step():
                _refuse_search(effective)
    return pool


def _refuse_search(effective: dict[str, Any]) -> None:
    """Refuse a search that no server could carry, such as one that is too large."""
    try:
        searching.start(effective["searcher"], effective.get("hyperparameters") or {}, 0)
    except searching.BadSearch as error:
        raise Refusal(str(error), field="searcher") from error


def _queued(effective: dict[str, Any], owner: User, pool: ResourcePool, activate: bool, actor: str) -> Job:
    """The job of an experiment, in the queue of its pool."""
    resources = effective["resources"]
    return jobs.create_job(
        kind=Job.Kind.EXPERIMENT,
        name=effective["name"],
        owner=owner,
        pool=pool,
        priority=resources.get("priority") or pool.default_priority,
        weight=resources.get("weight") or 1.0,
        max_slots=resources.get("max_slots"),
        preemptible=effective.get("preemptible") is not False,
        depends_on=dependencies.found(effective["depends_on"]),
        deadline_at=deadlines.of(resources, timezone.now()),
        active=activate,
        actor=actor,
    )


def _seed(effective: dict[str, Any]) -> int:
    """The seed of the config, or one drawn now and written there."""
    seed = (effective.get("reproducibility") or {}).get("experiment_seed")
    if seed is None:
        seed = secrets.randbelow(2**31)
        effective["reproducibility"] = {"experiment_seed": seed}
    return int(seed)


def unmanaged_parent(parent: Experiment) -> str:
    """Why such an experiment is refused as a parent."""
    return (
        f"Experiment {parent.pk} is unmanaged: its code is where it was started, so it cannot be forked here."
    )
