"""Superfluous checkpoints go at the end, what others need stays, and a wish outlives whoever carries it out."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from accounts.models import User
from accounts.refusals import Refusal
from dispatch import tasks
from dispatch.keeping import deletion
from experiments import checkpoint_deletion, checkpoints, sources, stored_files, transitions
from experiments.keeping import Policy
from experiments.models import Checkpoint, Experiment, Trial
from experiments.states import CheckpointState, ExperimentState
from jobs.states import Reason
from metrics import ingest
from metrics.ingest import Report
from tests.rig import trial_rows
from tests.rig.world import make_project, make_user

pytestmark = pytest.mark.django_db

START = datetime(2026, 1, 1, tzinfo=UTC)
METRICS = {10: 0.5, 20: 0.2, 30: 0.4, 40: 0.3}


@pytest.fixture
def trial(settings: Any, tmp_path: Path) -> Trial:
    settings.DATA_DIR = tmp_path
    make_project()
    User.objects.filter(pk=make_user().pk).update(username="admin")
    trial = trial_rows.add("one", "ACTIVE")
    ingest.store(
        trial.pk, [Report(1, "validation", step, 0.0, {"loss": loss}) for step, loss in METRICS.items()]
    )
    for step in METRICS:
        stored(trial, step)
    return trial


def stored(trial: Trial, step: int, state: CheckpointState = CheckpointState.COMPLETED) -> Checkpoint:
    row = Checkpoint.objects.create(
        trial=trial, allocation_id=f"{trial.task_id}.1", state=state, steps_completed=step,
        resources={"model.pt": 7, "opt/state.pt": 5, "opt/": 0}, size_bytes=12, storage={"type": "server"},
        reported_at=START + timedelta(seconds=step),
    )  # fmt: skip
    folder = folder_of(row)
    (folder / "opt").mkdir(parents=True)
    (folder / "model.pt").write_bytes(b"weights")
    (folder / "opt/state.pt").write_bytes(b"state")
    Trial.objects.filter(pk=trial.pk).update(latest_checkpoint=row)
    return row


def folder_of(row: Checkpoint) -> Path:
    from django.conf import settings

    return Path(settings.DATA_DIR) / "checkpoints" / str(row.pk)


def end(trial: Trial) -> None:
    experiment = transitions.lock(trial.experiment_id)
    Trial.objects.filter(pk=trial.pk).update(state="COMPLETED")
    transitions.set_experiment_state(
        experiment, ExperimentState.COMPLETED, reason=Reason.COMPLETED, actor="server"
    )


def states(trial: Trial) -> dict[int, str]:
    return dict(trial.checkpoints.values_list("steps_completed", "state"))


def test_one_that_never_came_in_full_stays_in_error_when_some_of_its_files_are_removed(trial: Trial) -> None:
    broken = stored(trial, 5, CheckpointState.ERROR)
    stored(trial, 50)
    assert checkpoint_deletion.remove_files([broken.pk], ["opt/*.pt"], actor="user:ada") == 1
    broken.refresh_from_db()
    assert broken.state == CheckpointState.ERROR and broken.doomed == ["opt/state.pt"]
    assert set(broken.resources) == {"model.pt", "opt/"}


def test_at_the_end_the_best_and_the_latest_stay_and_the_files_of_the_others_go(trial: Trial) -> None:
    end(trial)
    tasks.collect_garbage()
    assert states(trial) == {10: "DELETED", 20: "COMPLETED", 30: "DELETED", 40: "COMPLETED"}
    assert [folder_of(row).exists() for row in trial.checkpoints.order_by("steps_completed")] == [
        False, True, False, True,
    ]  # fmt: skip
    assert not Experiment.objects.get(pk=trial.experiment_id).collect_due


@pytest.mark.survive(32)
def test_what_is_still_being_uploaded_lets_the_latest_complete_one_stay(trial: Trial) -> None:
    late = stored(trial, 50, CheckpointState.PARTIAL)
    end(trial)
    checkpoint_deletion.collect(trial.experiment_id)
    assert states(trial)[40] == "COMPLETED", "the upload of 50 may fail yet"
    Checkpoint.objects.filter(pk=late.pk).update(state=CheckpointState.COMPLETED)
    checkpoint_deletion.collect(trial.experiment_id)
    assert states(trial) == {10: "DELETING", 20: "COMPLETED", 30: "DELETING", 40: "DELETING", 50: "COMPLETED"}


def asked_for() -> set[str]:
    """The tasks that the transaction of this test has asked for since the last call."""
    hints = [getattr(entry[1], "__self__", None) for entry in connection.run_on_commit]
    connection.run_on_commit.clear()
    return {name for each in hints for name in getattr(each, "calls", ())}


def test_of_many_uploads_that_outlive_an_experiment_only_the_last_asks_for_a_collection(trial: Trial) -> None:
    late = [stored(trial, step, CheckpointState.PARTIAL) for step in (50, 60, 70)]
    end(trial)
    assert checkpoint_deletion.COLLECT in asked_for()
    asked = []
    for row in late:
        checkpoints.completed(row.pk, {}, row.resources)
        asked.append(checkpoint_deletion.COLLECT in asked_for())
    assert asked == [False, False, True], "each collection looks at all checkpoints, and locks the experiment"
    checkpoint_deletion.collect(trial.experiment_id)
    assert sorted(step for step, state in states(trial).items() if state == "COMPLETED") == [20, 70]


@pytest.mark.survive(32)
def test_results_of_batch_inference_are_never_superfluous(trial: Trial) -> None:
    stored(trial, 50)
    Trial.objects.filter(pk=trial.pk).update(latest_checkpoint=trial.checkpoints.get(steps_completed=40))
    results, after = (trial.checkpoints.get(steps_completed=step) for step in (10, 50))
    rows = Checkpoint.objects.filter(pk__in=[results.pk, after.pk])
    rows.update(metadata={checkpoint_deletion.RESULTS: True})
    end(trial)
    checkpoint_deletion.collect(trial.experiment_id)
    assert states(trial) == {
        10: "COMPLETED", 20: "COMPLETED", 30: "DELETING", 40: "COMPLETED", 50: "COMPLETED",
    }, "the latest progress is kept although results are newer"  # fmt: skip
    assert checkpoint_deletion.standing(trial.experiment).kept[results.pk] == ["results of batch inference"]
    checkpoint_deletion.delete([results.pk], actor="user:ada")
    assert states(trial)[10] == "DELETING", "a person may"


@pytest.mark.survive(32)
def test_what_another_trial_began_with_is_never_superfluous(trial: Trial) -> None:
    source = trial.checkpoints.get(steps_completed=10)
    other = trial_rows.add("other", "COMPLETED")
    Trial.objects.filter(pk=other.pk).update(source_checkpoint=source)
    end(trial)
    checkpoint_deletion.collect(trial.experiment_id)
    assert states(trial)[10] == "COMPLETED"
    assert checkpoint_deletion.standing(trial.experiment).kept[source.pk] == [
        f"trial {other.pk} started from it"
    ]


def test_what_trials_still_begin_with_stays_and_so_does_its_experiment(trial: Trial) -> None:
    source = trial.checkpoints.get(steps_completed=10)
    other = trial_rows.add("other", "ACTIVE")
    Trial.objects.filter(pk=other.pk).update(source_checkpoint=source)
    end(trial)
    sentence = f"experiment {other.experiment_id}"
    with pytest.raises(Refusal, match=f"while {sentence} is running"):
        checkpoint_deletion.delete([source.pk], actor="user:ada")
    with pytest.raises(Refusal, match=f"The trials of {sentence}, which is running"):
        transitions.delete(trial.experiment_id, actor="user:ada")
    end(other)
    checkpoint_deletion.delete([source.pk], actor="user:ada")
    assert transitions.delete(trial.experiment_id, actor="user:ada").state == ExperimentState.DELETING


def test_one_that_is_gone_already_keeps_no_other_from_being_deleted(trial: Trial) -> None:
    gone, there = (trial.checkpoints.get(steps_completed=step) for step in (10, 20))
    checkpoint_deletion.delete([gone.pk], actor="user:ada")
    resumed = trial_rows.add("resumed", "ACTIVE")
    Trial.objects.filter(pk=resumed.pk).update(source_checkpoint=gone)
    assert checkpoint_deletion.delete([gone.pk, there.pk], actor="user:ada") == [there]


@pytest.mark.django_db(transaction=True)
def test_nobody_deletes_what_somebody_is_about_to_begin_with(trial: Trial) -> None:
    source = trial.checkpoints.get(steps_completed=10)
    refused: list[Exception] = []

    def delete_meanwhile() -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '100ms'")
            checkpoint_deletion.delete([source.pk], actor="user:ada")
        except OperationalError as error:
            refused.append(error)
        finally:
            connection.close()

    with transaction.atomic():
        assert sources.found({"searcher": {"source_checkpoint_uuid": str(source.pk)}}) == source
        other = Thread(target=delete_meanwhile)
        other.start()
        other.join()
    assert "lock timeout" in str(refused[0])
    assert states(trial)[10] == "COMPLETED"


def test_a_changed_policy_deletes_now_but_not_what_a_living_trial_goes_on_from(trial: Trial) -> None:
    assert checkpoint_deletion.change_policy(trial.experiment_id, Policy(0, 0, 0), actor="user:ada")
    assert not checkpoint_deletion.change_policy(trial.experiment_id, Policy(0, 0, 0), actor="user:ada")
    checkpoint_deletion.collect(trial.experiment_id)
    assert states(trial) == {10: "DELETING", 20: "DELETING", 30: "DELETING", 40: "COMPLETED"}


def test_a_policy_that_is_set_for_a_detached_run_counts_though_its_config_says_the_same(trial: Trial) -> None:
    Experiment.objects.filter(pk=trial.experiment_id).update(unmanaged=True)
    trial.experiment.refresh_from_db()
    same = Policy.of(trial.experiment.config)
    assert checkpoint_deletion.change_policy(trial.experiment_id, same, actor="user:ada")
    assert checkpoint_deletion.collect(trial.experiment_id) > 0


def test_a_deletion_waits_for_its_storage_with_a_sentence_and_goes_on(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = trial.checkpoints.get(steps_completed=10)
    away = {"type": "shared_fs", "host_path": "/away"}
    Checkpoint.objects.filter(pk=row.pk).update(storage=away)
    checkpoint_deletion.delete([row.pk], actor="user:ada")
    deletion.remove_due(20)
    row.refresh_from_db()
    assert row.state == CheckpointState.DELETING
    assert row.deletion_waits_for
    Checkpoint.objects.filter(pk=row.pk).update(storage={"type": "server"})
    tasks.remove_checkpoint_files()
    row.refresh_from_db()
    assert (row.state, row.deletion_waits_for) == (CheckpointState.DELETED, "")
    assert not folder_of(row).exists()


@pytest.mark.survive(32)
def test_one_that_a_living_trial_needs_is_not_deleted_nor_any_other_with_it(trial: Trial) -> None:
    latest, first = (trial.checkpoints.get(steps_completed=step) for step in (40, 10))
    with pytest.raises(Refusal, match=f"while trial {trial.pk} is training from it"):
        checkpoint_deletion.delete([first.pk, latest.pk], actor="user:ada")
    assert states(trial)[10] == "COMPLETED"


def test_after_the_latest_was_deleted_the_next_one_is(trial: Trial) -> None:
    end(trial)
    latest = trial.checkpoints.get(steps_completed=40)
    lost = checkpoint_deletion.lost_with(latest, checkpoint_deletion.standing(trial.experiment))
    assert lost == []  # of the row that was read before it had a latest
    latest.trial.refresh_from_db()
    lost = checkpoint_deletion.lost_with(latest, checkpoint_deletion.standing(trial.experiment))
    assert lost == [
        f"It is the latest of trial {trial.pk}. Without it, the trial can only be continued from step 30."
    ]
    checkpoint_deletion.delete([latest.pk], actor="user:ada")
    trial.refresh_from_db()
    assert trial.latest_checkpoint is not None
    assert trial.latest_checkpoint.steps_completed == 30


def test_files_that_are_about_to_go_are_not_found_again(trial: Trial) -> None:
    row = trial.checkpoints.get(steps_completed=10)
    checkpoint_deletion.remove_files([row.pk], ["opt/*"], actor="user:ada")
    checkpoint_deletion.found_there(row.pk, stored_files.store_of(row).listing())
    row.refresh_from_db()
    assert (row.resources, row.size_bytes) == ({"model.pt": 7}, 7)


def test_a_trial_without_checkpoints_of_its_own_begins_with_its_source_again(trial: Trial) -> None:
    source = trial.checkpoints.get(steps_completed=10)
    other = trial_rows.add("other", "COMPLETED")
    own = stored(other, 5)
    Trial.objects.filter(pk=other.pk).update(source_checkpoint=source)
    end(other)
    checkpoint_deletion.delete([own.pk], actor="user:ada")
    other.refresh_from_db()
    assert other.latest_checkpoint == source


def test_globs_name_whole_paths_and_many_of_them_take_no_time() -> None:
    deep = "/".join("abcdefghijklmnopqrst")
    assert checkpoint_deletion.matches(deep, ["**/t"])
    assert checkpoint_deletion.matches("t", ["**/t"])
    assert checkpoint_deletion.matches("a/b/t", ["a/**/**/t", "none"])
    assert not checkpoint_deletion.matches(deep, ["t", "a/*", "a/b/", "/a"])
    assert not checkpoint_deletion.matches(deep, ["**/*/" * 10 + "**/u"])


def test_files_go_by_their_names_and_a_checkpoint_without_files_is_deleted(trial: Trial) -> None:
    row = trial.checkpoints.get(steps_completed=10)
    assert checkpoint_deletion.remove_files([row.pk], ["opt/*.pt"], actor="user:ada") == 1
    tasks.remove_checkpoint_files()
    row.refresh_from_db()
    assert (row.state, row.resources, row.size_bytes, row.doomed) == (
        "PARTIALLY_DELETED", {"model.pt": 7, "opt/": 0}, 7, None,
    )  # fmt: skip
    assert not (folder_of(row) / "opt/state.pt").exists()
    assert (folder_of(row) / "model.pt").exists()
    assert checkpoint_deletion.remove_files([row.pk], ["*/*.pt", "model"], actor="user:ada") == 0
    checkpoint_deletion.remove_files([row.pk], ["**/*.pt"], actor="user:ada")
    tasks.remove_checkpoint_files()
    row.refresh_from_db()
    assert row.state == CheckpointState.DELETED
