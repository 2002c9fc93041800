"""Checkpoints over REST: lists in order, what would be lost, deletion, policies, and the way into a fork."""

import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from accounts.refusals import Refusal
from experiments import checkpoint_deletion, reports, s3_stores
from experiments.models import Checkpoint, Trial
from metrics import ingest
from metrics.ingest import Report
from tests.rig.api import CONFIG, Api, Cast
from tests.webui.api.conftest import Submit

pytestmark = pytest.mark.django_db

METRICS = {10: 0.5, 20: 0.2, 30: 0.4}


@pytest.fixture
def trial(submit: Submit, settings: Any, tmp_path: Path) -> Trial:
    settings.DATA_DIR = tmp_path
    trial = Trial.objects.get(experiment_id=submit()["id"])
    ingest.store(
        trial.pk, [Report(1, "validation", step, 0.0, {"loss": loss}) for step, loss in METRICS.items()]
    )
    for step in [*METRICS, 40]:
        Checkpoint.objects.create(
            trial=trial, allocation_id=f"{trial.task_id}.1", state="COMPLETED", steps_completed=step,
            resources={"model.pt": 7, "opt/": 0}, size_bytes=7, storage={"type": "server"},
            reported_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=step),
        )  # fmt: skip
    Trial.objects.filter(pk=trial.pk).update(latest_checkpoint=at(trial, 40))
    return trial


def at(trial: Trial, step: int) -> Checkpoint:
    return trial.checkpoints.get(steps_completed=step)


def steps(answer: dict[str, Any]) -> list[int]:
    return [row["metadata"]["steps_completed"] for row in answer["checkpoints"]]


def test_lists_are_sorted_filtered_and_cut_into_pages(cast: Cast, trial: Trial) -> None:
    path = f"experiments/{trial.experiment_id}/checkpoints"
    by_metric = f"{path}?sortByAttr=SORT_BY_SEARCHER_METRIC"
    assert steps(cast.vic.get(path)) == [10, 20, 30, 40]
    assert steps(cast.vic.get(by_metric)) == [20, 30, 10, 40], "the best first, without a metric last"
    assert steps(cast.vic.get(f"{by_metric}&orderBy=ORDER_BY_DESC")) == [10, 30, 20, 40]
    assert steps(cast.vic.get(f"trials/{trial.pk}/checkpoints?sortByMetric=loss&limit=1")) == [20]
    assert steps(cast.vic.get(f"{path}?sortByAttr=SORT_BY_BATCH_NUMBER&orderBy=ORDER_BY_DESC&offset=3")) == [
        10
    ]
    Checkpoint.objects.filter(pk=at(trial, 10).pk).update(state="DELETING")
    assert steps(cast.vic.get(f"{path}?states=STATE_DELETED")) == [10]


def test_one_says_why_it_is_kept_and_who_began_with_it(cast: Cast, trial: Trial, submit: Submit) -> None:
    source = at(trial, 30)
    fork = submit(config=CONFIG.replace("loss,", f"loss, source_checkpoint_uuid: {source.pk},"))
    began = Trial.objects.get(experiment_id=fork["id"])
    found = cast.vic.get(f"checkpoints/{source.pk}")["checkpoint"]
    assert found["startedTrials"] == [{"trialId": began.pk, "experimentId": fork["id"]}]
    assert found["keptBecause"] == [f"trial {began.pk} started from it"]
    assert found["training"]["searcherMetric"] == 0.4
    assert found["sizeBytes"] == "7"
    assert cast.vic.get(f"checkpoints/{at(trial, 20).pk}")["checkpoint"]["keptBecause"] == [
        "best of its trial"
    ]
    assert (
        cast.ada.get(f"trials/{began.pk}")["trial"]["warmStartCheckpointUuid"] == str(source.pk)
        and began.latest_checkpoint_id == source.pk
    )


@pytest.mark.parametrize(
    "searcher",
    [
        "random, max_trials: 2",
        "grid",
        "adaptive_asha, max_trials: 2",
        "async_halving, max_trials: 2, num_rungs: 1",
    ],
)
def test_the_trials_of_any_search_begin_with_a_checkpoint(
    trial: Trial, submit: Submit, searcher: str
) -> None:
    source = at(trial, 30)
    config = CONFIG.replace("name: single", f"name: {searcher}, source_checkpoint_uuid: {source.pk}")
    began = Trial.objects.filter(experiment_id=submit(config=config)["id"])
    assert {each.latest_checkpoint_id for each in began} == {source.pk}


def test_a_source_that_nothing_can_begin_with_is_refused(cast: Cast, trial: Trial) -> None:
    def refused(field: str) -> str:
        config = CONFIG.replace("loss,", f"loss, {field},")
        return cast.ada.refused("POST", "experiments", {"config": config})[1]

    Checkpoint.objects.filter(pk=at(trial, 10).pk).update(state="PARTIAL")
    assert "still being uploaded" in refused(f"source_checkpoint_uuid: {at(trial, 10).pk}")
    assert "no checkpoint" in refused("source_checkpoint_uuid: 00000000-0000-4000-8000-000000000000")
    assert "no trial 999999" in refused("source_trial_id: 999999")
    Checkpoint.objects.filter(pk=at(trial, 40).pk).update(
        storage={"type": "directory", "container_path": "/d"}
    )
    assert "set checkpoint_storage to the" in refused(f"source_trial_id: {trial.pk}")


def test_deletion_says_what_is_lost_and_asks_for_rights(cast: Cast, trial: Trial) -> None:
    first, latest = str(at(trial, 20).pk), str(at(trial, 40).pk)
    previewed = cast.vic.post("checkpoints/deletion-preview", {"checkpointUuids": [first, latest]})
    assert previewed["checkpoints"][0]["losses"] == ["It is the best of its trial."]
    assert "is training from it" in previewed["refusals"][0]
    assert previewed["sizeBytes"] == "14"
    assert cast.bob.refused("DELETE", "checkpoints", {"checkpointUuids": [first]})[0] == 403
    assert cast.ada.refused("DELETE", "checkpoints", {"checkpointUuids": [first, latest]})[0] == 409
    cast.ada.delete("checkpoints", {"checkpointUuids": [first]})
    assert cast.ada.get(f"checkpoints/{first}")["checkpoint"]["state"] == "STATE_DELETED"
    cast.ada.post(
        "checkpoints/rm", {"checkpointUuids": [str(at(trial, 10).pk)], "checkpointGlobs": ["model.*"]}
    )
    assert at(trial, 10).state == "DELETING", "it has no file left"
    status, sentence = cast.ada.refused(
        "POST", "checkpoints/rm", {"checkpointUuids": [str(at(trial, 30).pk)]}
    )
    assert (status, "None of the files" in sentence) == (409, True)
    assert "give the full UUID" in cast.vic.refused("GET", "checkpoints/nope")[1]


def test_who_has_removed_files_says_which_are_left(cast: Cast, trial: Trial) -> None:
    first, second, latest = (at(trial, step) for step in (10, 20, 40))
    Checkpoint.objects.filter(pk=first.pk).update(resources={"model.pt": 7, "opt.pt": 5, "o/": 0})

    def left(row: Checkpoint, **files: int) -> dict[str, Any]:
        return {"uuid": str(row.pk), "resources": {"resources": files}}

    some = {"checkpoints": [left(first, **{"model.pt": 7, "never.pt": 1}), {"uuid": str(latest.pk)}]}
    assert cast.bob.refused("PATCH", "checkpoints", some)[0] == 403
    both = {"checkpoints": [left(second), left(latest)]}
    status, sentence = cast.ada.refused("PATCH", "checkpoints", both)
    assert (status, "is training from it" in sentence) == (409, True)
    assert at(trial, 20).state == "COMPLETED", "all or none"
    cast.ada.patch("checkpoints", some)
    first = at(trial, 10)
    assert (first.state, first.doomed) == ("PARTIALLY_DELETED", ["opt.pt"])
    assert (first.resources, first.size_bytes) == ({"model.pt": 7, "o/": 0}, 7)
    assert at(trial, 40).state == "COMPLETED", "nothing was said of its files"
    cast.ada.patch("checkpoints", {"checkpoints": [left(second)]})
    assert cast.ada.get(f"checkpoints/{second.pk}")["checkpoint"]["state"] == "STATE_DELETED"
    unknown = {"checkpoints": [{"uuid": str(uuid.uuid4())}]}
    assert cast.ada.refused("PATCH", "checkpoints", unknown)[0] == 404


def test_a_server_asks_the_s3_alone_that_it_may(
    cast: Cast, trial: Trial, submit: Submit, settings: Any
) -> None:
    def config(endpoint: str) -> str:
        keys = "bucket: b, access_key: a, secret_key: s"
        return CONFIG + f"checkpoint_storage: {{type: s3, {keys}, endpoint_url: '{endpoint}'}}\n"

    early = Trial.objects.get(experiment_id=submit(config=config("http://10.0.0.9:9000"))["id"])
    place = {"type": "s3", "bucket": "b", "endpoint_url": "http://10.0.0.9:9000", "signed": True}
    Checkpoint.objects.filter(pk=at(trial, 10).pk).update(trial=early, storage=place)
    kept = Checkpoint.objects.select_related("trial__experiment").get(trial=early)
    assert s3_stores.store_of(kept)
    settings.S3_ENDPOINTS = ["https://s3.example.com", "http://minio:9000/"]
    settings.S3_ENDPOINT_URL = "http://own:9000"
    allowed = "allowed on this server: https://s3.example.com, http://minio:9000/, http://own:9000, or none"
    for endpoint in ("http://10.0.0.9:9000", "http://minio:9000@10.0.0.9", "http://10.0.0.9\\@minio:9000"):
        body = {"config": config(endpoint), "modelDefinition": []}
        status, sentence = cast.ada.refused("POST", "experiments", body)
        assert (status, endpoint in sentence and allowed in sentence) == (400, True), sentence
    for endpoint in ("https://s3.example.com/", "http://minio:9000", "http://own:9000"):
        submit(config=config(endpoint))
    submit(config=CONFIG + "checkpoint_storage: {type: s3, bucket: b}\n")
    with pytest.raises(PermissionError, match=r"found http://10\.0\.0\.9:9000"):
        s3_stores.store_of(kept)


def test_a_policy_is_previewed_and_set(cast: Cast, trial: Trial) -> None:
    path = f"/experiments/{trial.experiment_id}/preview_gc"
    asked = f"{path}?save_experiment_best=0&save_trial_best=0&save_trial_latest=1"
    found = cast.vic.get(asked)
    assert found["metric_name"] == "loss"
    assert [row["StepsCompleted"] for row in found["checkpoints"]] == [10, 20, 30]
    assert found["checkpoints"][0]["step"]["validation"]["metrics"]["validation_metrics"] == {"loss": 0.5}
    wanted = {"saveExperimentBest": 0, "saveTrialBest": 0, "saveTrialLatest": 1}
    cast.ada.patch(f"experiments/{trial.experiment_id}", {"checkpointStorage": wanted})
    experiment = Trial.objects.get(pk=trial.pk).experiment
    assert experiment.collect_due
    assert experiment.config["checkpoint_storage"]["save_trial_best"] == 0
    assert cast.vic.refused("GET", f"{path}?save_trial_best=-1")[0] == 400


def test_an_ended_experiment_is_continued_by_yaml(cast: Cast, trial: Trial) -> None:
    body = {"id": trial.experiment_id, "overrideConfig": "searcher: {max_length: {batches: 20}}"}
    assert "non terminal" in cast.ada.refused("POST", "experiments/continue", body)[1]
    cast.ada.post(f"experiments/{trial.experiment_id}/kill")
    assert cast.bob.refused("POST", "experiments/continue", body)[0] == 403
    wrong = {**body, "overrideConfig": "searcher: {max_length: none}"}
    assert "searcher.max_length" in cast.ada.refused("POST", "experiments/continue", wrong)[1]
    found = cast.ada.post("experiments/continue", body)["experiment"]
    assert found["config"]["searcher"]["max_length"] == {"batches": 20}
    assert found["state"] == "STATE_QUEUED"


def test_what_is_measured_with_a_checkpoint_is_found_by_it(
    cast: Cast, trial: Trial, running: tuple[Trial, Any, Api]
) -> None:
    user, _, run = running
    used = at(trial, 20)
    ingest.store(user.pk, [Report(1, "inference", 1, 0.0, {"accuracy": 0.9})])
    assert cast.vic.get(f"checkpoints/{used.pk}/metrics")["metrics"] == []
    source = {"trialId": user.pk, "checkpointUuid": str(used.pk)}
    for _ in range(2):
        assert run.post("trial-source-info", {"trialSourceInfo": source}) == source
    reports.apply(user.experiment, user, None, {"type": "uses_checkpoint", "uuid": str(used.pk)})  # type: ignore[arg-type]
    (found,) = cast.vic.get(f"checkpoints/{used.pk}/metrics?metricGroup=inference")["metrics"]
    assert (found["trialId"], found["metrics"]) == (user.pk, {"avg_metrics": {"accuracy": 0.9}})
    assert cast.vic.get(f"checkpoints/{used.pk}/metrics?metricGroup=training")["metrics"] == []
    other = {**source, "checkpointUuid": "00000000-0000-0000-0000-000000000001"}
    assert (
        "there is no checkpoint 0000"
        in run.refused("POST", "trial-source-info", {"trialSourceInfo": other})[1]
    )
    assert cast.vic.refused("POST", "trial-source-info", {"trialSourceInfo": source})[0] == 403


@pytest.mark.parametrize("metadata", [["a list"], "text", 5])
def test_whatever_training_code_writes_as_metadata_its_trial_and_checkpoints_are_answered(
    cast: Cast, trial: Trial, running: tuple[Trial, Any, Api], metadata: object
) -> None:
    member, made = running[1].members.first(), uuid.uuid4()
    record = {"type": "checkpoint", "uuid": str(made), "storage": {"type": 5}, "metadata": metadata}
    reports.apply(trial.experiment, trial, member, record)
    with suppress(ValueError):  # the intake names it in the log
        reports.apply(trial.experiment, trial, member, {"type": "metadata", "metadata": metadata})
    assert cast.ada.get(f"checkpoints/{made}")["checkpoint"]["metadata"]["steps_completed"] == 0
    listed = cast.ada.get(f"experiments/{trial.experiment_id}/checkpoints")["checkpoints"]
    assert [each["storage"] for each in listed if each["uuid"] == str(made)] == ["5"]
    assert cast.ada.get(f"trials/{trial.pk}")["trial"]["id"] == trial.pk
    assert cast.ada.get(f"experiments/{trial.experiment_id}/trials")["trials"]


def test_a_checkpoint_was_saved_when_its_host_says_however_late_that_arrives(
    trial: Trial, running: tuple[Trial, Any, Api]
) -> None:
    member = running[1].members.select_related("allocation", "host").first()
    now = timezone.now()
    member.allocation.assigned_at = now - timedelta(hours=2)
    said: dict[object, datetime | None] = {(now - timedelta(hours=1)).timestamp(): now - timedelta(hours=1)}
    said |= {10**400: None, "noon": None, None: None}
    for stamp, saved_at in said.items():
        made = uuid.uuid4()
        reports.apply(trial.experiment, trial, member, {"type": "checkpoint", "uuid": str(made), "t": stamp})
        kept = Checkpoint.objects.get(pk=made)
        assert kept.saved_at == saved_at and kept.reported_at >= now


def test_a_record_of_training_code_brings_no_keys_and_gets_those_of_the_config_for_its_place_alone(
    trial: Trial, running: tuple[Trial, Any, Api]
) -> None:
    place, keys = {"type": "s3", "bucket": "b"}, {"access_key": "a", "secret_key": "s"}
    trial.experiment.config = {**trial.experiment.config, "checkpoint_storage": {**place, **keys}}
    trial.experiment.save(update_fields=["config"])
    cases: list[tuple[str | None, dict[str, str]]] = [("http://elsewhere", {}), (None, keys)]
    for endpoint, gets in cases:
        reported, made = {**place, "endpoint_url": endpoint}, uuid.uuid4()
        record = {"type": "checkpoint", "uuid": str(made), "storage": {**reported, "access_key": "other"}}
        reports.apply(trial.experiment, trial, running[1].members.first(), record)
        kept = Checkpoint.objects.select_related("trial__experiment").get(pk=made)
        assert kept.storage == reported
        assert s3_stores.section_of(kept) == {**reported, **gets}


def test_code_deletes_checkpoints_of_its_own_experiment_but_the_one_it_goes_on_from(
    trial: Trial, running: tuple[Trial, Any, Api]
) -> None:
    member = running[1].members.first()

    def delete(step: int, of: Trial) -> None:
        reports.apply(
            of.experiment, of, member, {"type": "checkpoint_deleted", "uuid": str(at(trial, step).pk)}
        )

    delete(10, trial)
    assert at(trial, 10).state == "DELETING"
    with pytest.raises(Refusal, match="is training from it"):
        delete(40, trial)
    with pytest.raises(ValueError, match="has no checkpoint"):
        delete(20, running[0])


def test_an_edit_of_metadata_neither_takes_the_mark_of_results_away_nor_gives_it(
    cast: Cast, trial: Trial
) -> None:
    first, second = trial.checkpoints.order_by("steps_completed")[:2]
    mark = {checkpoint_deletion.RESULTS: True}
    Checkpoint.objects.filter(pk=first.pk).update(metadata={**mark, "old": 1})
    for row, sent in ((first, {"new": 2}), (second, {"new": 2, **mark})):
        cast.ada.post(f"checkpoints/{row.pk}/metadata", {"checkpoint": {"metadata": sent}})
    assert Checkpoint.objects.get(pk=first.pk).metadata == {"new": 2, **mark}
    assert Checkpoint.objects.get(pk=second.pk).metadata == {"new": 2}


def test_checkpoints_in_one_storage_have_one_storage_id_and_others_another(cast: Cast, trial: Trial) -> None:
    first, second, third, *_ = trial.checkpoints.order_by("steps_completed")
    there = {"type": "shared_fs", "host_path": "/nfs"}
    Checkpoint.objects.filter(pk=third.pk).update(storage=there)
    ids = [cast.vic.get(f"checkpoints/{row.pk}")["checkpoint"]["storageId"] for row in (first, second, third)]
    assert ids[0] == ids[1] != ids[2] and all(isinstance(each, int) and each > 0 for each in ids)
    fourth = {**there, "host_path": "/other"}
    Checkpoint.objects.filter(pk=second.pk).update(storage=fourth)
    assert cast.vic.get(f"checkpoints/{second.pk}")["checkpoint"]["storageId"] not in ids
