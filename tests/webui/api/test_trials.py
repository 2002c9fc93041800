"""Trials: what they have done, what their runs report, and what a run's token may not touch."""

import uuid
from collections.abc import Callable

import pytest

from events.models import Event
from experiments import metric_reports, transitions
from experiments.models import Checkpoint, Experiment, Trial
from experiments.states import CheckpointState
from hosts.models import Host
from jobs.models import Allocation
from metrics import reported
from metrics.ingest import Report
from tests.rig.api import CONFIG, Api, Cast, Json
from tests.rig.world import assigned

Submit = Callable[..., Json]
Running = tuple[Trial, Allocation, Api]


def report(run: Api, trial: Trial, group: str, steps: int, **values: object) -> None:
    metrics = {
        "trialId": trial.pk,
        "trialRunId": 1,
        "stepsCompleted": steps,
        "metrics": {"avgMetrics": values},
    }
    run.post(f"trials/{trial.pk}/metrics", {"group": group, "metrics": metrics})


def test_a_trial_has_what_the_client_reads(cast: Cast, running: Running) -> None:
    trial = cast.vic.get(f"trials/{running[0].pk}")["trial"]
    assert {
        "id", "experimentId", "state", "startTime", "hparams", "restarts", "totalBatchesProcessed"
    } <= trial.keys()  # fmt: skip
    assert trial["state"] == "STATE_STARTING"
    listed = cast.vic.get(f"experiments/{trial['experimentId']}/trials")["trials"]
    assert [row["id"] for row in listed] == [trial["id"]]
    assert cast.vic.get(f"experiments/{trial['experimentId']}/trials?states=STATE_RUNNING")["trials"] == []


def test_reports_become_workloads_curves_and_best_values(cast: Cast, running: Running) -> None:
    trial, _, run = running
    for steps in (5, 10):
        report(run, trial, "training", steps, loss=1.0 / steps, note="text")
    report(run, trial, "validation", 5, loss=0.5)
    report(run, trial, "validation", 10, loss=float("nan"))
    run.post(f"trials/{trial.pk}/progress", {"progress": 0.5, "is_raw": False})
    record = cast.vic.get(f"trials/{trial.pk}")["trial"]
    assert record["totalBatchesProcessed"] == 10
    assert record["progress"] == 0.5
    # all of its length was validated, whatever the value: the search counts that before what a run says of itself
    assert cast.vic.get(f"experiments/{trial.experiment_id}")["experiment"]["progress"] == 1.0
    assert record["bestValidation"]["metrics"]["avgMetrics"] == {"loss": 0.5}
    assert record["latestValidation"]["metrics"]["avgMetrics"] == {"loss": "NaN"}
    experiment = record["experimentId"]
    assert cast.vic.get(f"experiments/{experiment}/searcher/best_searcher_validation_metric")["metric"] == 0.5
    history = cast.vic.get(f"experiments/{experiment}/validation-history")["validationHistory"]
    assert [(row["trialId"], row["searcherMetric"]) for row in history] == [(trial.pk, 0.5)]
    workloads = cast.vic.get(f"trials/{trial.pk}/workloads?orderBy=ORDER_BY_ASC")["workloads"]
    assert [next(iter(row)) for row in workloads] == ["training", "validation", "training", "validation"]
    only = cast.vic.get(f"trials/{trial.pk}/workloads?filter=FILTER_OPTION_VALIDATION")["workloads"]
    assert len(only) == 2
    series = cast.vic.get(f"trials/time-series?trialIds={trial.pk}&metricNames=loss&group=training")["trials"]
    data = series[0]["metrics"][0]["data"]
    assert [(point["batches"], point["values"]) for point in data] == [
        (5, {"loss": 0.2}),
        (10, {"loss": 0.1}),
    ]


def test_a_report_is_stored_by_one_statement_unless_something_else_changes(running: Running) -> None:
    trial, _, run = running
    Trial.objects.filter(pk=trial.pk).update(run_id=1)

    def stored(step: int, group: str = "training", run: int = 1) -> bool:
        read = transitions.read_to_report(Trial.objects.filter(pk=trial.pk)).get()
        return metric_reports.store_alone(read, Report(run, group, step, 1e9 + step, {"loss": step / 10}))

    assert stored(5) and Experiment.objects.get(pk=trial.experiment_id).progress, "the search has moved"
    report(run, trial, "training", 100_000, loss=3.0)
    assert all(stored(step) for step in range(100_001, 100_019)), "some are put together with those before"
    read = transitions.read_to_report(Trial.objects.filter(pk=trial.pk)).get()
    read.version = "3"  # another transaction has written the row since
    assert not metric_reports.store_alone(read, Report(1, "training", 100_019, 1e9, {"loss": 0.0})), (
        "it changed"
    )
    late, of_before, validates = stored(7), stored(100_019, run=0), stored(100_019, "validation")
    assert not (late or of_before or validates)
    trial.refresh_from_db()
    kept = trial.summary_metrics["avg_metrics"]["loss"]
    assert (kept["count"], kept["max"], kept["last"], kept["step"]) == (20, 10_001.8, 10_001.8, 100_018)
    assert trial.steps_completed == 100_018
    steps = [found.steps_completed for found in reported.read([trial.pk], ["training"])]
    assert steps == [5, *range(100_000, 100_019)]


def test_older_clients_report_by_group_in_the_path(cast: Cast, running: Running) -> None:
    trial, _, run = running
    body = {"trialId": trial.pk, "trialRunId": 1, "totalBatches": 3, "metrics": {"avgMetrics": {"loss": 2}}}
    run.post(f"trials/{trial.pk}/validation_metrics", body)
    assert cast.vic.get(f"trials/{trial.pk}")["trial"]["searcherMetricValue"] == 2


def test_a_run_touches_its_own_trial_alone(cast: Cast, running: Running, submit: Submit) -> None:
    trial, _, run = running
    other = Experiment.objects.get(pk=submit()["id"]).trials.get()
    body = {"group": "training", "metrics": {"stepsCompleted": 1, "metrics": {"avgMetrics": {"a": 1}}}}
    assert run.refused("POST", f"trials/{other.pk}/metrics", body)[0] == 404
    assert run.refused("GET", f"trials/{other.pk}")[0] == 404
    assert run.refused("POST", f"trials/{trial.pk}/kill")[0] == 403
    for path in (
        "me",
        "users",
        "hosts",
        "job-queues-v2",
        "templates",
        f"experiments/{trial.experiment_id}/trials",
    ):
        assert run.refused("GET", path)[0] == 403, path


def test_a_token_is_refused_once_its_run_is_over(running: Running) -> None:
    trial, allocation, run = running
    Allocation.objects.filter(pk=allocation.pk).update(token_hash="")
    assert run.refused("GET", f"trials/{trial.pk}")[0] == 401


def test_the_run_token_comes_in_its_own_header_too(running: Running) -> None:
    trial, _, run = running
    token = run.headers["authorization"]
    status, _ = Api().send("GET", f"trials/{trial.pk}", **{"grpc-metadata-x-allocation-token": token})
    assert status == 200


def test_only_the_owner_reports_by_hand(cast: Cast, running: Running) -> None:
    trial = running[0]
    body = {"group": "training", "metrics": {"stepsCompleted": 1, "metrics": {"avgMetrics": {"a": 1}}}}
    cast.ada.post(f"trials/{trial.pk}/metrics", body)
    assert cast.bob.refused("POST", f"trials/{trial.pk}/metrics", body)[0] == 403
    assert cast.vic.refused("POST", f"trials/{trial.pk}/metrics", body)[0] == 403
    assert cast.stranger.refused("POST", f"trials/{trial.pk}/metrics", body)[0] == 401


@pytest.mark.parametrize("metrics", [{}, {"metrics": {}}, {"metrics": {"avgMetrics": 1}}, {"metrics": 1}])
def test_a_report_without_values_is_refused(running: Running, metrics: Json) -> None:
    trial, _, run = running
    assert (
        run.refused("POST", f"trials/{trial.pk}/metrics", {"group": "training", "metrics": metrics})[0] == 400
    )


def test_the_first_early_exit_stands(running: Running) -> None:
    trial, _, run = running
    run.post(f"trials/{trial.pk}/early_exit", {"reason": "EXITED_REASON_INVALID_HP"})
    assert Trial.objects.get(pk=trial.pk).early_exit == "INVALID_HP"
    assert run.refused("POST", f"trials/{trial.pk}/early_exit", {"reason": "x"})[0] == 400


def test_a_run_says_what_it_is_doing(cast: Cast, running: Running) -> None:
    trial, _, run = running
    run.post(f"trials/{trial.pk}/runner/metadata", {"state": "validating"})
    assert cast.vic.get(f"trials/{trial.pk}")["trial"]["runnerState"] == "validating"


def test_a_trial_is_killed_by_its_owner(cast: Cast, running: Running) -> None:
    trial = running[0]
    assert cast.bob.refused("POST", f"trials/{trial.pk}/kill")[0] == 403
    cast.ada.post(f"trials/{trial.pk}/kill")
    assert cast.ada.get(f"trials/{trial.pk}")["trial"]["state"] == "STATE_STOPPING_KILLED"
    assert cast.ada.refused("POST", "trials/99999/kill")[0] == 404


def test_checkpoints_are_listed_with_their_metrics_and_sizes_as_text(cast: Cast, running: Running) -> None:
    trial, allocation, run = running
    report(run, trial, "validation", 5, loss=0.25)
    for steps, state in ((5, CheckpointState.COMPLETED), (6, CheckpointState.PARTIAL)):
        Checkpoint.objects.create(
            trial=trial, allocation_id=allocation.pk, state=state, steps_completed=steps, resources={"w.pt": 2**40},
            size_bytes=2**40, reported_at=trial.started_at,
        )  # fmt: skip
    rows = cast.vic.get(f"trials/{trial.pk}/checkpoints?sortByAttr=SORT_BY_BATCH_NUMBER")["checkpoints"]
    assert [row["state"] for row in rows] == ["STATE_COMPLETED", "STATE_ACTIVE"]
    assert rows[0]["resources"] == {"w.pt": str(2**40)}
    assert rows[0]["training"]["searcherMetric"] == 0.25
    listed = cast.vic.get(f"experiments/{trial.experiment_id}/checkpoints?states=STATE_COMPLETED")[
        "checkpoints"
    ]
    assert [row["uuid"] for row in listed] == [rows[0]["uuid"]]
    assert run.get(f"checkpoints/{rows[0]['uuid']}")["checkpoint"]["metadata"]["steps_completed"] == 5
    assert cast.vic.get(f"trials/{trial.pk}")["trial"]["totalCheckpointSize"] == str(2**41)
    assert cast.vic.refused("GET", f"checkpoints/{uuid.uuid4()}")[0] == 404
    assert cast.stranger.refused("GET", f"checkpoints/{rows[0]['uuid']}")[0] == 401


def test_a_run_reports_a_checkpoint_in_its_own_storage(cast: Cast, submit: Submit, host: Host) -> None:
    from jobs import transitions

    config = CONFIG + "checkpoint_storage: {type: shared_fs, host_path: /mnt/ckpt}\n"
    trial = Experiment.objects.get(pk=submit(config=config)["id"]).trials.get()
    slot = host.slots.get(index=0)
    allocation = assigned(
        task_id=trial.task_id, placement=[(host.pk, [slot.pk])], on_sufferance=False, actor="test"
    )
    run, name = Api(transitions.run_token(allocation)), str(uuid.uuid4())
    body = {
        "uuid": name,
        "resources": {"a": "3"},
        "metadata": {"steps_completed": 4},
        "state": "STATE_COMPLETED",
    }
    run.post("checkpoints", body)
    run.post("checkpoints", body)
    assert run.get(f"checkpoints/{name}")["checkpoint"]["state"] == "STATE_COMPLETED"
    assert Trial.objects.get(pk=trial.pk).latest_checkpoint_id == uuid.UUID(name)
    assert cast.ada.refused("POST", "checkpoints", body)[0] == 403
    later = str(uuid.uuid4())
    run.post("checkpoints", {**body, "uuid": later, "metadata": {"steps_completed": 8}})
    gone = {"checkpoints": [{"uuid": name, "resources": {"resources": {}}}]}
    other = Experiment.objects.get(pk=submit(config=config)["id"]).trials.get()
    Checkpoint.objects.filter(pk=name).update(trial=other)
    assert run.refused("PATCH", "checkpoints", gone)[0] == 404, "it is of another experiment"
    Checkpoint.objects.filter(pk=name).update(trial=trial)
    run.patch("checkpoints", gone)
    assert run.get(f"checkpoints/{name}")["checkpoint"]["state"] == "STATE_DELETED"


def test_tasks_show_what_holds_slots_and_all_attempts(cast: Cast, running: Running) -> None:
    trial, allocation, _ = running
    summary = cast.vic.get("tasks")["allocationIdToSummary"][allocation.pk]
    assert (summary["slotsNeeded"], summary["resourcePool"]) == (1, "default")
    assert list(summary["resources"][0]["agentDevices"]) == ["gpu1"]
    task = cast.vic.get(f"tasks/{trial.task_id}")["task"]
    assert task["taskType"] == "TASK_TYPE_TRIAL"
    assert task["allocations"][0]["state"] == "STATE_STARTING"
    assert cast.vic.refused("GET", "tasks/none")[0] == 404
    assert cast.vic.get("tasks/count") == {"commands": 0, "notebooks": 0, "shells": 0, "tensorboards": 0}
    assert cast.stranger.refused("GET", "tasks")[0] == 401


REPORTS: list[tuple[str, Json, str]] = [
    ("trials/{}/metrics", {"group": "validation", "metrics": {"stepsCompleted": 1, "metrics": {"avgMetrics": {}}}},
     "metrics_reported"),
    ("trials/{}/progress", {"progress": 0.5}, "progress_reported"),
    ("trials/{}/early_exit", {"reason": "INVALID_HP"}, "early_exit_reported"),
    ("trials/{}/runner/metadata", {"state": "idle"}, "state_reported"),
    ("runs/{}/metadata", {"metadata": {"lr": 1}}, "metadata_changed"),
]  # fmt: skip


@pytest.mark.parametrize(("address", "body", "what"), REPORTS)
def test_what_a_person_reports_of_a_queued_trial_says_who(
    cast: Cast, running: Running, address: str, body: Json, what: str
) -> None:
    trial, _, run = running
    told = Event.objects.filter(reason=what)
    run.post(address.format(trial.pk), body)
    assert not told.exists(), "a run reports of itself"
    Trial.objects.filter(pk=trial.pk).update(early_exit="")
    cast.ada.post(address.format(trial.pk), body)
    event = told.get()
    assert (event.actor, event.origin, event.subject) == ("user:ada", "127.0.0.1", str(trial.pk))
