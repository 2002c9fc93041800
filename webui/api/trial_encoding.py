"""A trial as the dialect shows it."""

from __future__ import annotations

from typing import Annotated, Any

from django.conf import settings
from django.utils import timezone
from pydantic import Field
from rest_framework import serializers

from experiments import failures, phases
from experiments.models import Checkpoint
from experiments.states import CheckpointState, TrialState
from shown.trials import best_checkpoint
from webui.api import encoding
from webui.api.answers import Answer, Maybe, Number64, Stored, Time, one_of
from webui.api.views import Json

TRIAL_SORT = {
    "SORT_BY_ID": "id",
    "SORT_BY_START_TIME": "started_at",
    "SORT_BY_END_TIME": "ended_at",
    "SORT_BY_STATE": "state_in_words",
    "SORT_BY_BEST_VALIDATION_METRIC": "best_validation__searcher_metric",
    "SORT_BY_LATEST_VALIDATION_METRIC": "latest_validation__searcher_metric",
    "SORT_BY_BATCHES_PROCESSED": "steps_completed",
    "SORT_BY_DURATION": "started_at",
    "SORT_BY_RESTARTS": "restarts",
    "SORT_BY_CHECKPOINT_SIZE": "checkpoint_bytes",
}


#: in the dialect's words; a trial that is ACTIVE says where it stands instead
STATES = [
    f"STATE_{word}"
    for word in (phases.QUEUED, phases.STARTING, phases.RUNNING, *TrialState.values)
    if word != TrialState.ACTIVE
]
#: states of checkpoints in the dialect -> ours; it has none for what is being uploaded or is about to go
CHECKPOINT_STATES = {
    "STATE_ACTIVE": [CheckpointState.PARTIAL],
    "STATE_COMPLETED": [CheckpointState.COMPLETED],
    "STATE_PARTIALLY_DELETED": [CheckpointState.PARTIALLY_DELETED],
    "STATE_DELETED": [CheckpointState.DELETING, CheckpointState.DELETED],
    "STATE_ERROR": [CheckpointState.ERROR],
}
CheckpointStateName = Annotated[str, one_of(*CHECKPOINT_STATES)]


class AverageMetrics(Answer):
    avg_metrics: Annotated[Json, Field(description="name of a metric -> what was reported")]
    batch_metrics: Annotated[
        list[Json], Field(description="always empty: batches are not reported one by one")
    ] = []


class Validation(Answer):
    metrics: AverageMetrics
    num_inputs: int
    total_batches: int
    end_time: Time


class CheckpointWorkload(Answer):
    """A checkpoint in a trial's workloads."""

    uuid: str
    state: CheckpointStateName
    total_batches: int
    end_time: Time
    resources: Annotated[dict[str, Number64], Field(description="path of a file -> its bytes")]
    metadata: Stored[Json]


class FailureRecord(Answer):
    """The latest failure: which rank failed first, how, and its last output."""

    attempt: int
    sentence: str
    lines: list[str]
    rank: Annotated[int | None, Field(description="null if unknown, as for a lost host")]
    host: str
    code: int | None


class TrialRecord(Answer):
    """A trial. Lists leave out what a query for each would find: the best checkpoint and the failure."""

    id: int
    experiment_id: int
    task_id: str
    task_ids: list[str]
    state: Annotated[str, one_of(*STATES)]
    start_time: Time
    end_time: Time | None = None
    wall_clock_time: Annotated[float, Field(description="seconds, until now if it has not ended")]
    hparams: Json
    restarts: int
    total_batches_processed: int
    progress: Maybe[Annotated[float, Field(description="from 0 to 1")]] = None
    runner_state: str
    searcher_metric_value: float | None = None
    best_validation: Stored[Validation] | None = None
    latest_validation: Stored[Validation] | None = None
    best_checkpoint: CheckpointWorkload | None = None
    warm_start_checkpoint_uuid: str = ""
    checkpoint_count: int
    total_checkpoint_size: Number64
    summary_metrics: Json
    metadata: Stored[Json]
    external_trial_id: Maybe[str] = None
    log_policy_matched: Maybe[Annotated[str, Field(description="the newest of logLabels")]] = None
    log_labels: Annotated[list[str], Field(description="names of the log policies that its log matched")]
    log_retention_days: Maybe[Annotated[int, Field(description="-1: forever")]] = None
    failure: Maybe[FailureRecord] = None


class TrialsQuery(encoding.PageQuery):
    sortBy = encoding.sort_field("trials", TRIAL_SORT)
    states = encoding.list_of(serializers.CharField())


def _validation(row: Json | None) -> Json | None:
    if not row:
        return None
    return {
        "metrics": {"avgMetrics": row["metrics"], "batchMetrics": []},
        "numInputs": 0,
        "totalBatches": row["steps_completed"],
        "endTime": row["reported_at"].replace("+00:00", "Z"),
    }


def checkpoint_workload(checkpoint: Checkpoint) -> CheckpointWorkload:
    return CheckpointWorkload(
        uuid=str(checkpoint.pk),
        state=checkpoint_state(checkpoint),
        total_batches=checkpoint.steps_completed,
        end_time=checkpoint.reported_at,
        resources={path: str(size) for path, size in checkpoint.resources.items()},
        metadata=checkpoint.metadata,
    )


def checkpoint_state(checkpoint: Checkpoint) -> str:
    return next(name for name, ours in CHECKPOINT_STATES.items() if checkpoint.state in ours)


def _log_days(trial: Any) -> int:
    return settings.LOG_RETENTION_DAYS if trial.log_days is None else int(trial.log_days)


def encode_trial(trial: Any, *, full: bool = True) -> TrialRecord:
    """A row of `shown.trials.whole`; if it is not to be full, of `with_numbers`."""
    end = trial.ended_at or timezone.now()
    best = best_checkpoint(trial) if full else None
    failure = failures.latest(trial) if full and trial.has_failed else None
    return TrialRecord.of(
        trial,
        task_ids=[trial.task_id],
        state=f"STATE_{phases.of(trial)}",
        start_time=trial.started_at,
        end_time=trial.ended_at,
        wall_clock_time=(end - trial.started_at).total_seconds(),
        total_batches_processed=trial.steps_completed,
        searcher_metric_value=trial.searcher_metric,
        best_validation=_validation(trial.best_validation),
        latest_validation=_validation(trial.latest_validation),
        best_checkpoint=checkpoint_workload(best) if best else None,
        warm_start_checkpoint_uuid=str(trial.source_checkpoint_id) if trial.source_checkpoint_id else "",
        total_checkpoint_size=str(trial.checkpoint_bytes),
        external_trial_id=trial.external_id,
        log_policy_matched=trial.log_labels[-1] if trial.log_labels else None,
        log_retention_days=_log_days(trial) if full else None,
        failure=FailureRecord.of(failure) if failure else None,
    )
