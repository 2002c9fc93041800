"""What people may change of an experiment besides its state: name, description, labels, notes, project, logs kept."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from accounts.refusals import Code, Refusal, refused_as
from events.announce import announce
from events.models import Event
from events.record import record
from experiments import places
from experiments.models import Experiment, Project
from experiments.transitions import lock
from jobs.models import Job
from logs.models import Retention

#: an event says only that they changed
_LONG = {"description", "notes"}


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
    told = {
        key: ["", ""] if key in _LONG else [str(getattr(experiment, key)), str(value)]
        for key, value in changed.items()
        if key != "config"
    }
    _record(experiment, "changed", actor, told)
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
    was = (experiment.config.get("retention_policy") or {}).get("log_retention_days")
    _record(experiment, "changed", actor, {"log_retention_days": [str(was), str(days)]})
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
    _record(experiment, "changed", actor, {"project": [str(experiment.project_id), str(project.pk)]})
    Experiment.objects.filter(pk=experiment_id).update(project=project)
    experiment.project = project
    announce(f"experiment:{experiment_id}", "experiments")
    return experiment


def _record(experiment: Experiment, reason: str, actor: str, changes: dict[str, list[str]]) -> None:
    record(
        Event.Kind.EXPERIMENT,
        experiment.pk,
        reason=reason,
        actor=actor,
        detail={"changes": changes},
        experiment_id=experiment.pk,
    )
