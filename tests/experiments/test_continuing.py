"""An experiment that has ended goes on with its trials, from their latest checkpoints, by a changed config."""

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.refusals import Refusal
from dispatch.passes import pool_pass
from experiments import continuing, outcomes, runs, search
from experiments import transitions as experiments
from experiments.models import Checkpoint, Experiment, Trial
from experiments.states import CheckpointState, ExperimentState, TrialState
from jobs.models import Allocation, Job
from jobs.states import JobState, TaskState
from tests.experiments.test_search import RANDOM, end, submitted, trials
from tests.rig.world import make_host

pytestmark = pytest.mark.django_db

SINGLE = """
name: single
entrypoint: python3 train.py
hyperparameters: {lr: 0.1}
searcher: {name: single, metric: loss, max_length: {batches: 10}}
resources: {slots_per_trial: 1}
max_restarts: 0
"""


def go_on(experiment: Experiment, **changes: object) -> Experiment:
    return continuing.go_on(experiment.pk, changes, actor="user:ada", role="editor").experiment


def completed_single() -> tuple[Experiment, Trial, Checkpoint]:
    """A single search that ran to its end, with a checkpoint at step 10."""
    make_host("gpu0", 1)
    experiment = submitted(SINGLE)
    pool_pass.run(experiment.job.pool_id)
    (trial,) = trials(experiment)
    checkpoint = Checkpoint.objects.create(
        trial=trial, allocation_id=f"{trial.task_id}.1", state=CheckpointState.COMPLETED, steps_completed=10,
        storage={"type": "server"}, reported_at=timezone.now(),
    )  # fmt: skip
    Trial.objects.filter(pk=trial.pk).update(latest_checkpoint=checkpoint, restarts=3, early_exit="X")
    search.validations_reported(experiment, trial, [search.Validation(0.5, 10)])
    end(trial)
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.COMPLETED
    return experiment, trial, checkpoint


def test_a_completed_single_search_goes_on_for_longer() -> None:
    experiment, trial, checkpoint = completed_single()
    go_on(experiment, searcher={"max_length": {"epochs": 2}}, resources={"priority": 7})
    experiment.refresh_from_db()
    trial.refresh_from_db()
    assert (experiment.state, experiment.ended_at) == (ExperimentState.ACTIVE, None)
    assert experiment.config["searcher"]["max_length"] == {"epochs": 2}
    assert not experiment.collect_due
    assert (trial.state, trial.restarts, trial.early_exit) == (TrialState.ACTIVE, 0, "")
    assert (trial.task.state, experiment.job.state) == (TaskState.WAITING, JobState.ACTIVE)
    assert experiment.job.priority == 7
    pool_pass.run(experiment.job.pool_id)
    attempt = Allocation.objects.get(task=trial.task, number=2)
    told = runs.describe(attempt, "cpu").trial
    assert told is not None
    assert (told["latest_checkpoint"], told["steps_completed"]) == (str(checkpoint.pk), 10)
    end(trial)
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.COMPLETED


def test_a_trial_without_a_checkpoint_begins_anew_and_so_does_its_progress() -> None:
    experiment, trial, checkpoint = completed_single()
    checkpoint.delete()
    continued = continuing.go_on(experiment.pk, {}, actor="user:ada", role="editor")
    assert continued.anew == [trial.pk]
    experiment.refresh_from_db()
    assert experiment.progress == 0


def test_a_changed_hyperparameter_reaches_the_trial() -> None:
    experiment, trial, _ = completed_single()
    go_on(experiment, hyperparameters={"lr": 0.5})
    trial.refresh_from_db()
    assert trial.hparams == {"lr": 0.5}


def test_of_a_random_search_those_trials_go_on_that_did_not_complete() -> None:
    make_host("gpu0", 2)
    experiment = submitted(RANDOM % (3, 2))
    pool_pass.run(experiment.job.pool_id)
    first, second = trials(experiment)
    end(first)
    experiments.kill(experiment.pk, actor="user:ada")
    end(second, code=1)
    for trial in trials(experiment):
        trial.refresh_from_db()
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.CANCELED
    go_on(experiment)
    states = [trial.state for trial in trials(experiment)]
    assert states == ["COMPLETED", "ACTIVE", "ACTIVE"]
    pool_pass.run(experiment.job.pool_id)
    for trial in trials(experiment)[1:]:
        end(trial)
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.COMPLETED
    with pytest.raises(Refusal, match="has been completed, cannot continue"):
        go_on(experiment)


def test_no_more_trials_go_on_at_once_than_the_search_may_have() -> None:
    make_host("gpu0", 1)
    experiment = submitted(RANDOM % (3, 1) + "max_restarts: 0\n")
    for number in range(3):
        pool_pass.run(experiment.job.pool_id)
        end(trials(experiment)[number], code=1)
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.ERROR
    go_on(experiment)
    experiments.pause(experiment.pk, actor="user:ada")
    (on,) = [trial for trial in trials(experiment) if trial.state == TrialState.PAUSED]
    outcomes.kill_trial(on.pk, actor="user:ada")
    (on,) = [trial for trial in trials(experiment) if trial.state == TrialState.PAUSED]
    assert on.task.state == TaskState.PAUSED, "the next one rests with its experiment"
    experiments.activate(experiment.pk, actor="user:ada")
    for _ in range(2):
        (on,) = [trial for trial in trials(experiment) if trial.state == TrialState.ACTIVE]
        pool_pass.run(experiment.job.pool_id)
        end(on)
    experiment.refresh_from_db()
    assert experiment.state == ExperimentState.COMPLETED


def test_what_cannot_go_on_says_why() -> None:
    experiment, _, _ = completed_single()
    with pytest.raises(Refusal, match="cannot be changed when a single search is continued"):
        go_on(experiment, searcher={"name": "random", "max_trials": 3})
    with pytest.raises(Refusal, match="stays in its project"):
        go_on(experiment, project="other", workspace="w")
    with pytest.raises(Refusal, match="keeps its storage"):
        go_on(experiment, checkpoint_storage={"type": "directory", "container_path": "/x"})
    searcher = experiment.config["searcher"]
    Experiment.objects.update(config={**experiment.config, "searcher": {**searcher, "name": "adaptive_asha"}})
    with pytest.raises(Refusal, match="Fork it instead: trainmaster experiment fork"):
        go_on(experiment)
    Experiment.objects.update(config=experiment.config)
    go_on(experiment)
    with pytest.raises(Refusal, match="non terminal state 'ACTIVE'"):
        go_on(experiment)


def with_deadline(experiment: Experiment, given: object, hours: int) -> None:
    """Its config has this deadline, and its job one so many hours from now."""
    at = (timezone.now() + timedelta(hours=hours)).replace(microsecond=0)
    Job.objects.filter(pk=experiment.job_id).update(deadline_at=at, late_told_at=timezone.now())
    resources = {**experiment.config["resources"], "deadline": given or at.isoformat()}
    Experiment.objects.filter(pk=experiment.pk).update(config={**experiment.config, "resources": resources})
    experiment.refresh_from_db()


@pytest.mark.parametrize("given", [8 * 3600, None], ids=["8h", "a time"])
def test_a_deadline_that_has_passed_keeps_no_search_from_going_on(given: object) -> None:
    make_host("gpu0", 1)
    experiment = submitted(RANDOM % (1, 1) + "max_restarts: 0\n")
    pool_pass.run(experiment.job.pool_id)
    end(trials(experiment)[0], code=1)
    experiment.refresh_from_db()
    with_deadline(experiment, given, -2)
    continued = go_on(experiment)
    assert (continued.job.deadline_at, continued.job.late_told_at) == (None, None)
    assert continued.config["resources"]["deadline"] is None


def test_a_deadline_to_come_is_kept_and_a_new_one_counts_from_now() -> None:
    experiment, trial, _ = completed_single()
    with_deadline(experiment, 8 * 3600, 2)
    at = experiment.job.deadline_at
    assert at is not None
    continued = go_on(experiment)
    assert (continued.job.deadline_at, continued.config["resources"]["deadline"]) == (at, at.isoformat())
    pool_pass.run(experiment.job.pool_id)
    end(trial)
    continued = go_on(continued, resources={"deadline": "8h"})
    assert continued.job.deadline_at is not None
    assert timedelta(hours=7) < continued.job.deadline_at - timezone.now() < timedelta(hours=8)
    assert continued.config["resources"]["deadline"] == 8 * 3600
