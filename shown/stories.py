"""Which attempt's end is told: the one that is asked for, else the newest that went wrong."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.models import Experiment, Trial
from experiments.states import ExperimentState, TrialState
from jobs.models import Task
from jobs.states import TaskState
from logs import why_stopped
from logs.why_stopped import Story


@dataclass(frozen=True)
class FirstFailure:
    """The first trial of an experiment that failed for good, how its newest attempt ended, and how many failed."""

    trial: Trial
    story: Story
    failed: int
    trials: int

    @property
    def lines_at(self) -> str:
        return f"/trials/{self.trial.pk}/logs"


def of_task(task: Task, attempt: int | None) -> Story | None:
    """None where there is nothing to tell: it goes on, or it did what it was to do."""
    if attempt is not None:
        found = why_stopped.of_task(task, attempt)
        return found if found.sentences else None
    failure = why_stopped.last_failure(task)
    if failure is not None or task.state != TaskState.ENDED:
        return failure
    found = why_stopped.of_task(task)
    return found if found.stopped_by else None


def of_experiment(experiment: Experiment) -> FirstFailure | None:
    """None unless it failed, and one of its trials did."""
    if experiment.state != ExperimentState.ERROR:
        return None
    failed = experiment.trials.filter(state=TrialState.ERROR)
    first = failed.select_related("task").order_by("pk").first()
    found = why_stopped.last_failure(first.task) if first else None
    if first is None or found is None:
        return None
    return FirstFailure(first, found, failed.count(), experiment.trials.count())
