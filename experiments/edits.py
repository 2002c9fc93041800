"""What people may change of an experiment besides its state: name, description, labels, notes, project, logs kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from accounts.refusals import Code, Refusal, refused_as
from events.announce import announce
from events.models import Event
from events.record import differences, record
from experiments import places
from experiments.models import Experiment, Project
from experiments.transitions import lock
from jobs.models import Job
from logs.models import Retention
from logs.retention import FOR_EVER


@transaction.atomic
def edit(
    experiment_id: int,
    *,
    name: str | None = None,
    description: str | None = None,
    labels: list[str] | None = None,
    notes: str | None = None,
    actor: str,
) -> Experiment:
    """Change what is given. Equal values change nothing, also on ended and archived experiments."""
    experiment = lock(experiment_id)
    wanted: dict[str, Any] = {"name": name, "description": description, "notes": notes}
    if labels is not None:
        wanted["labels"] = list(dict.fromkeys(labels))
    changed = {
        key: value for key, value in wanted.items() if value is not None and value != getattr(experiment, key)
    }
    if not changed:
        return experiment
    if {"name", "description", "labels"} & changed.keys():
        changed["config"] = {**experiment.config, **{k: v for k, v in changed.items() if k != "notes"}}
    Experiment.objects.filter(pk=experiment_id).update(**changed)
    note(experiment, actor, {key: wanted[key] for key in changed if key in wanted})
    if "name" in changed:
        Job.objects.filter(pk=experiment.job_id).update(name=changed["name"])
    for key, value in changed.items():
        setattr(experiment, key, value)
    announce(f"experiment:{experiment_id}", "experiments")
    return experiment


@transaction.atomic
def keep_logs(experiment_id: int, days: int | None, *, actor: str) -> None:
    """Keep the logs of all its trials so many days after their end, -1 for ever, None as the server says.

    What was set for single trials gives way.
    """
    experiment = lock(experiment_id)
    policy = {**(experiment.config.get("retention_policy") or {}), "log_retention_days": days}
    Experiment.objects.filter(pk=experiment_id).update(
        config={**experiment.config, "retention_policy": policy}
    )
    Retention.objects.filter(task__trial__experiment_id=experiment_id).update(days=None)
    former = (experiment.config.get("retention_policy") or {}).get("log_retention_days")
    note(experiment, actor, {"kept_logs": _kept(days)}, {"kept_logs": _kept(former)})
    announce(f"experiment:{experiment_id}")


@transaction.atomic
def move(experiment_id: int, project: Project, *, actor: str) -> Experiment:
    """Put an experiment into another project. Raises Refusal for archived ones on either side."""
    experiment = lock(experiment_id)
    if experiment.archived:
        raise Refusal(
            f"experiment {experiment_id} is archived; unarchive it before moving it.", Code.CONFLICT
        )
    with refused_as(Code.CONFLICT):
        places.require_open(project)
    note(experiment, actor, {"project": project.name}, {"project": experiment.project.name})
    Experiment.objects.filter(pk=experiment_id).update(project=project)
    experiment.project = project
    announce(f"experiment:{experiment_id}", "experiments")
    return experiment


def note(
    experiment: Experiment, actor: str, now: Mapping[str, Any], was: Mapping[str, Any] | None = None
) -> None:
    """Leave an event of these changes; `was`: the former values, where they are not fields of the row."""
    former = was or {field: getattr(experiment, field) for field in now}
    if changes := differences(former, now):
        record(
            Event.Kind.EXPERIMENT,
            experiment.pk,
            reason="changed",
            actor=actor,
            detail={"changes": changes},
            experiment_id=experiment.pk,
        )


def _kept(days: int | None) -> str:
    return "as configured" if days is None else "forever" if days == FOR_EVER else f"{days} days"
