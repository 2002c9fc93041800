"""Unmanaged experiments: their trials are detached runs, which their user makes, starts and ends.

Nothing is searched, queued or tried again. An unmanaged experiment is on while one of its trials is, and at the end
it is COMPLETED if any of them is.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from django.db.models import Avg, FloatField, Value
from django.db.models.functions import Coalesce

from accounts.refusals import Code, Refusal
from events.announce import announce
from experiments import checkpoints, runs
from experiments.models import Experiment, Trial
from experiments.states import EXPERIMENT_END_STATES, TRIAL_END_STATES, ExperimentState, TrialState
from experiments.transitions import set_experiment_state, set_trial_state
from jobs import detached, transitions
from jobs.models import Allocation
from jobs.states import Reason, TaskState

_ACTOR = "server"


def create_trial(
    experiment: Experiment, hparams: dict[str, Any], *, external_id: str | None, actor: str
) -> Trial:
    """A trial that rests until it is started. The experiment is locked. Raises Refusal."""
    refuse_closed(experiment)
    request_id = uuid.uuid4()
    number = experiment.trials.count() + 1
    task = detached.create_task(
        job=experiment.job,
        task_id=f"{experiment.pk}.{request_id}",
        name="",  # the trial's
        actor=actor,
    )
    trial = Trial.objects.create(
        experiment=experiment,
        task=task,
        request_id=request_id,
        hparams=hparams,
        seed=experiment.seed + number - 1,
        external_id=external_id,
    )
    trial.name_task()
    _experiment_is_on(experiment, actor)
    announce(f"experiment:{experiment.pk}", "experiments")
    return trial


def begin(experiment: Experiment, trial: Trial, machines: Sequence[str], *, actor: str) -> Allocation | None:
    """A new attempt from the latest complete checkpoint; None while one is open. The experiment is locked.

    Nobody brings what the attempts before have not uploaded: it is given up. Raises Refusal.
    """
    refuse_closed(experiment)
    allocation = detached.begin(trial.task_id, machines, actor=actor)
    if allocation is None:
        return None
    left = trial.checkpoints.filter(state="PARTIAL").values_list("run_key", flat=True)
    if keys := set(left):
        checkpoints.given_up(trial, keys, reason=Reason.UPLOAD_GIVEN_UP)
    runs.begin_all([allocation])
    set_trial_state(trial, TrialState.ACTIVE, reason=Reason.STARTED_BY_USER, actor=actor)
    _experiment_is_on(experiment, actor)
    return allocation


def goes_on(experiment: Experiment, trial: Trial) -> None:
    """An attempt that was given up in silence was heard again. The experiment is locked."""
    set_trial_state(trial, TrialState.ACTIVE, reason=Reason.HEARD_AGAIN, actor=_ACTOR)
    _experiment_is_on(experiment, _ACTOR, Reason.HEARD_AGAIN)


def refuse_closed(experiment: Experiment) -> None:
    """Raises Refusal where nothing may be started any more."""
    if experiment.state in {ExperimentState.DELETING, ExperimentState.DELETE_FAILED}:
        raise Refusal(
            f"Experiment {experiment.pk} is being deleted; nothing can be started in it.", Code.CONFLICT
        )
    if experiment.archived:
        raise Refusal(
            f"Experiment {experiment.pk} is archived; unarchive it before you continue it.", Code.CONFLICT
        )


def _experiment_is_on(experiment: Experiment, actor: str, reason: Reason = Reason.STARTED_BY_USER) -> None:
    if experiment.state in EXPERIMENT_END_STATES:
        set_experiment_state(experiment, ExperimentState.ACTIVE, reason=reason, actor=actor)


def attempt_ended(experiment: Experiment, trial: Trial, reason: Reason) -> None:
    """The trial ends with its attempt, and the experiment with its last trial. The experiment is locked."""
    if reason == Reason.REPLACED:  # the next attempt begins in the same transaction
        transitions.set_task_state(trial.task_id, TaskState.PAUSED, reason=reason, actor=_ACTOR)
        return
    end_trial(experiment, trial, reason)


def end_trial(experiment: Experiment, trial: Trial, reason: Reason) -> None:
    """End a trial that has no open attempt. The experiment is locked."""
    state = TrialState.COMPLETED if reason == Reason.COMPLETED else TrialState.ERROR
    set_trial_state(trial, state, reason=reason, actor=_ACTOR)
    transitions.set_task_state(trial.task_id, TaskState.ENDED, reason=reason, actor=_ACTOR)
    end_if_done(experiment, reason)


def end_if_done(experiment: Experiment, reason: Reason) -> None:
    """End the experiment if none of its trials is on. It is locked."""
    states = set(experiment.trials.values_list("state", flat=True))
    if states - TRIAL_END_STATES:
        return
    if TrialState.COMPLETED in states:
        Experiment.objects.filter(pk=experiment.pk).update(progress=1.0)
        set_experiment_state(experiment, ExperimentState.COMPLETED, reason=Reason.COMPLETED, actor=_ACTOR)
    else:
        set_experiment_state(experiment, ExperimentState.ERROR, reason=reason, actor=_ACTOR)


def progress_reported(experiment: Experiment) -> None:
    """An unmanaged experiment is as far as its trials are on average."""
    reached = Coalesce("progress", Value(0.0), output_field=FloatField())
    mean = experiment.trials.aggregate(mean=Avg(reached))["mean"]
    Experiment.objects.filter(pk=experiment.pk).update(progress=mean)
