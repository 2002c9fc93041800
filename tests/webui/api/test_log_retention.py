"""How long logs are kept, over REST: set, asked, tried out, done."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from experiments.models import Trial
from jobs.models import Task
from jobs.states import TaskState
from logs import read, store
from logs.lines import NewLine, blocks_of
from tests.rig.api import CONFIG, Cast

KEPT = CONFIG + "retention_policy: {log_retention_days: 30}\n"


def ended_trial(submit: Any, config: str = KEPT, days_ago: int = 40) -> Trial:
    """A trial of Ada's that ended so long ago, with a line in its log."""
    trial = Trial.objects.get(experiment_id=submit(config=config)["id"])
    store.append(trial.task_id, None, "", blocks_of([NewLine(1.0, None, "server", "INFO", "a line")]))
    ended = timezone.now() - timedelta(days=days_ago)
    Task.objects.filter(pk=trial.task_id).update(state=TaskState.ENDED, ended_at=ended)
    return trial


def remaining(cast: Cast, trial: Trial) -> int:
    return int(cast.vic.get(f"trials/{trial.pk}/remaining_log_retention_days")["remainingDays"])


def test_the_config_says_how_long_and_a_trial_or_experiment_may_say_otherwise(
    cast: Cast, submit: Any
) -> None:
    trial = ended_trial(submit, days_ago=10)
    assert remaining(cast, trial) == 20
    assert cast.vic.get(f"trials/{trial.pk}")["trial"]["logRetentionDays"] == 30
    cast.ada.send("PUT", f"trials/{trial.pk}/retain_logs", {"numDays": -1, "trialId": trial.pk})
    assert remaining(cast, trial) == -1
    cast.ada.send("PUT", f"experiments/{trial.experiment_id}/retain_logs", {"numDays": 12})
    assert remaining(cast, trial) == 2, "what is set for the experiment replaces what was set for its trials"
    body = {"numDays": 15, "experimentIds": [trial.experiment_id, 999_999], "projectId": 1}
    _, answer = cast.ada.send("PUT", "projects/1/experiments/retain_logs", body)
    assert [bool(one["error"]) for one in answer["results"]] == [False, True]
    assert remaining(cast, trial) == 5
    cast.ada.send("PUT", f"tasks/{trial.task_id}/retain_logs", {"numDays": 11})
    assert remaining(cast, trial) == 1
    cast.ada.send("PUT", f"trials/{trial.pk}/retain_logs", {"numDays": None})
    assert remaining(cast, trial) == 5


@pytest.mark.parametrize("days", [-2, 32_768, "many", 1.5])
def test_a_wrong_number_of_days_is_refused(cast: Cast, submit: Any, days: Any) -> None:
    trial = ended_trial(submit)
    for path in (f"trials/{trial.pk}", f"experiments/{trial.experiment_id}", f"tasks/{trial.task_id}"):
        status, answer = cast.ada.send("PUT", f"{path}/retain_logs", {"numDays": days})
        assert status == 400 and "numDays" in answer["message"], path


def test_only_the_owner_or_an_admin_says_how_long(cast: Cast, submit: Any) -> None:
    trial = ended_trial(submit)
    for path in (f"trials/{trial.pk}", f"experiments/{trial.experiment_id}", f"tasks/{trial.task_id}"):
        assert cast.bob.send("PUT", f"{path}/retain_logs", {"numDays": 0})[0] == 403, path
        assert cast.admin.send("PUT", f"{path}/retain_logs", {"numDays": 30})[0] == 200, path
    assert cast.ada.send("PUT", "tasks/no-such/retain_logs", {"numDays": 0})[0] == 404
    assert cast.ada.send("POST", "cleanup_logs")[0] == 403


def test_a_dry_run_names_what_a_cleanup_then_removes(cast: Cast, submit: Any) -> None:
    trial, recent = ended_trial(submit), ended_trial(submit, CONFIG)
    dry = cast.vic.get("logs/retention")
    assert dry["defaultDays"] == -1
    assert int(dry["holds"]["lines"]) >= 2 and dry["holds"]["logs"] >= 2
    (named,) = dry["logs"]
    assert named["trialId"] == trial.pk and named["days"] == 30 and named["policy"] == "config"
    assert dry["due"]["logs"] == 1 and int(dry["due"]["lines"]) == int(named["lines"]) > 0
    tried = cast.vic.get("logs/retention?defaultDays=7")
    assert {one["trialId"] for one in tried["logs"]} == {trial.pk, recent.pk}
    done = cast.admin.post("cleanup_logs")
    assert done == {"removedCount": dry["due"]["lines"], "removedLogs": 1, "more": False} or int(
        done["removedCount"]
    ) > int(dry["due"]["lines"])  # events that were not in the log yet went with it
    assert [line.text for line in read.forward(trial.task_id).lines] == [
        "The log was removed after 30 days (retention_policy)."
    ]
    assert read.last_number(recent.task_id) > 0
    assert cast.vic.get("logs/retention")["logs"] == []
