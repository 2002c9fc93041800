"""Detached runs over REST: made, started and ended by their user, outside the queue; lost in silence, heard again."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.conf import LazySettings
from django.utils import timezone

from dispatch.keeping import deletion, usage
from dispatch.passes import pool_pass
from dispatch.runs import detached, intake, reconcile
from events.models import Event
from experiments.models import Checkpoint, Experiment
from hosts import registry
from hosts.models import Host, PoolChange, ResourcePool, Slot
from jobs.models import Allocation, Job, Member, SlotHold, Task, UsageRecord
from logs import read, why_stopped
from logs import store as log_store
from tests.rig.api import Cast, Json
from tests.rig.world import be_whole
from trainmaster import dialect_words

pytestmark = pytest.mark.django_db

CONFIG = """
name: laptop
data: null
searcher: {name: single, metric: loss}
workspace: null
checkpoint_storage: {type: shared_fs, host_path: /home/ada/checkpoints}
"""
UNMANAGED = {"config": CONFIG, "unmanaged": True}


@pytest.fixture
def trial(cast: Cast, pool: ResourcePool) -> Json:
    """A trial of an unmanaged experiment of Ada's, not yet started."""
    experiment = cast.ada.post("experiments", UNMANAGED)["experiment"]
    asked = {"experimentId": experiment["id"], "hparams": {"lr": 0.1}, "unmanaged": True}
    return dict(cast.ada.post("trials", asked)["trial"])


def start(cast: Cast, trial: Json, **body: Any) -> Json:
    return cast.ada.post(f"trials/{trial['id']}/start", body)


def state(cast: Cast, trial: Json) -> tuple[str, str]:
    """Of the trial and of its experiment."""
    record = cast.ada.get(f"trials/{trial['id']}")["trial"]
    experiment = cast.ada.get(f"experiments/{record['experimentId']}")["experiment"]
    return record["state"].removeprefix("STATE_"), experiment["state"].removeprefix("STATE_")


def say(cast: Cast, trial: Json, word: str) -> None:
    cast.ada.patch(f"trials/{trial['id']}", {"trialId": trial["id"], "state": f"STATE_{word}"})


def log(trial: Json) -> list[str]:
    log_store.merge_events(trial["taskId"])
    """Its lines, without Determined's words before ours."""
    lines = read.tail(trial["taskId"], read.Filters(), 100)
    return [line.text.split(dialect_words.SEPARATOR)[-1] for line in lines]


def ship(run: Json, index: int, offset: int, *records: Json) -> int:
    """A member ships records; the new offset."""
    member = Member.objects.get(allocation_id=run["allocationId"], index=index)
    body = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    return intake.store(member.pk, offset, body).offset


def silent(trial: Json, settings: LazySettings) -> None:
    """Nothing was heard for long enough, and the sweep has looked."""
    settings.DETACHED_LOST_SECONDS = 300.0
    long_ago = timezone.now() - timedelta(seconds=301)
    Member.objects.filter(allocation__task_id=trial["taskId"]).update(heartbeat_at=long_ago)
    be_whole()
    detached.give_up_silent()


def test_a_run_of_determineds_client_lives_from_its_start_to_completed(cast: Cast, trial: Json) -> None:
    assert state(cast, trial) == ("STARTING", "STARTING")
    assert start(cast, trial, resume=True) == {"trialRunId": 1, "stepsCompleted": 0}
    assert cast.ada.post("runs/start", {"runId": trial["id"], "checkpointStorage": {}}) == {}
    say(cast, trial, "RUNNING")
    assert state(cast, trial) == ("RUNNING", "RUNNING")
    for rank in (0, 1):
        line = {"task_id": trial["taskId"], "timestamp": "2026-01-01T00:00:00Z", "rank": str(rank)}
        cast.ada.post("/task-logs", [{**line, "log": f"ERROR: rank {rank}\n"}])
        report = {
            "trialId": trial["id"],
            "trialRunId": 1,
            "stepsCompleted": rank + 1,
            "metrics": {"avgMetrics": {"loss": 0.5, "rank": rank}},
        }
        cast.ada.post(f"trials/{trial['id']}/metrics", {"group": "validation", "metrics": report})
    cast.ada.post(f"trials/{trial['id']}/progress", {"progress": 0.5})
    saved = {
        "uuid": str(uuid.uuid4()),
        "taskId": trial["taskId"],
        "resources": {"state_0": "3"},
        "metadata": {"steps_completed": 2},
    }
    cast.ada.post("checkpoints", saved)
    assert cast.ada.post(f"runs/{trial['id']}/metadata", {"metadata": {"a": 1}}) == {"metadata": {"a": 1}}
    say(cast, trial, "COMPLETED")
    say(cast, trial, "COMPLETED")  # sent again
    assert state(cast, trial) == ("COMPLETED", "COMPLETED")
    record = cast.ada.get(f"trials/{trial['id']}")["trial"]
    assert record["latestValidation"]["metrics"]["avgMetrics"] == {"loss": 0.5, "rank": 1}
    assert record["checkpointCount"] == 1 and record["searcherMetricValue"] == 0.5
    lines = read.tail(trial["taskId"], read.Filters(ranks=frozenset({1})), 10)
    assert [(line.text, line.level, line.host) for line in lines] == [("ERROR: rank 1", "ERROR", "unmanaged")]
    long = {"task_id": trial["taskId"], "rank": 2, "log": "x" * 70_000 + "\nnext\n"}
    cast.ada.post("/task-logs", [long])
    found = read.tail(trial["taskId"], read.Filters(ranks=frozenset({2})), 10)
    assert [(len(line.text), line.cut) for line in found] == [(65_536, True), (4_464, False), (4, False)]
    assert "Run 1 was started by ada outside the queue, on unmanaged." in log(trial)


def test_a_run_with_members_ships_records_and_ends_by_their_exits(cast: Cast, trial: Json) -> None:
    answer = start(cast, trial, members=2, hosts=["laptop"])
    run = answer["run"]
    assert run["hosts"] == ["laptop", "unmanaged"] and run["members"] == 2 and run["runId"] == 1
    assert run["limits"]["batch_bytes"] == 1024 * 1024 and run["checkpointStorage"]["type"] == "shared_fs"
    assert len(run["token"]) == 64 and run["allocationId"] == f"{trial['taskId']}.1"
    metric = {
        "type": "metrics",
        "group": "training",
        "steps_completed": 3,
        "metrics": {"loss": 1.0},
        "run_id": 1,
    }
    lines = {"k": "lines", "f": "rank0.stdout", "e": 1, "t": 1.5, "r": 0, "s": "stdout", "m": "hello"}
    ends = [
        ship(run, i, 0, {"k": "state", "t": 1.0, "state": "running"}, lines, {"k": "core", "d": metric})
        for i in (0, 1)
    ]
    assert state(cast, trial) == ("RUNNING", "RUNNING")
    ship(run, 0, ends[0], {"k": "exit", "t": 2.0, "code": 0})
    assert state(cast, trial) == ("RUNNING", "RUNNING")
    ship(run, 1, ends[1], {"k": "exit", "t": 2.0, "code": 0})
    assert state(cast, trial) == ("COMPLETED", "COMPLETED")
    assert {line.host for line in read.tail(trial["taskId"], read.Filters(ranks=frozenset({0})), 9)} == {
        "laptop",
        "unmanaged",
    }
    with pytest.raises(intake.Over):
        ship(run, 1, 10_000, {"k": "gap", "bytes": 1})


def test_a_failed_member_stops_its_peers_and_ends_in_error_without_a_restart(cast: Cast, trial: Json) -> None:
    run = start(cast, trial, members=2)["run"]
    ship(
        run,
        0,
        0,
        {"k": "exit", "t": 2.0, "code": 3, "first_failure": {"rank": 1, "code": 3, "signal": None, "t": 2.0}},
    )
    member = Member.objects.get(allocation_id=run["allocationId"], index=1)
    stop = intake.signals(member.pk, member.allocation_id).stop
    assert stop and stop["reason"] == "peer_ended"
    ship(run, 1, 0, {"k": "exit", "t": 3.0, "code": 143})
    assert state(cast, trial) == ("ERROR", "ERROR")
    task = Task.objects.get(pk=trial["taskId"])
    assert task.allocations.count() == 1 and task.state == "ENDED"
    assert "rank 1" in why_stopped.of_task(task).sentences[0].lower()


def test_an_open_run_is_replaced_by_a_resume_and_by_nothing_else(cast: Cast, trial: Json) -> None:
    first = start(cast, trial, members=1)["run"]
    status, sentence = cast.ada.refused("POST", f"trials/{trial['id']}/start", {"members": 1})
    assert status == 409 and "is already running" in sentence
    checkpoint = {
        "type": "checkpoint",
        "uuid": str(uuid.uuid4()),
        "steps_completed": 7,
        "storage": "server",
        "resources": {"a": 1},
    }
    ship(
        first,
        0,
        0,
        {"k": "core", "d": {**checkpoint, "storage": {"type": "shared_fs"}}},
        {"k": "core", "d": {**checkpoint, "uuid": str(uuid.uuid4()), "steps_completed": 9}},
    )
    second = start(cast, trial, members=1, resume=True)
    assert (second["trialRunId"], second["stepsCompleted"], second["latestCheckpoint"]) == (
        2,
        7,
        checkpoint["uuid"],
    )
    with pytest.raises(intake.Over):
        ship(first, 0, 0)
    assert state(cast, trial) == ("STARTING", "STARTING")
    ended = Allocation.objects.get(pk=first["allocationId"])
    assert ended.exit_reason == "replaced" and second["run"]["token"] != first["token"]
    assert why_stopped.of_attempt(ended).sentences[-1] == "It was replaced by the next run."


def test_external_ids_find_both_again_and_resume_what_has_ended(cast: Cast, pool: ResourcePool) -> None:
    put = lambda who=cast.ada: who.put("experiments/by-external-id/sweep/1", UNMANAGED)["experiment"]  # noqa: E731
    experiment = put()
    assert put()["id"] == experiment["id"] and experiment["externalExperimentId"] == "sweep/1"
    assert cast.bob.refused("PUT", "experiments/by-external-id/sweep/1", UNMANAGED)[0] == 403
    wanted = {
        "createTrialRequest": {"experimentId": experiment["id"], "hparams": {}, "unmanaged": True},
        "externalTrialId": "t1",
    }
    trial = cast.ada.put("trials", wanted)["trial"]
    assert cast.ada.put("trials", wanted)["trial"]["id"] == trial["id"]
    assert cast.vic.get("trials/by-external-id/sweep/1/t1")["trial"]["id"] == trial["id"]
    start(cast, trial, resume=True)
    say(cast, trial, "ERROR")
    assert state(cast, trial) == ("ERROR", "ERROR")
    assert start(cast, trial, resume=True)["trialRunId"] == 2
    say(cast, trial, "RUNNING")
    assert state(cast, trial) == ("RUNNING", "RUNNING")
    say(cast, trial, "COMPLETED")
    cast.ada.post(f"experiments/{experiment['id']}/archive")
    assert "archived" in cast.ada.refused("PUT", "experiments/by-external-id/sweep/1", UNMANAGED)[1]
    assert cast.ada.refused("POST", f"trials/{trial['id']}/start", {"resume": True})[0] == 409


def test_silence_ends_a_run_and_the_next_sign_of_life_goes_on_with_it(
    cast: Cast, trial: Json, settings: LazySettings
) -> None:
    run = start(cast, trial, members=2)["run"]
    end = ship(run, 0, 0, {"k": "state", "t": 1.0, "state": "running"})
    cast.ada.patch(f"trials/{trial['id']}", {"trialId": trial["id"]})
    detached.give_up_silent()
    assert state(cast, trial) == ("RUNNING", "RUNNING")
    silent(trial, settings)
    assert state(cast, trial) == ("ERROR", "ERROR")
    assert "Run 1 was given up: no sign of life for 5 min." in log(trial)
    story = why_stopped.of_task(Task.objects.get(pk=trial["taskId"]))
    assert story.failed and "no report for 5 min" in story.sentences[0]
    member = Member.objects.get(allocation_id=run["allocationId"], index=0)
    assert detached.reopen(member.pk)
    assert ship(run, 0, end, {"k": "gap", "bytes": 0}) > end
    assert state(cast, trial) == ("RUNNING", "RUNNING")
    assert "Run 1 responded again and continues." in log(trial)
    silent(trial, settings)
    cast.ada.patch(f"trials/{trial['id']}", {"trialId": trial["id"]})  # as Determined's client beats
    assert state(cast, trial) == ("RUNNING", "RUNNING")
    silent(trial, settings)
    start(cast, trial, resume=True)
    assert not detached.reopen(member.pk)


def test_what_a_run_that_is_over_never_uploads_is_given_up_in_the_end(cast: Cast, trial: Json) -> None:
    run = start(cast, trial, members=1)["run"]
    checkpoint = {
        "type": "checkpoint",
        "uuid": str(uuid.uuid4()),
        "steps_completed": 9,
        "resources": {"a": 1},
    }
    ship(run, 0, 0, {"k": "core", "d": checkpoint}, {"k": "exit", "t": 2.0, "code": 0})
    be_whole()
    detached.give_up_silent()
    assert Checkpoint.objects.get().state == "PARTIAL"
    Member.objects.update(ended_at=timezone.now() - timedelta(days=8))
    detached.give_up_silent()
    assert Checkpoint.objects.get().state == "ERROR"


def test_what_was_made_but_never_started_is_given_up_too(
    cast: Cast, trial: Json, settings: LazySettings
) -> None:
    empty = cast.ada.post("experiments", {**UNMANAGED, "activate": False})["experiment"]
    settings.DETACHED_LOST_SECONDS = -1.0
    be_whole()
    detached.give_up_silent()
    assert state(cast, trial) == ("ERROR", "ERROR")
    assert cast.ada.get(f"experiments/{empty['id']}")["experiment"]["state"] == "STATE_ERROR"
    cast.ada.delete(f"experiments/{empty['id']}")


def test_the_queue_its_hosts_and_its_usage_know_nothing_of_it(cast: Cast, trial: Json) -> None:
    run = start(cast, trial, members=1, hosts=["laptop"])["run"]
    end = ship(run, 0, 0, {"k": "state", "t": 1.0, "state": "running"})
    assert cast.ada.get("job-queues-v2?resourcePool=default")["jobs"] == []
    assert [pool["name"] for pool in cast.ada.get("resource-pools")["resourcePools"]] == ["default"]
    assert cast.ada.get("tasks")["allocationIdToSummary"] == {}
    assert cast.ada.get("agents")["agents"] == [] and not registry.present().exists()
    assert reconcile.hosts_to_ask() == [] and not SlotHold.objects.exists() and not Slot.objects.exists()
    reconcile.forgotten()
    reconcile.leave_disabled_hosts()
    reconcile.finish_lost_hosts()
    hidden = Job.objects.get(pk=run["jobId"]).pool
    assert pool_pass.run(hidden.pk) == 0 and not PoolChange.objects.filter(pool=hidden).exists()
    now = timezone.now()
    assert usage.held(now - timedelta(hours=1), now, limit=9) == []
    ship(run, 0, end, {"k": "exit", "t": 2.0, "code": 0})
    assert not UsageRecord.objects.exists()
    Host.objects.create(
        name="laptop", pool=ResourcePool.objects.get()
    )  # a host may be called as somebody's machine
    record = cast.ada.get(f"experiments/{run['experimentId']}")
    assert (
        record["experiment"]["unmanaged"]
        and record["experiment"]["resourcePool"] == ""
        and record["jobSummary"] is None
    )


def test_what_the_server_cannot_do_to_it_is_refused_with_a_sentence(cast: Cast, trial: Json) -> None:
    start(cast, trial)
    stored = {"uuid": str(uuid.uuid4()), "taskId": trial["taskId"], "resources": {"a": "1"}, "metadata": {}}
    cast.ada.post("checkpoints", stored)
    at = f"experiments/{trial['experimentId']}"
    for action in ("pause", "activate", "cancel", "kill"):
        status, sentence = cast.ada.refused("POST", f"{at}/{action}")
        assert status == 409 and "runs outside the queue" in sentence
    assert cast.ada.refused("POST", f"trials/{trial['id']}/kill")[0] == 409
    fork = {"config": "name: again", "parentId": trial["experimentId"]}
    assert "cannot be forked" in cast.ada.refused("POST", "experiments", fork)[1]
    assert "end its program" in cast.ada.refused("DELETE", at)[1]
    job = Experiment.objects.get(pk=trial["experimentId"]).job_id
    cast.ada.refused("POST", "job-queues", {"updates": [{"jobId": str(job), "priority": 1}]})
    assert cast.bob.refused("POST", f"trials/{trial['id']}/start", {})[0] == 403
    assert cast.bob.refused("POST", "/task-logs", [{"task_id": trial["taskId"], "log": "x"}])[0] == 403
    say(cast, trial, "ERROR")
    cast.ada.patch(at, {"notes": "kept", "labels": ["a"]})
    for action in ("archive", "unarchive"):
        cast.ada.post(f"{at}/{action}")
    cast.ada.delete(at)
    assert deletion.delete(trial["experimentId"]), "although its checkpoint lies in a folder of Ada's"
    assert not Task.objects.exists()
    assert Event.objects.filter(subject=str(trial["experimentId"]), to_state="DELETING").exists()
