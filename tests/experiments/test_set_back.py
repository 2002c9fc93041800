"""A trial that starts again from an earlier step says nothing more of what was reported beyond it."""

from __future__ import annotations

import math

import pytest

from experiments import metric_reports
from experiments import transitions as experiments
from experiments.models import Trial
from metrics.ingest import Report
from tests.rig.world import make_host, submit_experiment, trial_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def trial() -> Trial:
    """Trained for 40 steps, validated at 10, 20, 30 and 40, of which the third is best and the last is not finite."""
    make_host("gpu1", 1)
    experiment = submit_experiment()
    trial = trial_of(experiment)
    trial.experiment = experiments.lock(experiment.pk)
    metric = trial.experiment.config["searcher"]["metric"]
    trained = [Report(1, "training", step, 1.0 + step, {"lr": step / 10}) for step in range(1, 41)]
    losses = {10: 3.0, 20: 4.0, 30: 2.0, 40: math.nan}
    validated = [Report(1, "validation", step, 1.0 + step, {metric: loss}) for step, loss in losses.items()]
    metric_reports.store(trial.experiment, trial, [*trained, *validated])
    return Trial.objects.get(pk=trial.pk)


def test_a_checkpoint_in_the_middle_leaves_what_lies_before_it(trial: Trial) -> None:
    assert trial.best_validation["steps_completed"] == 30 and trial.latest_validation["steps_completed"] == 40
    metric_reports.set_back(trial.pk, 20)
    trial.refresh_from_db()
    assert (trial.latest_validation["steps_completed"], trial.searcher_metric) == (20, 4.0)
    assert (trial.best_validation["steps_completed"], trial.best_validation["searcher_metric"]) == (10, 3.0)
    lr = trial.summary_metrics["avg_metrics"]["lr"]
    assert (lr["count"], lr["max"], lr["last"], lr["step"]) == (20, 2.0, 2.0, 20)


def test_without_a_checkpoint_nothing_is_left(trial: Trial) -> None:
    metric_reports.set_back(trial.pk, 0)
    trial.refresh_from_db()
    assert trial.latest_validation is trial.best_validation is trial.searcher_metric is None
    assert trial.summary_metrics == {}


def test_a_checkpoint_at_the_end_changes_nothing(trial: Trial) -> None:
    metric_reports.set_back(trial.pk, 40)
    assert Trial.objects.values().get(pk=trial.pk) == {
        name: value for name, value in vars(trial).items() if not name.startswith("_")
    }
