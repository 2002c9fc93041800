"""What training code reports, applied to its trial: progress, status, checkpoints, early exits; metrics as a batch."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from events.announce import announce
from experiments import checkpoint_deletion, checkpoints, detached, media, search
from experiments.models import Checkpoint, Experiment, Trial
from jobs import transitions as jobs
from jobs.models import Member
from logs import alerts

_LAST_TIME = 2**40  # of epoch seconds that training code may say


def apply(experiment: Experiment, trial: Trial, member: Member, data: dict[str, Any]) -> None:
    """One record of the SDK (docs/protocol.md), but for metrics, which come in batches (experiments.metric_reports).

    The experiment is locked; unknown types are left alone.
    """
    match data.get("type"):
        case "progress":
            progress_reported(experiment, trial, data.get("progress"))
        case "status":
            Trial.objects.filter(pk=trial.pk).update(runner_state=str(data.get("text", ""))[:255])
        case "checkpoint":
            saved_at = _time_of(member, data.get("t"))
            checkpoints.reported(trial, member.allocation_id, member.run_key, data, saved_at=saved_at)
        case "early_exit":
            trial.early_exit = trial.early_exit or str(data.get("reason", ""))[:32]
            Trial.objects.filter(pk=trial.pk).update(early_exit=trial.early_exit)
        case "preempt_asked":
            jobs.asked_to_preempt(member.allocation_id)
        case "preempt_ack":
            jobs.preempt_acknowledged(member.allocation_id)
        case "checkpoint_deleted":
            _delete_checkpoint(trial, member, data.get("uuid"))
        case "uses_checkpoint":
            checkpoints.used(trial, data.get("uuid"))
        case "alert":
            alerts.raised(trial.pk, trial.task_id, experiment.pk, data)
        case "media":
            media.reported(trial, member, data)
        case "metadata":
            metadata = data.get("metadata") or {}
            if not isinstance(metadata, dict):
                raise ValueError(f"metadata of a trial must be an object; found: {type(metadata).__name__}")
            Trial.objects.filter(pk=trial.pk).update(metadata=metadata)
    announce(f"experiment:{experiment.pk}")


def _delete_checkpoint(trial: Trial, member: Member, checkpoint_uuid: object) -> None:
    """Delete a checkpoint of the trial's own experiment. Raises ValueError and Refusal with a sentence."""
    found = uuid.UUID(str(checkpoint_uuid))
    if not Checkpoint.objects.filter(pk=found, trial__experiment=trial.experiment_id).exists():
        raise ValueError(f"this experiment has no checkpoint {found}")
    checkpoint_deletion.delete({found}, actor=f"run:{member.run_key}")


def _time_of(member: Member, stamp: object) -> datetime | None:
    """In the server's time; None for what is no time."""
    is_time = isinstance(stamp, int | float) and 0 < stamp < _LAST_TIME
    return member.server_time(float(stamp)) if is_time else None  # type: ignore[arg-type]


def progress_reported(experiment: Experiment, trial: Trial, progress: object) -> None:
    if isinstance(progress, (int, float)) and 0 <= progress <= 1:
        before, trial.progress = trial.progress, float(progress)
        Trial.objects.filter(pk=trial.pk).update(progress=trial.progress)
        if experiment.unmanaged:
            detached.progress_reported(experiment)
        else:
            search.progress_reported(experiment, before, trial.progress)
        announce("progress")
