"""Pages of checkpoints: the tables, the page of one, its deletion, and the forms that fork and continue."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from experiments import transitions
from experiments.models import Checkpoint, Experiment, Trial
from metrics import ingest
from tests.rig.world import make_host, make_user, submit_experiment, trial_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(settings: Any, tmp_path: Path) -> Client:
    settings.DATA_DIR = tmp_path
    make_host("gpu1", slots=1)
    client = Client()
    client.force_login(make_user())
    return client


@pytest.fixture
def trial(client: Client) -> Trial:
    """With checkpoints at 10, 20 and 30, of which 20 is the best by its validation."""
    trial = trial_of(submit_experiment(name="saves"))
    metric = trial.experiment.config["searcher"]["metric"]
    ingest.store(
        trial.pk,
        [ingest.Report(1, "validation", step, 0.0, {metric: abs(step - 20) / 10}) for step in (10, 20)],
    )
    for step in (10, 20, 30):
        row = Checkpoint.objects.create(
            trial=trial, allocation_id=f"{trial.task_id}.1", state="COMPLETED", steps_completed=step,
            resources={"model.pt": 7}, size_bytes=7, storage={"type": "server"},
            reported_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=step),
        )  # fmt: skip
        Trial.objects.filter(pk=trial.pk).update(latest_checkpoint=row)
    trial.refresh_from_db()
    return trial


def at(trial: Trial, step: int) -> Checkpoint:
    return trial.checkpoints.get(steps_completed=step)


def text(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer
    return re.sub(r"\s+", " ", answer.content.decode())


def test_the_tables_mark_the_best_and_the_latest_and_say_what_is_kept(client: Client, trial: Trial) -> None:
    for address in (f"/experiments/{trial.experiment_id}/checkpoints", f"/trials/{trial.pk}/checkpoints"):
        page = text(client, f"{address}?sort=steps")
        assert re.findall(r'id="checkpoint-([0-9a-f-]+)"', page) == [
            str(at(trial, step).pk) for step in (30, 20, 10)
        ]
        assert re.findall(r'class="mark">(\w+)<', page) == ["latest", "best"]
        assert "latest of its trial, trial" in page and "best of its trial" in page
        assert "deleted when the experiment ends" in page
    assert "No checkpoints in this state" in text(client, f"/trials/{trial.pk}/checkpoints?state=deleted")
    unknown = text(client, f"/trials/{trial.pk}/checkpoints?state=lost&sort=luck")
    assert "Filter ignored: found state=lost, allowed: stored, failed, deleted, all." in unknown
    assert "found sort=luck, allowed: newest, steps, metric, size." in unknown


def test_what_was_measured_is_shown_of_deleted_checkpoints_too(client: Client, trial: Trial) -> None:
    trial.checkpoints.update(state="DELETED")
    assert "No stored checkpoints" in text(client, f"/trials/{trial.pk}/checkpoints")
    table = text(client, f"/trials/{trial.pk}/checkpoints?state=all")
    assert table.count('<span class="hint">none</span>') == 1  # of step 30, without a validation
    page = text(client, f"/trials/{trial.pk}/checkpoints/{at(trial, 10).pk}")
    assert "not validated at this step" not in page


def test_checkpoints_of_a_detached_run_stay_and_its_unnamed_metric_is_not_shown(
    client: Client, trial: Trial
) -> None:
    searcher = {**trial.experiment.config["searcher"], "metric": "unmanaged"}
    config = {**trial.experiment.config, "searcher": searcher}
    Experiment.objects.filter(pk=trial.experiment_id).update(unmanaged=True, state="COMPLETED", config=config)
    table = text(client, f"/trials/{trial.pk}/checkpoints")
    assert "until it is deleted" in table and "to be removed by retention policy" not in table
    assert '<th class="number">Metric</th>' in table
    assert "names no metric" in text(client, f"/experiments/{trial.experiment_id}")


def test_a_checkpoint_is_deleted_after_it_was_said_what_is_lost(client: Client, trial: Trial) -> None:
    best, latest = (f"/trials/{trial.pk}/checkpoints/{at(trial, step).pk}" for step in (20, 30))
    assert "It is the best of its trial." in text(client, best)
    assert "is training from it" in text(client, latest)
    assert f'action="{latest}/delete"' not in text(client, latest)
    client.post(f"{latest}/delete")
    client.post(f"{best}/delete")
    assert (at(trial, 30).state, at(trial, 20).state) == ("COMPLETED", "DELETING")
    assert "Deleting" in text(client, best)
    assert client.get(f"/trials/{trial.pk + 1}/checkpoints/{at(trial, 20).pk}").status_code == 404


def test_a_fork_begins_with_the_checkpoint_and_a_wrong_config_says_why(client: Client, trial: Trial) -> None:
    source = at(trial, 20)
    address = f"/experiments/{trial.experiment_id}/fork"
    page = text(client, f"{address}?checkpoint={source.pk}")
    assert f"source_checkpoint_uuid: {source.pk}" in page
    config = re.search(r"<textarea[^>]*>(.*?)</textarea>", client.get(f"{address}?checkpoint={source.pk}").content.decode(), re.S)  # fmt: skip  # noqa: E501
    assert config is not None
    wrong = client.post(address, {"name": "x", "config": "entrypoint: a"})
    assert (wrong.status_code, b"searcher" in wrong.content) == (400, True)
    answer = client.post(address, {"name": "fork", "config": config[1]})
    fork = Experiment.objects.get(name="fork")
    assert answer.headers["Location"] == f"/experiments/{fork.pk}"
    assert (fork.parent_id, trial_of(fork).source_checkpoint_id) == (trial.experiment_id, source.pk)
    assert f"trial {trial_of(fork).pk} started from it" in text(
        client, f"/trials/{trial.pk}/checkpoints?sort=steps"
    )


def test_an_ended_experiment_is_continued_from_its_page(client: Client, trial: Trial) -> None:
    address = f"/experiments/{trial.experiment_id}"
    assert f'href="{address}/continue"' not in text(client, address)
    transitions.kill(trial.experiment_id, actor="user:ada")
    assert f'href="{address}/continue"' in text(client, address)
    assert "at step 30" in text(client, f"{address}/continue")
    wrong = client.post(f"{address}/continue", {"config": "max_restarts: many"})
    assert (wrong.status_code, b"max_restarts" in wrong.content) == (400, True)
    client.post(f"{address}/continue", {"config": "max_restarts: 2"})
    experiment = Experiment.objects.get(pk=trial.experiment_id)
    assert (experiment.state, experiment.config["max_restarts"]) == ("ACTIVE", 2)
