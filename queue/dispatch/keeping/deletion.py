"""Deletes an experiment for good: its files first, its rows last, so that an interrupted deletion goes on."""

from __future__ import annotations

import logging

from django.db import transaction

from dispatch.keeping import checkpoint_files
from experiments import event_files
from experiments.models import Checkpoint, Experiment
from experiments.states import CheckpointState, ExperimentState
from experiments.stored_files import NotHere
from experiments.transitions import lock, set_experiment_state
from jobs import cleaning
from jobs.models import Job, Task
from jobs.states import Reason
from metrics.models import Group
from submissions import contexts

log = logging.getLogger(__name__)


def delete(experiment_id: int) -> bool:
    """Remove the experiment marked DELETING; False when it is not (any more)."""
    experiment = Experiment.objects.filter(pk=experiment_id, state=ExperimentState.DELETING).first()
    if experiment is None:
        return False
    if cleaning.under_way().filter(allocation__task__trial__experiment=experiment).exists():
        log.info("experiment %s will be deleted when its hosts have removed everything of it", experiment_id)
        return False
    try:
        stored = Checkpoint.objects.filter(trial__experiment=experiment).exclude(
            state=CheckpointState.DELETED
        )
        for checkpoint in stored.select_related("trial__experiment__owner"):
            _remove(checkpoint, experiment)
        event_files.delete(experiment.pk)
    except OSError as error:
        log.error("experiment %s was not deleted: %s", experiment_id, error)
        _failed(experiment_id)
        return False
    _rows(experiment)
    return True


def _remove(checkpoint: Checkpoint, experiment: Experiment) -> None:
    """Its files. What a detached run has stored out of the server's reach is its user's, and stays there."""
    try:
        checkpoint_files.delete(checkpoint)
    except NotHere as error:
        if not experiment.unmanaged:
            raise
        log.info("files of checkpoint %s of a detached run are left in place: %s", checkpoint.pk, error)


@transaction.atomic
def _failed(experiment_id: int) -> None:
    set_experiment_state(
        lock(experiment_id), ExperimentState.DELETE_FAILED, reason=Reason.KILLED_BY_USER, actor="server"
    )


@transaction.atomic
def _rows(experiment: Experiment) -> None:
    trial_ids = list(experiment.trials.values_list("pk", flat=True))
    task_ids = list(experiment.trials.values_list("task_id", flat=True))
    job_id, context_id = experiment.job_id, experiment.context_id
    Group.objects.filter(trial_id__in=trial_ids).delete()
    experiment.delete()
    Task.objects.filter(pk__in=task_ids).delete()
    Job.objects.filter(pk=job_id).delete()
    contexts.forget(context_id)
