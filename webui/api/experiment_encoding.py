"""An experiment as the dialect shows it, and the query that has all its numbers at once."""

from __future__ import annotations

from typing import Annotated, Any

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

from experiments import phases
from experiments.config import masked_text, shown
from experiments.models import Checkpoint, Experiment, Trial
from experiments.states import GONE, ExperimentState
from webui.api.answers import Answer, Maybe, Number64, Time, one_of
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


class ExperimentDraft(Answer):
    """What `validateOnly` answers: nothing of it has an id."""

    id: int
    name: str
    state: Annotated[str, one_of("STATE_UNSPECIFIED", *STATES)]
    archived: bool
    config: Annotated[Json, Field(description="in force: as submitted, with what queue edits have changed")]
    original_config: Annotated[str, Field(description="the submitted YAML; empty in lists")]
    start_time: Time
    num_trials: int
    searcher_type: str
    username: str
    job_id: str
    project_id: int
    project_owner_id: Annotated[int, Field(description="0: nobody owns it")]


class ExperimentRecord(ExperimentDraft):
    """An experiment. Fields without a value are absent."""

    description: str
    notes: str
    labels: list[str]
    log_labels: Annotated[list[str], Field(description="names of the log policies that its logs matched")]
    template_name: str
    end_time: Maybe[Time] = None
    duration: Annotated[int, Field(description="seconds, until now while it goes on")]
    progress: Maybe[Annotated[float, Field(description="from 0 to 1")]] = None
    trial_ids: Maybe[Annotated[list[int], Field(description="not in lists")]] = None
    searcher_metric: Maybe[str] = None
    hyperparameters: Json
    best_trial_id: Maybe[int] = None
    best_trial_searcher_metric: Maybe[float] = None
    checkpoint_count: int
    checkpoint_size: Number64
    display_name: str
    user_id: int
    resource_pool: Annotated[str, Field(description="empty where it is unmanaged")]
    forked_from: Maybe[int] = None
    unmanaged: bool
    external_experiment_id: Maybe[str] = None
    project_name: str
    workspace_id: int
    workspace_name: str
    parent_archived: Annotated[bool, Field(description="whether its project or workspace is")]


def encode_experiment(experiment: Any, *, full: bool = False) -> ExperimentRecord:
    """One row of `with_numbers`. The submitted text is part of the full record alone."""
    config = effective_config(experiment)
    searcher = config.get("searcher") or {}
    end = experiment.ended_at or timezone.now()
    project = experiment.project
    return ExperimentRecord.of(
        experiment,
        log_labels=sorted({name for names in experiment.log_labels or [] for name in names}),
        state=f"STATE_{phases.of(experiment)}",
        config=config,
        original_config=masked_text(experiment.original_config) if full else "",
        start_time=experiment.started_at,
        end_time=experiment.ended_at,
        duration=int((end - experiment.started_at).total_seconds()),
        trial_ids=list(experiment.trials.values_list("pk", flat=True)) if full else None,
        searcher_type=searcher.get("name", ""),
        searcher_metric=searcher.get("metric"),
        hyperparameters=config.get("hyperparameters") or {},
        best_trial_searcher_metric=experiment.best_metric,
        checkpoint_size=str(experiment.checkpoint_bytes),
        username=experiment.owner.username,
        display_name=experiment.owner.display_name,
        user_id=experiment.owner_id,
        job_id=str(experiment.job_id),
        resource_pool="" if experiment.unmanaged else experiment.job.pool.name,
        forked_from=experiment.parent_id,
        external_experiment_id=experiment.external_id,
        project_name=project.name,
        project_owner_id=project.owner_id or 0,
        workspace_id=project.workspace_id,
        workspace_name=project.workspace.name,
        parent_archived=project.archived or project.workspace.archived,
    )
