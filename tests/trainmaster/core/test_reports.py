"""What training code reports, and what it can know."""

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trainmaster as det
from tests.trainmaster.made_run import Ranks, environment_of, make_run, records
from trainmaster import core
from trainmaster._info import read_server_address


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = make_run(tmp_path / "run")
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(folder))
    yield folder


@pytest.fixture
def off_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINMASTER_RUN_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def test_the_cluster_info_describes_task_gang_and_trial(run: Path) -> None:
    info = det.get_cluster_info()
    assert info is not None
    assert (info.task_type, info.allocation_id, info.agent_id) == ("TRIAL", "7.t.1", "gpu0")
    assert (info.slot_ids, info.container_addrs, info.container_rank) == ([0], ["127.0.0.1"], 0)
    assert (info.trial.trial_id, info.trial.experiment_id, info.trial.trial_seed) == (11, 7, 5)
    assert info.trial.hparams == {"lr": 0.1}
    assert info.latest_checkpoint is None
    assert "run-token" not in repr(info)


def test_the_servers_own_certificate_is_named(run: Path) -> None:
    info = det.get_cluster_info()
    assert info is not None and (info.master_cert_file, info.master_cert_name) == (None, None)
    other = make_run(run.parent / "tls")
    address = {"urls": [], "cert_sha256": "ab", "cert_pem": "-----BEGIN", "cert_name": "localhost"}
    (other / "server.json").write_text(json.dumps(address))
    own = det.ClusterInfo(
        json.loads((other / "spec.json").read_text()), read_server_address(str(other)), str(other)
    )
    assert (own.master_cert_file, own.master_cert_name) == (str(other / "server.pem"), "localhost")


def test_a_task_that_is_no_trial_has_no_trial_information(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", task_type="COMMAND", trial=None)
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(run))
    info = det.get_cluster_info()
    assert info is not None
    with pytest.raises(RuntimeError, match="COMMAND"):
        _ = info.trial


def test_metrics_keep_nan_by_name_and_lose_what_json_cannot_hold(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with core.init() as context:
        metrics = {"a": float("nan"), "b": float("-inf"), "c": b"bytes", "d": {"e": [1, 2.5]}, "f": True}
        context.train.report_training_metrics(5, metrics, batch_metrics=[{"a": float("inf")}])
        context.train.report_validation_metrics(steps_completed=5, metrics={"loss": 0.5})
        context.train.report_metrics("inference", 6, {"n": 1})
    kept = {"a": "NaN", "b": "-Infinity", "d": {"e": [1, 2.5]}, "f": True}
    training, validation, inference = records(run)
    assert training.pop("t") > 0
    assert training == {
        "type": "metrics",
        "group": "training",
        "steps_completed": 5,
        "run_id": 3,
        "metrics": kept,
        "batch_metrics": [{"a": "Infinity"}],
    }
    assert (validation["group"], inference["group"]) == ("validation", "inference")
    assert "'c' is a bytes and is skipped" in caplog.text


def test_numpy_values_are_numbers(run: Path) -> None:
    numpy = pytest.importorskip("numpy")
    with core.init() as context:
        metrics = {"a": numpy.float32(0.5), "b": numpy.int64(3), "c": numpy.array([1, 2])}
        context.train.report_training_metrics(numpy.int64(5), metrics)
    assert records(run)[0]["metrics"] == {"a": 0.5, "b": 3, "c": [1, 2]}


def test_wrong_reports_are_refused_with_a_sentence(run: Path) -> None:
    with core.init() as context:
        with pytest.raises(RuntimeError, match="loss"):
            context.train.report_validation_metrics(1, {"loss": None})
        with pytest.raises(ValueError, match="between 0 and 1"):
            context.train.report_progress(1.5)
        with pytest.raises(ValueError, match="without"):
            context.train.report_metrics("a.b", 1, {"x": 1})
        with pytest.raises(ValueError, match="whole number"):
            context.train.report_training_metrics("ten", {"x": 1})  # type: ignore[arg-type]
    assert records(run) == []


def test_what_cannot_be_kept_is_named_once_and_the_training_goes_on(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    endless: list[Any] = []
    endless.append(endless)
    odd = {"n" * 10_000: 1, "endless": endless, "huge": 10**5000, "sock": {"a": [{1, 2}]}}
    with core.init() as context:
        for step in (1, 2):
            context.train.report_training_metrics(step, {**odd, "bad\0text": "x\ud800", "loss": 1.0})
        context.train.report_training_metrics(2, {"loss": 2.0, "lr": 0.1})
        context.train.report_training_metrics(2, {"loss": 3.0})
        with pytest.raises(ValueError, match="129 characters, allowed: 128"):
            context.train.report_metrics("g" * 129, 1, {"x": 1})
        with pytest.raises(ValueError, match=r"5\.0 MiB as JSON, allowed: 4\.0 MiB"):
            context.train.set_metadata({"blob": "x" * 5 * 2**20})
        with pytest.raises(ValueError, match="must be a dict"):
            context.train.set_metadata(["x"])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="contains itself"):
            context.train.set_metadata({"x": endless})
        context.train.report_training_metrics(3, {"text": "y" * 17 * 2**20})
    kept = {"bad\ufffdtext": "x\ufffd", "loss": 1.0}
    assert [record["metrics"] for record in records(run)] == [
        kept, kept, {"loss": 2.0, "lr": 0.1}, {"loss": 3.0},
    ]  # fmt: skip
    said = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    assert len(said) == 6, said
    for words in (
        "name of 10000 characters",
        "contains itself",
        "whole number of 16610 bits",
        "a dict with a set in it",
        "loss of training at step 2 was already reported with another value",
        "record of 17.0 MiB is dropped",
    ):
        assert any(words in sentence for sentence in said), (words, said)


def test_reports_of_other_ranks_are_kept_with_a_warning(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", slots=2)
    program = """
        import logging; logging.basicConfig()
        with det.core.init(distributed=distributed()) as context:
            for step in (1, 2):
                context.train.report_training_metrics(step, {"loss": rank})
    """
    with Ranks(program, [run], 2) as ranks:
        (_, _, quiet), (code, _, warned) = ranks.results()
    assert code == 0 and [record["metrics"] for record in records(run, 1)] == [{"loss": 1}] * 2
    assert warned.count("Rank 1 reports metrics") == 1 and "reports metrics" not in quiet


def test_metadata_come_back_as_they_were_set_and_a_used_checkpoint_is_reported(run: Path) -> None:
    with core.init() as context:
        assert context.train.set_metadata({"git": "abc"}) == {"git": "abc"}
        assert context.train.get_metadata() == {"git": "abc"}  # the server may not have them yet
        context.experimental.report_task_using_checkpoint("a-b-c")
        with pytest.raises(ValueError, match="not a model version"):
            context.experimental.report_task_using_model_version(object())
    assert records(run)[-1] == {"type": "uses_checkpoint", "uuid": "a-b-c"}


def test_a_program_that_hangs_shows_its_stacks(run: Path) -> None:
    program = (
        "import determined as det, sys\nwith det.core.init():\n    print(flush=True)\n    sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment_of(run), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdout.readline() == "\n"
        process.send_signal(signal.SIGUSR1)
        assert process.stderr is not None
        shown = [process.stderr.readline() for _ in range(2)]
        process.communicate(timeout=60)
    assert "most recent call first" in shown[0] and 'File "<string>", line ' in shown[1], shown
    assert process.returncode == 0


def test_status_progress_metadata_and_the_first_early_exit_are_recorded(run: Path) -> None:
    with core.init() as context:
        context.train.set_status("loading")
        context.train.report_progress(0.25)
        context.train.set_metadata({"git": "abc"})
        context.train.report_early_exit(core.EarlyExitReason.USER_REQUESTED_STOP)
        context.train.report_early_exit(core.EarlyExitReason.INVALID_HP)
    assert records(run) == [
        {"type": "status", "text": "loading"},
        {"type": "progress", "progress": 0.25},
        {"type": "metadata", "metadata": {"git": "abc"}},
        {"type": "early_exit", "reason": "USER_REQUESTED_STOP"},
    ]


@pytest.mark.survive(9)
def test_a_full_disk_costs_the_report_and_not_the_training(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (run / "spool" / "core.rank0.jsonl").symlink_to("/dev/full")
    with core.init() as context:
        for step in range(1, 101):
            context.train.report_training_metrics(step, {"loss": 1.0})
    first, last = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    assert "No space left" in first and "100 of this rank's records were lost" in last


def test_several_slots_need_a_distributed_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(make_run(tmp_path / "run", slots=2)))
    with pytest.raises(ValueError, match="2 slots"):
        core.init()


def test_rank_values_are_given_all_or_none_and_several_hosts_need_the_chiefs_address() -> None:
    with pytest.raises(ValueError, match="all of rank"):
        core.DistributedContext(rank=0, size=1)
    with pytest.raises(ValueError, match="from 0 to 1"):
        core.DistributedContext(rank=2, size=2, local_rank=0, local_size=2, cross_rank=0, cross_size=1)
    with pytest.raises(AssertionError):
        core.DistributedContext(rank=0, size=2, local_rank=0, local_size=1, cross_rank=0, cross_size=2)


def test_should_preempt_needs_a_started_context_and_auto_ack_can_be_off(run: Path) -> None:
    context = core.init()
    with pytest.raises(RuntimeError, match="before the context was started"):
        context.preempt.should_preempt()
    with context:
        assert not context.preempt.should_preempt()
        (run / "control" / "preempt.json").write_text('{"reason": "pause"}')
        assert context.preempt.should_preempt(auto_ack=False)
        assert records(run) == [{"type": "preempt_asked"}]
        context.preempt.acknowledge_preemption_signal()
    assert records(run) == [{"type": "preempt_asked"}, {"type": "preempt_ack"}]


def test_the_searchers_loop_runs_once_up_to_max_length(run: Path) -> None:
    with core.init() as context:
        assert context.searcher.get_configured_units() is core.Unit.BATCHES
        lengths = []
        for op in context.searcher.operations():
            lengths.append(op.length)
            op.report_progress(20)
            op.report_completed(0.5)
            with pytest.raises(RuntimeError, match="completed"):
                op.report_completed(0.5)
        assert lengths == [40]
        with pytest.raises(RuntimeError, match="report_completed"):
            list(context.searcher.operations())
    assert [record["progress"] for record in records(run)] == [0.5, 1.0]


def test_invalid_hyperparameters_end_the_trial_without_an_error(run: Path) -> None:
    program = "import determined as det\nwith det.core.init():\n    raise det.InvalidHP('too deep')"
    done = subprocess.run([sys.executable, "-c", program], env=environment_of(run), check=False, timeout=60)
    assert done.returncode == 0
    assert records(run) == [{"type": "early_exit", "reason": "INVALID_HP"}]


def test_a_script_runs_unchanged_off_the_cluster(
    off_cluster: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert det.get_cluster_info() is None
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
        assert not context.preempt.should_preempt()
        with context.checkpoint.store_path() as (folder, uuid):
            (folder / "state").write_text("s")
        with context.checkpoint.restore_path(uuid) as folder:
            assert (folder / "state").read_text() == "s"
        assert context.distributed.allgather(3) == [3]
        context.train.report_progress(0.5)
        context.train.set_status("warming up")
        context.train.report_early_exit(core.EarlyExitReason.USER_REQUESTED_STOP)
        for operation in context.searcher.operations():
            operation.report_progress(1)
            operation.report_completed(0.25)
        context.checkpoint.delete(uuid)
    said = [record.getMessage() for record in caplog.records if record.name == "determined.core"]
    saved = said.pop(1)
    assert saved.startswith(f"saved checkpoint {uuid} — ")
    assert said == [
        "report_training_metrics(steps_completed=1, metrics={'loss': 1.0})",
        "report_progress with progress=0.5",
        "status: warming up",
        "report_early_exit(EarlyExitReason.USER_REQUESTED_STOP)",
        "progress report: 1/1",
        "SearcherOperation Complete: searcher_metric=0.25 — length 1",
        f"deleted checkpoint {uuid}",
    ]
    ours = [record.getMessage() for record in caplog.records if record.name == "trainmaster.core"]
    assert ours == ["Outside the cluster: metrics and progress are only logged."], "no report is logged twice"


def test_reports_are_logged_as_determined_does(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="determined")
    with core.init() as context:
        context.train.report_training_metrics(3, {"loss": 0.5})
        context.train.report_metrics("inference", 4, {"x": 1})
    logged = [
        (record.name, record.getMessage()) for record in caplog.records if record.name == "determined.core"
    ]
    assert logged == [
        ("determined.core", "report_training_metrics(steps_completed=3, metrics={'loss': 0.5})"),
        ("determined.core", "report_metrics(group=inference, steps_completed=4, metrics={'x': 1})"),
    ]


def test_the_level_of_determined_applies_to_all_that_the_sdk_says(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="determined")
    ours = logging.getLogger("trainmaster.core")
    with core.init() as context:
        context.train.report_progress(0.5)
    assert [(record.name, record.levelname, record.getMessage()) for record in caplog.records] == [
        ("determined.core", "DEBUG", "report_progress with progress=0.5")
    ]
    assert ours.isEnabledFor(logging.DEBUG)
    caplog.set_level(logging.ERROR, logger="determined")
    assert not ours.isEnabledFor(logging.WARNING)
