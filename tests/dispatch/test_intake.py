"""What runners ship, applied once: lines, reports, states and the end, in one transaction with the offset."""

import json
import random
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.refusals import Refusal
from dispatch.passes import pool_pass
from dispatch.runs import heartbeats, intake, reconcile, settle, uploads
from experiments import metric_reports, search
from experiments.models import Checkpoint, Experiment
from experiments.states import CheckpointState, ExperimentState, TrialState
from hosts.models import Host
from jobs import transitions
from jobs.models import Member, Task
from jobs.states import AllocationState, MemberState, Reason, TaskState
from logs import read, streams
from logs import store as log_store
from metrics import reported, samples
from shown import verdicts
from tests.rig.world import attempt_of, make_host, members_of, submit_experiment, trial_of
from trainmaster.runner.records import core_record
from trainmaster.runner.reports import Reports

pytestmark = pytest.mark.django_db
CHECKPOINT = "6f2b7c1e-0000-4000-8000-000000000009"


def started(slots: int = 1, name: str = "gpu1") -> tuple[Experiment, Member]:
    make_host(name, slots)
    experiment = submit_experiment(slots=slots)
    pool_pass.run(experiment.job.pool_id)
    return experiment, members_of(experiment)[0]


def batch(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def log(text: str, rank: int | None = 0) -> dict[str, Any]:
    return {"k": "log", "f": "rank0.stdout", "e": 1, "t": 1.0, "r": rank, "s": "stdout", "l": None, "m": text}


def core(kind: str, **fields: Any) -> dict[str, Any]:
    return {"k": "core", "f": "core.rank0.jsonl", "e": 1, "d": {"type": kind, **fields}}


def test_a_run_from_its_first_record_to_its_last() -> None:
    experiment, member = started()
    body = batch(
        {"k": "state", "t": 1.0, "state": "running"},
        log("line 1"),
        core("metrics", group="validation", steps_completed=5, metrics={"loss": 0.5}, t=1.0),
        core("progress", progress=0.5),
        {"k": "exit", "t": 2.0, "code": 0, "signal": None, "stopped": False, "first_failure": None},
    )
    assert intake.store(member.pk, 0, body).offset == len(body)
    experiment.refresh_from_db()
    trial = trial_of(experiment)
    assert experiment.state == ExperimentState.COMPLETED and experiment.best_metric == 0.5
    assert trial.steps_completed == 5
    assert [report.values for report in reported.read([trial.pk])] == [{"loss": 0.5}]
    assert "line 1" in [line.text for line in read.forward(trial.task_id).lines]


def columns(group: str, steps: range, value: float = 0.5) -> dict[str, Any]:
    at = [float(step) for step in steps]
    table = {
        "group": group,
        "run_id": 1,
        "steps": list(steps),
        "times": at,
        "values": {"loss": [value] * len(at)},
    }
    return {"k": "reports", "f": "core.rank0.jsonl", "e": 1, "d": [table]}


def test_columns_of_metrics_are_stored_and_their_validations_reach_the_searcher() -> None:
    experiment, member = started()
    body = batch(
        log("line 1"), columns("training", range(1, 9)), columns("validation", range(4, 9, 4), 0.25),
        core("metrics", group="training", steps_completed=9, metrics={"loss": 0.5}, t=1.0),
    )  # fmt: skip
    assert intake.store(member.pk, 0, body).offset == len(body)
    experiment.refresh_from_db()
    trial = trial_of(experiment)
    assert experiment.best_metric == 0.25 and trial.steps_completed == 9
    assert [report.steps_completed for report in reported.read([trial.pk], ["training"])] == list(
        range(1, 10)
    )
    assert trial.summary_metrics["avg_metrics"]["loss"]["count"] == 9


def written(seed: int) -> list[dict[str, Any]]:
    """Reports of three groups as a job may write them, of two runs, some twice and some late."""
    chance = random.Random(seed)
    found, step, run = [], 0, 1
    for _ in range(80):
        step, run = max(0, step + chance.choice([1, 1, 1, 2, 0, -2])), max(run, chance.choice([1] * 60 + [2]))
        names = chance.choice([["loss"], ["loss", "acc"], ["acc"], ["loss", "lr"]])
        values = {name: chance.choice([0.5, 0.25, 3, "NaN", chance.random()]) for name in names}
        group = chance.choice(["training", "validation", "validation", "system"])
        found.append({"type": "metrics", "group": group, "steps_completed": step, "metrics": values,
                      "run_id": run, "t": 1.79e9 + len(found)})  # fmt: skip
    return found


def as_shipped(reports: list[dict[str, Any]], most: int) -> bytes:
    """The records that a runner makes of reports that it reads together."""
    found: list[bytes | None] = []
    joined = Reports(most, 2**19)
    for end, each in enumerate(reports, 1):
        data = json.dumps(each).encode()
        if joined.take(each, data, end):
            continue
        found.append(joined.record("core.rank0.jsonl"))
        joined = Reports(most, 2**19)
        if not joined.take(each, data, end):
            found.append(core_record("core.rank0.jsonl", end, data))
    return b"".join(each for each in [*found, joined.record("core.rank0.jsonl")] if each)


def after(body: bytes, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a trial, its experiment and its search are after a batch."""
    told: list[Any] = []
    tells = search.validations_reported

    def tell(experiment: Experiment, trial: Any, validations: Any) -> None:
        told.extend(repr(each) for each in validations)
        tells(experiment, trial, validations)

    experiment, member = started(name=f"gpu{Host.objects.count() + 1}")
    with monkeypatch.context() as patched:
        patched.setattr(search, "validations_reported", tell)
        assert intake.store(member.pk, 0, body).offset == len(body)
    experiment.refresh_from_db()
    trial = trial_of(experiment)
    stored = [(each.group, each.steps_completed, repr(each.values)) for each in reported.read([trial.pk])]
    of_trial = [trial.steps_completed, trial.summary_metrics, trial.latest_validation, trial.best_validation]
    return [told, stored, *of_trial, trial.searcher_metric, experiment.best_metric, experiment.state]


@pytest.mark.parametrize("seed", range(4))
def test_reports_end_the_same_as_columns_and_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [as_shipped(written(seed), most) for most in (0, 1000)]
    assert bodies[0] != bodies[1]
    singly, joined = (after(body, monkeypatch) for body in bodies)
    assert singly[0] and singly == joined


def test_the_search_hears_of_validations_in_different_tables_in_the_order_of_their_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = columns("validation", range(1, 4, 2), 0.5)
    (other,) = columns("validation", range(2, 3), 0.25)["d"]
    other["values"]["acc"] = [0.1]
    record["d"].append(other)
    told = after(batch(record), monkeypatch)[0]
    assert [text.split("steps_completed=")[1][0] for text in told] == ["1", "2", "3"]


@pytest.mark.parametrize("way", ["lines", "columns"])
def test_a_batch_that_was_read_before_its_attempt_ended_is_not_stored_after_it(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, member = started()
    parts = [
        batch(log(str(at)) | {"k": "lines"} if way == "lines" else columns("training", range(at, at + 3)))
        for at in (1000, 2000)
    ]
    intake.store(member.pk, 0, parts[0])
    owner, name = (log_store, "append_shipped") if way == "lines" else (metric_reports, "store_shipped")
    stores = getattr(owner, name)
    found = []

    def late(*args: Any) -> Any:
        settle.member_over(member.pk, reason=Reason.HOST_LOST)
        found.append(stores(*args))
        return found[0]

    monkeypatch.setattr(owner, name, late)
    with pytest.raises(intake.Over):
        intake.store(member.pk, len(parts[0]), parts[1])
    assert not found[0] and streams.stored(member.pk) == len(parts[0])


def test_a_batch_of_columns_takes_a_statement_to_look_and_one_to_store(
    django_assert_num_queries: Any,
) -> None:
    experiment, member = started()
    first = batch(columns("training", range(1000, 1004)))
    intake.store(member.pk, 0, first)
    intake.store(member.pk, len(first), batch(columns("training", range(1004, 1006))))
    stored = streams.stored(member.pk)
    body = batch(columns("training", range(1006, 1009)), columns("training", range(1010, 1012)))
    with django_assert_num_queries(2):
        assert intake.store(member.pk, stored, body).offset == stored + len(body)
    trial = trial_of(experiment)
    steps = [*range(1000, 1009), 1010, 1011]
    assert [report.steps_completed for report in reported.read([trial.pk])] == steps
    assert (trial.steps_completed, trial.summary_metrics["avg_metrics"]["loss"]["count"]) == (1011, 11)
    for offset in (0, stored):  # what comes again is known
        with pytest.raises(streams.OffsetConflict):
            intake.store(member.pk, offset, body)
    again = batch(columns("training", range(1005, 1013), 0.75))
    intake.store(member.pk, stored + len(body), again)
    values = {report.steps_completed: report.values["loss"] for report in reported.read([trial.pk])}
    assert values == {**dict.fromkeys(steps, 0.5), 1009: 0.75, 1012: 0.75}


def test_a_batch_counts_once() -> None:
    _, member = started()
    body = batch(log("once"))
    intake.store(member.pk, 0, body)
    with pytest.raises(streams.OffsetConflict) as conflict:
        intake.store(member.pk, 0, body)
    assert conflict.value.stored == len(body)
    assert [line.text for line in read.forward(member.allocation.task_id).lines].count("once") == 1


def test_a_report_that_cannot_be_applied_is_named_and_blocks_nothing() -> None:
    experiment, member = started()
    body = batch(
        core("checkpoint", uuid="no uuid"),
        core("metrics", group="training", steps_completed=1, metrics={"x": 1}),
    )
    intake.store(member.pk, 0, body)
    assert len(list(reported.read([trial_of(experiment).pk]))) == 1
    told = [line.text for line in read.forward(trial_of(experiment).task_id).lines]
    assert any("could not be stored" in text for text in told)


@pytest.mark.survive(32)
def test_a_checkpoint_in_server_storage_is_partial_until_it_is_uploaded() -> None:
    experiment, member = started()
    uuid = "6f2b7c1e-0000-4000-8000-000000000001"
    report = core(
        "checkpoint", uuid=uuid, steps_completed=7, resources={"a.txt": 3}, storage={"type": "server"}
    )
    intake.store(member.pk, 0, batch(report))
    checkpoint = Checkpoint.objects.get()
    assert checkpoint.state == CheckpointState.PARTIAL and checkpoint.steps_completed == 7
    assert trial_of(experiment).latest_checkpoint == checkpoint


@pytest.mark.parametrize("body", [b'{"k": "log"', b'{"k": "log"}\n{'])
def test_a_torn_batch_is_refused_with_a_sentence(body: bytes) -> None:
    _, member = started()
    with pytest.raises(Refusal):
        intake.store(member.pk, 0, body)
    assert streams.stored(member.pk) == 0


def ended(member: Member, offset: int = 0, code: int = 0) -> bytes:
    """The exit record, which is stored; its bytes."""
    body = batch(
        {"k": "exit", "t": 2.0, "code": code, "signal": None, "stopped": False, "first_failure": None}
    )
    intake.store(member.pk, offset, body)
    member.refresh_from_db()
    assert member.state == MemberState.ENDED
    return body


def test_a_late_runner_is_told_that_it_is_over() -> None:
    _, member = started()
    settle.member_over(member.pk, reason=Reason.HOST_LOST)
    for kind in ({"k": "state", "t": 1.0, "state": "running"}, log("too late")):
        with pytest.raises(intake.Over):
            intake.store(member.pk, 0, batch(kind))
    with pytest.raises(intake.Over):
        heartbeats.heartbeat(member.pk, {"state": "running"})


@pytest.mark.survive(42)
def test_a_repeat_of_the_last_batch_is_answered_with_what_is_stored() -> None:
    experiment, member = started()
    end = ended(member)
    assert attempt_of(experiment).state == AllocationState.TERMINATED
    assert intake.store(member.pk, 0, end).offset == len(end)
    with pytest.raises(intake.Over):
        intake.store(member.pk, len(end), batch(log("behind the exit record")))
    with pytest.raises(intake.Over):
        heartbeats.heartbeat(member.pk, {"state": "ended"})


@pytest.mark.survive(42)
def test_what_an_attempt_brings_after_its_end_was_told_is_taken_in() -> None:
    experiment, member = started()
    transitions.member_launched(member.pk, boot_id="boot")
    member.refresh_from_db()
    drained = {"state": "ended", "exit": {"code": 0, "ended_at": 1.0}, "finished": False}
    rest = batch(
        *(log(f"line {number}") for number in range(3)),
        core("metrics", group="validation", steps_completed=9, metrics={"loss": 0.25}, t=1.0),
        core("checkpoint", uuid=CHECKPOINT, steps_completed=9, resources={"w": 3}, storage="server"),
        {"k": "exit", "t": 2.0, "code": 0, "signal": None, "stopped": False, "first_failure": None},
    )
    told = {
        **drained,
        "unshipped_bytes": len(rest),
        "outbox_bytes": len(rest),
        "refused": "no",
        "finished": True,
    }
    reconcile._settle(member, told, "boot", None)
    trial = trial_of(experiment)
    assert trial.state == TrialState.COMPLETED and verdicts.missing_bytes(trial.task_id) == len(rest)
    assert intake.store(member.pk, 0, rest).offset == len(rest)
    trial = trial_of(experiment)
    assert verdicts.missing_bytes(trial.task_id) == 0
    assert trial.steps_completed == 9 and trial.searcher_metric == 0.25
    assert trial.latest_checkpoint and str(trial.latest_checkpoint.pk) == CHECKPOINT
    said = [line.text for line in read.forward(trial.task_id).lines]
    assert [text for text in said if text.startswith("line ")] == ["line 0", "line 1", "line 2"]
    experiment.refresh_from_db()
    assert experiment.best_metric == 0.25 and experiment.state == ExperimentState.COMPLETED


@pytest.mark.survive(42)
def test_once_its_task_has_a_newer_attempt_the_rest_is_refused_and_the_repeat_is_not() -> None:
    experiment, member = started()
    first = batch(log("before the end"))
    intake.store(member.pk, 0, first)
    settle.member_exited(member.pk, code=1, signal=None, ended_at=None, first_failure=None)
    assert trial_of(experiment).task.state == TaskState.WAITING
    second = batch(log("between the attempts"))
    with pytest.raises(streams.OffsetConflict) as conflict:
        intake.store(member.pk, 0, first + second)
    assert conflict.value.stored == len(first)
    intake.store(member.pk, len(first), second)
    Task.objects.update(not_before=None)
    pool_pass.run(experiment.job.pool_id)
    assert attempt_of(experiment).number == member.allocation.number + 1
    with pytest.raises(intake.Over):
        intake.store(member.pk, streams.stored(member.pk), batch(log("too late")))
    assert intake.store(member.pk, 0, first).offset == len(first + second)


@pytest.mark.survive(42)
def test_a_drain_is_waited_for_as_long_as_bytes_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment, member = started()
    transitions.member_launched(member.pk, boot_id="boot")
    long_ago = timezone.now() - timedelta(hours=1)
    run = {"state": "ended", "exit": {"code": 0, "ended_at": long_ago.timestamp()}, "finished": False}
    run |= {"unshipped_bytes": 10_000, "outbox_bytes": 10_000}

    def sweep() -> MemberState:
        member.refresh_from_db()
        monkeypatch.setitem(reconcile._seen_ended, member.pk, -1e9)  # known for longer than any limit
        reconcile._settle(member, run, "boot", None)
        member.refresh_from_db()
        return MemberState(member.state)

    for number in range(3):
        Member.objects.filter(pk=member.pk).update(heartbeat_at=long_ago)
        intake.store(member.pk, streams.stored(member.pk), batch(log(f"line {number}")))
        assert sweep() == MemberState.RUNNING, "bytes have just arrived"
    Member.objects.filter(pk=member.pk).update(heartbeat_at=long_ago)
    assert sweep() == MemberState.ENDED, "nothing moves any more"
    missing = 10_000 - streams.stored(member.pk)
    assert verdicts.missing_bytes(trial_of(experiment).task_id) == missing
    assert list(uploads.awaited()) == [member], "its runner is still asked for the rest"


@pytest.mark.survive(43)
@pytest.mark.parametrize("title", ["a\x00b", "a\ud800b"])
def test_an_alert_that_the_database_refuses_costs_nothing_of_its_batch(title: str) -> None:
    experiment, member = started()
    body = batch(
        {"k": "state", "t": 1.0, "state": "running"},
        log("precious line"),
        core("metrics", group="training", steps_completed=1, metrics={"x": 1}, t=1.0),
        core("alert", title=title),
        {"k": "exit", "t": 2.0, "code": 0, "signal": None, "stopped": False, "first_failure": None},
    )
    assert intake.store(member.pk, 0, body).offset == len(body)
    experiment.refresh_from_db()
    trial = trial_of(experiment)
    lines = [line.text for line in read.forward(trial.task_id).lines]
    assert experiment.state == ExperimentState.COMPLETED and len(list(reported.read([trial.pk]))) == 1
    assert "precious line" in lines and "Alert: a\ufffdb" in lines


@pytest.mark.survive(43)
def test_a_report_that_is_no_object_blocks_nothing() -> None:
    experiment, member = started()
    odd = {"k": "core", "f": "core.rank0.jsonl", "e": 1, "d": [1]}
    body = batch(odd, core("metrics", group="training", steps_completed=1, metrics={"x": 1}))
    assert intake.store(member.pk, 0, body).offset == len(body)
    assert len(list(reported.read([trial_of(experiment).pk]))) == 1


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "a/../b"])
def test_a_checkpoint_names_no_file_outside_of_its_folder(path: str) -> None:
    _, member = started()
    report = core(
        "checkpoint", uuid="6f2b7c1e-0000-4000-8000-000000000002", resources={path: 3}, storage="server"
    )
    intake.store(member.pk, 0, batch(report))
    assert not Checkpoint.objects.exists()


def test_samples_are_stored_once_beside_lines_and_end_with_the_run() -> None:
    _, member = started()
    sampled = {"k": "samples", "t": [1.0, 2.0], "v": {"cpu_util_simple": [10, 20], "of_tomorrow": [1, 2]}}
    body = batch(log("a line"), sampled, {"k": "samples", "t": "odd", "v": None})
    intake.store(member.pk, 0, body)
    with pytest.raises(streams.OffsetConflict):
        intake.store(member.pk, 0, body)
    more = batch(sampled | {"t": [3.0, 4.0]})
    assert intake.store(member.pk, len(body), more).offset == len(body) + len(more)
    (series,) = samples.of_task(member.allocation.task_id)
    assert (series.host, series.name, series.mean.tolist()) == (
        member.host.name,
        "cpu_util_simple",
        [10, 20, 10, 20],
    )


def test_validations_of_a_batch_reach_the_searcher_in_order_among_other_records() -> None:
    experiment, member = started()
    uuid = "6f2b7c1e-0000-4000-8000-000000000003"
    checkpoint = core("checkpoint", uuid=uuid, steps_completed=2, resources={}, storage={"type": "shared_fs"})
    training = [
        core("metrics", group="training", steps_completed=n, metrics={"loss": n}) for n in range(1, 5)
    ]
    validation = [
        core("metrics", group="validation", steps_completed=n, metrics={"loss": loss})
        for n, loss in ((2, 0.5), (4, 0.25))
    ]
    body = batch(*training[:2], validation[0], checkpoint, *training[2:], validation[1], validation[1])
    intake.store(member.pk, 0, body)
    trial = trial_of(experiment)
    experiment.refresh_from_db()
    assert experiment.best_metric == 0.25 and (trial.best_validation or {})["steps_completed"] == 4
    assert trial.searcher_metric == 0.25 and trial.latest_checkpoint_id is not None
    losses = trial.summary_metrics["avg_metrics"]["loss"]
    expected = {"type": "number", "count": 4, "sum": 10, "mean": 2.5, "min": 1, "max": 4, "last": 4}
    assert losses.items() >= expected.items()
    assert trial.summary_metrics["validation_metrics"]["loss"]["count"] == 2


def test_a_report_that_is_sent_again_counts_once_and_changes_no_best_value() -> None:
    experiment, member = started()
    first = core("metrics", group="validation", steps_completed=2, metrics={"loss": 0.5})
    better = core("metrics", group="validation", steps_completed=2, metrics={"loss": 0.1})
    body = batch(first)
    intake.store(member.pk, 0, body)
    intake.store(member.pk, len(body), batch(first, better))
    trial = trial_of(experiment)
    assert trial.summary_metrics["validation_metrics"]["loss"]["count"] == 1
    assert (trial.best_validation or {})["searcher_metric"] == 0.5 and trial.searcher_metric == 0.5


def test_what_cannot_be_read_among_metrics_is_named_and_the_others_are_stored() -> None:
    experiment, member = started()
    odd = [
        core("metrics", group="training", steps_completed=-1, metrics={"x": 1}),
        core("metrics", group="training", steps_completed="many", metrics={"x": 1}),
        core("metrics", group="training", steps_completed=1, metrics=[1]),
        core("metrics", group="training", steps_completed=2, metrics={"x": 1}, t=1e300),
    ]
    intake.store(
        member.pk, 0, batch(*odd, core("metrics", group="training", steps_completed=3, metrics={"x": 1}))
    )
    trial = trial_of(experiment)
    assert [report.steps_completed for report in reported.read([trial.pk])] == [2, 3]
    told = [line.text for line in read.forward(trial.task_id).lines]
    assert sum("could not be stored" in text for text in told) == 3


def test_a_batch_of_metrics_goes_on_from_what_the_trial_has(caplog: pytest.LogCaptureFixture) -> None:
    experiment, member = started()
    offset = 0
    for step, loss in ((1, 0.5), (2, 0.25), (3, 0.75)):
        body = batch(
            core("metrics", group="training", steps_completed=step, metrics={"x": step}),
            core("metrics", group="validation", steps_completed=step, metrics={"loss": loss}),
        )
        offset = intake.store(member.pk, offset, body).offset
    assert not caplog.records, "nothing had to be stored alone"
    trial = trial_of(experiment)
    experiment.refresh_from_db()
    assert (experiment.best_trial_id, experiment.best_metric) == (trial.pk, 0.25)
    assert (trial.steps_completed, trial.searcher_metric) == (3, 0.75)
    rows: list[Any] = [trial.best_validation, trial.latest_validation]
    assert [row and row["steps_completed"] for row in rows] == [2, 3]
    summary: Any = trial.summary_metrics
    assert (summary["avg_metrics"]["x"]["count"], summary["validation_metrics"]["loss"]["sum"]) == (3, 1.5)


@pytest.mark.survive(43)
@pytest.mark.parametrize("depth", [500, 1500, 100_000])
def test_a_record_that_is_nested_too_deep_is_named_in_the_log_and_blocks_nothing(depth: int) -> None:
    experiment, member = started()
    deep = b'{"k":"core","f":"core.rank0.jsonl","e":1,"d":{"type":"metadata","metadata":{"a":%s}}}\n'
    body = deep % (b"[" * depth + b"]" * depth) + batch(core("progress", progress=0.5), log("after it"))
    assert intake.store(member.pk, 0, body).offset == len(body)
    trial = trial_of(experiment)
    assert trial.progress == 0.5 and trial.metadata == {}
    said = [line.text for line in read.forward(trial.task_id).lines]
    assert "after it" in said and any("nested deeper than 100 levels" in text for text in said)
