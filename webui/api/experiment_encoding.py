"""An experiment as the dialect shows it, and the query that has all its numbers at once."""

from __future__ import annotations

import copy
from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import (
    BigIntegerField,
    Count,
    F,
    IntegerField,
    OuterRef,
    QuerySet,
    Subquery,
    Sum,
)
from django.db.models.functions import Coalesce
from django.utils import timezone

from experiments import phases
from experiments.config import masked, masked_text
from experiments.models import Checkpoint, Experiment, Trial
from experiments.states import GONE
from webui.api import encoding
from webui.api.views import Json


def with_numbers() -> QuerySet[Experiment]:
    """Experiments with num_trials, checkpoint_count, checkpoint_bytes and their phase beside their columns."""
    kept = Checkpoint.objects.filter(trial__experiment=OuterRef("pk")).exclude(state__in=GONE)
    trials = Trial.objects.filter(experiment=OuterRef("pk"))
    rows = Experiment.objects.select_related("owner", "job__pool", "project__workspace")
    return phases.annotated(rows).annotate(
        log_labels=ArraySubquery(trials.exclude(log_labels=[]).order_by().values("log_labels").distinct()),
        num_trials=_number(trials, "experiment", Count("pk"), IntegerField()),
        checkpoint_count=_number(kept, "trial__experiment", Count("pk"), IntegerField()),
        checkpoint_bytes=_number(kept, "trial__experiment", Sum("size_bytes"), BigIntegerField()),
        username=F("owner__username"),
        pool_name=F("job__pool__name"),
    )


def _number(rows: QuerySet[Any], by: str, what: Any, field: Any) -> Coalesce:
    grouped = rows.order_by().values(by).annotate(n=what).values("n")
    return Coalesce(Subquery(grouped, output_field=field), 0, output_field=field)


def effective_config(experiment: Experiment) -> Json:
    """The config in force: what was submitted, with what queue edits have changed since. Secrets are masked."""
    config = masked(copy.deepcopy(experiment.config))
    if experiment.unmanaged:
        return config
    job = experiment.job
    config["resources"] = {
        **(config.get("resources") or {}),
        "priority": job.priority,
        "weight": job.weight,
        "max_slots": job.max_slots,
        "resource_pool": job.pool.name,
    }
    return config


def encode_experiment(experiment: Any, *, full: bool = False) -> Json:
    """One row of `with_numbers`. The submitted text is part of the full record alone."""
    config = effective_config(experiment)
    searcher = config.get("searcher") or {}
    end = experiment.ended_at or timezone.now()
    return encoding.without_none(
        {
            "id": experiment.pk,
            "name": experiment.name,
            "description": experiment.description,
            "notes": experiment.notes,
            "labels": experiment.labels,
            "logLabels": sorted({name for names in experiment.log_labels or [] for name in names}),
            "state": f"STATE_{phases.of(experiment)}",
            "archived": experiment.archived,
            "config": config,
            "originalConfig": masked_text(experiment.original_config) if full else "",
            "templateName": experiment.template_name,
            "startTime": encoding.time(experiment.started_at),
            "endTime": encoding.time(experiment.ended_at),
            "duration": int((end - experiment.started_at).total_seconds()),
            "progress": experiment.progress,
            "numTrials": experiment.num_trials,
            "trialIds": list(experiment.trials.values_list("pk", flat=True)) if full else None,
            "searcherType": searcher.get("name", ""),
            "searcherMetric": searcher.get("metric"),
            "hyperparameters": config.get("hyperparameters") or {},
            "bestTrialId": experiment.best_trial_id,
            "bestTrialSearcherMetric": experiment.best_metric,
            "checkpointCount": experiment.checkpoint_count,
            "checkpointSize": str(experiment.checkpoint_bytes),
            "username": experiment.owner.username,
            "displayName": experiment.owner.display_name,
            "userId": experiment.owner_id,
            "jobId": str(experiment.job_id),
            "resourcePool": "" if experiment.unmanaged else experiment.job.pool.name,
            "forkedFrom": experiment.parent_id,
            "unmanaged": experiment.unmanaged,
            "externalExperimentId": experiment.external_id,
            **_place(experiment),
        }
    )


def _place(experiment: Experiment) -> Json:
    project = experiment.project
    return {
        "projectId": project.pk,
        "projectName": project.name,
        "projectOwnerId": project.owner_id or 0,
        "workspaceId": project.workspace_id,
        "workspaceName": project.workspace.name,
        "parentArchived": project.archived or project.workspace.archived,
    }
