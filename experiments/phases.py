"""Where an ACTIVE trial or experiment stands, read from its attempts: queued, starting or running (features.md 4.2)."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.models import Experiment, Trial
from experiments.states import ExperimentState, TrialState
from jobs.models import Allocation
from jobs.states import AllocationState

QUEUED, STARTING, RUNNING, STOPPING = "QUEUED", "STARTING", "RUNNING", "STOPPING"

_OF_ALLOCATION = {
    AllocationState.ASSIGNED: STARTING,
    AllocationState.STARTING: STARTING,
    AllocationState.RUNNING: RUNNING,
    AllocationState.TERMINATING: STOPPING,
}
_ORDER = [QUEUED, STOPPING, STARTING, RUNNING]


def of_trials(trials: Iterable[Trial]) -> dict[int, str]:
    """Trial id -> its state in words, one query for all. STOPPING: an attempt is being stopped, the trial is not."""
    trials = list(trials)
    attempts = (
        Allocation.objects.filter(task_id__in=[trial.task_id for trial in trials])
        .exclude(state=AllocationState.TERMINATED)
        .values_list("task_id", "state")
    )
    phase = {task_id: _OF_ALLOCATION[AllocationState(state)] for task_id, state in attempts}
    return {
        trial.pk: phase.get(trial.task_id, QUEUED) if trial.state == TrialState.ACTIVE else trial.state
        for trial in trials
    }


def of_experiments(experiments: Iterable[Experiment]) -> dict[int, str]:
    """Experiment id -> its state in words: an ACTIVE one is as far as its farthest trial."""
    experiments = list(experiments)
    active = [experiment for experiment in experiments if experiment.state == ExperimentState.ACTIVE]
    attempts = (
        Allocation.objects.filter(task__trial__experiment__in=active)
        .exclude(state=AllocationState.TERMINATED)
        .values_list("task__trial__experiment_id", "state")
    )
    farthest: dict[int, str] = {}
    for experiment_id, state in attempts:
        phase = _OF_ALLOCATION[AllocationState(state)]
        standing = farthest.get(experiment_id, QUEUED)
        farthest[experiment_id] = max(standing, phase, key=_ORDER.index)
    return {
        experiment.pk: farthest.get(experiment.pk, QUEUED)
        if experiment.state == ExperimentState.ACTIVE
        else experiment.state
        for experiment in experiments
    }
