"""An experiment as the dialect shows it, and the query that has all its numbers at once."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, cast

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
from pydantic import Field
from typing_extensions import TypedDict

from experiments import phases
from experiments.config import masked_text, shown
from experiments.models import Checkpoint, Experiment, Trial
from experiments.states import GONE, ExperimentState
from webui.api import encoding
from webui.api.answers import Number64, Time, one_of
from webui.api.views import Json

#: in the dialect's words; an experiment that is ACTIVE says where it stands instead
STATES = [
    f"STATE_{word}"
    for word in (phases.QUEUED, phases.STARTING, phases.RUNNING, *ExperimentState.values)
    if word != ExperimentState.ACTIVE
]


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
    config: Json = experiment.config
    if experiment.unmanaged:
        return shown(config)
    job = experiment.job
    edited = {
        "priority": job.priority,
        "weight": job.weight,
        "max_slots": job.max_slots,
        "resource_pool": job.pool.name,
    }
    return shown({**config, "resources": {**(config.get("resources") or {}), **edited}})


class ExperimentDraft(TypedDict):
    """What `validateOnly` answers: nothing of it has an id."""

    id: int
    name: str
    state: Annotated[str, one_of("STATE_UNSPECIFIED", *STATES)]
    archived: bool
    config: Annotated[Json, Field(description="in force: as submitted, with what queue edits have changed")]
    originalConfig: Annotated[str, Field(description="the submitted YAML; empty in lists")]
    startTime: Time
    numTrials: int
    searcherType: str
    username: str
    jobId: str
    projectId: int
    projectOwnerId: Annotated[int, Field(description="0: nobody owns it")]


class ExperimentRecord(ExperimentDraft):
    """An experiment. Fields without a value are absent."""

    description: str
    notes: str
    labels: list[str]
    logLabels: Annotated[list[str], Field(description="names of the log policies that its logs matched")]
    templateName: str
    endTime: NotRequired[Time]
    duration: Annotated[int, Field(description="seconds, until now while it goes on")]
    progress: NotRequired[Annotated[float, Field(description="from 0 to 1")]]
    trialIds: NotRequired[Annotated[list[int], Field(description="not in lists")]]
    searcherMetric: NotRequired[str]
    hyperparameters: Json
    bestTrialId: NotRequired[int]
    bestTrialSearcherMetric: NotRequired[float]
    checkpointCount: int
    checkpointSize: Number64
    displayName: str
    userId: int
    resourcePool: Annotated[str, Field(description="empty where it is unmanaged")]
    forkedFrom: NotRequired[int]
    unmanaged: bool
    externalExperimentId: NotRequired[str]
    projectName: str
    workspaceId: int
    workspaceName: str
    parentArchived: Annotated[bool, Field(description="whether its project or workspace is")]


def encode_experiment(experiment: Any, *, full: bool = False) -> ExperimentRecord:
    """One row of `with_numbers`. The submitted text is part of the full record alone."""
    config = effective_config(experiment)
    searcher = config.get("searcher") or {}
    end = experiment.ended_at or timezone.now()
    encoded = encoding.without_none(
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
    return cast(ExperimentRecord, encoded)


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
