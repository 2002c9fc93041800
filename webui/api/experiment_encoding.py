"""An experiment as the dialect shows it, and the query that has all its numbers at once."""

from __future__ import annotations

from typing import Annotated, Any

from django.utils import timezone
from pydantic import Field

from experiments import phases
from experiments.config import masked_text
from experiments.states import ExperimentState
from shown.experiments import effective_config
from webui.api.answers import Answer, Maybe, Number64, Time, one_of
from webui.api.views import Json

#: in the dialect's words; an experiment that is ACTIVE says where it stands instead
STATES = [
    f"STATE_{word}"
    for word in (phases.QUEUED, phases.STARTING, phases.RUNNING, *ExperimentState.values)
    if word != ExperimentState.ACTIVE
]


class ExperimentRecord(Answer):
    """An experiment. What `validateOnly` answers has no id."""

    id: int
    name: str
    state: Annotated[str, one_of("STATE_UNSPECIFIED", *STATES)]
    archived: bool
    config: Annotated[
        Json, Field(description="the effective config: as submitted, with changes from queue edits")
    ]
    original_config: Annotated[str, Field(description="the submitted YAML; empty in lists")]
    start_time: Time
    num_trials: int
    searcher_type: str
    username: str
    job_id: str
    project_id: int
    project_owner_id: Annotated[int, Field(description="0: no owner")]
    description: str
    notes: str
    labels: list[str]
    log_labels: Annotated[list[str], Field(description="names of the log policies that its logs matched")]
    template_name: str
    end_time: Time | None = None
    duration: Annotated[int, Field(description="seconds, until now if it has not ended")]
    progress: Annotated[float | None, Field(description="from 0 to 1")] = None
    trial_ids: Annotated[list[int], Field(description="empty in lists")] = []
    searcher_metric: str
    hyperparameters: Json
    best_trial_id: Maybe[int] = None
    best_trial_searcher_metric: Maybe[float] = None
    checkpoint_count: int
    checkpoint_size: Number64
    display_name: str
    user_id: int
    resource_pool: Annotated[str, Field(description="empty if it is unmanaged")]
    forked_from: int | None = None
    unmanaged: bool
    external_experiment_id: Maybe[str] = None
    project_name: str
    workspace_id: int
    workspace_name: str
    parent_archived: Annotated[bool, Field(description="whether its project or workspace is archived")]


def encode_experiment(experiment: Any, *, full: bool = False) -> ExperimentRecord:
    """A row of `shown.experiments.with_numbers`, in full of `whole`: with its trials and the submitted text."""
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
        trial_ids=experiment.trial_ids if full else [],
        searcher_type=searcher.get("name", ""),
        searcher_metric=searcher.get("metric") or "",
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
