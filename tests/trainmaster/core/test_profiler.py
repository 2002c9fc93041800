"""Timings: what is recorded of them, when, and how true the quantiles are."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainmaster.made_run import environment_of, make_run, records
from trainmaster import core
from trainmaster.core._timings import Durations
from trainmaster.runner.records import timings_record

Open = Callable[..., core.Context]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """A context of a run whose config has these fields of `profiling`."""

    def open_(**profiling: Any) -> core.Context:
        trial = {"trial_id": 1, "experiment_id": 1, "trial_seed": 1, "hparams": {}, "run_id": 1,
                 "config": {"profiling": profiling}, "steps_completed": 0, "latest_checkpoint": None}  # fmt: skip
        monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(make_run(tmp_path / "run", trial=trial)))
        return core.init()

    return open_


def timings(tmp_path: Path) -> list[dict[str, Any]]:
    return [record for record in records(tmp_path / "run") if record["type"] == "timings"]


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=3000))
def test_sums_and_extremes_are_exact_and_quantiles_within_a_hundred_and_twenty_eighth(
    values: list[float],
) -> None:
    kept = Durations()
    for number, value in enumerate(values):
        kept.pending.append(value)
        if number % 700 == 0:
            kept.fold()
    said = kept.summary()
    ordered = sorted(values)
    assert said["n"] == len(values)
    assert said["sum"] == pytest.approx(sum(values), abs=1e-9)
    assert (said["min"], said["max"]) == (round(ordered[0], 9), round(ordered[-1], 9))
    for name, part in (("p50", 50), ("p95", 95)):
        true = ordered[-(-part * len(values) // 100) - 1]
        assert abs(said[name] - true) <= true / 128 + 1e-9  # summaries are rounded to the nanosecond
    assert kept.summary() == {}


def test_timings_counts_and_steps_become_one_record(opened: Open, tmp_path: Path) -> None:
    with opened() as context:
        profiler = context.profiler
        for batch in range(1, 4):
            with profiler.step(batch):
                with profiler.timing("train_batch"), profiler.timing("train_batch.backward"):
                    pass
                profiler.count("samples", 32)
        with profiler.timing("validate"):
            pass
    (record,) = timings(tmp_path)
    assert record["r"] == 0 and record["s"] == [1, 3] and record["t"][0] <= record["t"][1]
    assert record["c"] == {"samples": 96}
    assert {name: values["n"] for name, values in record["v"].items()} == {
        "step": 3, "step.work": 3, "train_batch": 3, "train_batch.backward": 3, "validate": 1,
    }  # fmt: skip
    assert record["v"]["train_batch.backward"]["sum"] <= record["v"]["train_batch"]["sum"]
    line = json.loads(timings_record("core.rank0.jsonl", 9, record))
    assert (line["k"], line["f"], line["e"]) == ("timings", "core.rank0.jsonl", 9)
    assert (line["r"], line["v"]) == (0, record["v"]) and "type" not in line
    sign = json.loads((tmp_path / "run" / "spool" / "sign.rank0").read_text())
    assert sign["step"] == 3


def test_waiting_for_peers_is_no_work_however_it_is_nested(opened: Open, tmp_path: Path) -> None:
    with opened() as context:
        profiler, sign = context.profiler, context.distributed._sign
        wait = threading.Event()
        with profiler.step(1), profiler.timing("backward", waits=True), sign.collective():
            wait.wait(0.05)
        with profiler.step(2), sign.collective():
            wait.wait(0.05)
    (record,) = timings(tmp_path)
    step, work = record["v"]["step"], record["v"]["step.work"]
    assert step["min"] >= 0.05
    assert work["max"] < 0.05


def test_steps_are_known_from_reports_too(opened: Open, tmp_path: Path) -> None:
    with opened() as context:
        for batch in (1, 2):
            with context.profiler.timing("train_batch"):
                pass
            context.train.report_training_metrics(batch, {"loss": 1.0})
    (record,) = timings(tmp_path)
    assert record["s"] == [0, 2]


def test_reports_that_count_otherwise_move_no_step_back(opened: Open, tmp_path: Path) -> None:
    with opened() as context:
        for reports in (True, False):
            if not reports:
                context.profiler.step(150)
            with context.profiler.timing("train_batch"):
                pass
            context.train.report_training_metrics(100, {"loss": 1.0})
            context.train.report_metrics("epochs", 1, {"loss": 1.0})
            context.profiler.flush()
    assert [record["s"] for record in timings(tmp_path)] == [[0, 100], [150, 150]]


def test_beyond_two_hundred_names_steps_are_still_timed(opened: Open, tmp_path: Path) -> None:
    with opened() as context:
        for number in range(300):
            with context.profiler.timing(f"x{number}"):
                pass
        with context.profiler.step(1):
            pass
    (record,) = timings(tmp_path)
    assert len(record["v"]) == 200 and record["v"]["step"]["n"] == 1


def test_only_the_batches_of_the_config_are_timed(opened: Open, tmp_path: Path) -> None:
    with opened(enabled=True, begin_on_batch=2, end_after_batch=3) as context:
        for batch in range(6):
            with context.profiler.step(batch), context.profiler.timing("train_batch"):
                context.profiler.count("samples")
    (record,) = timings(tmp_path)
    assert record["s"] == [2, 3] and record["v"]["train_batch"]["n"] == 2 and record["c"] == {"samples": 2}


def test_off_pauses_and_on_goes_on(opened: Open, tmp_path: Path) -> None:
    with opened() as context:
        profiler = context.profiler
        for name in ("before", "between", "after"):
            if name == "between":
                profiler.off()
            elif name == "after":
                profiler.on(sampling_interval=0.1, samples_per_report=1)
            with profiler.timing(name):
                profiler.count(name)
    assert [list(record["v"]) for record in timings(tmp_path)] == [["before"], ["after"]]


def test_wrong_arguments_are_refused_with_a_sentence(opened: Open, tmp_path: Path) -> None:
    with opened() as context:
        profiler = context.profiler
        wrong: Any
        for wrong in (0.05, float("nan"), "1", True):
            with pytest.raises(ValueError, match=r"0\.1 seconds or more"):
                profiler.on(sampling_interval=wrong)
        for wrong in (0, 1.5, True):
            with pytest.raises(ValueError, match="whole number, 1 or more"):
                profiler.on(samples_per_report=wrong)
        for wrong in (-1, 1.5, True):
            with pytest.raises(ValueError, match="whole number, 0 or more"):
                profiler.step(wrong)
        with pytest.raises(ValueError, match="1 to 128 characters"):
            profiler.timing("")
    assert timings(tmp_path) == []


def test_no_timing_of_any_thread_is_lost_and_memory_stays_bounded(opened: Open, tmp_path: Path) -> None:
    threads, each = 4, 5000
    with opened() as context:
        profiler = context.profiler

        def work() -> None:
            for _ in range(each):
                with profiler.timing("x"):
                    profiler.count("n")

        running = [threading.Thread(target=work) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert len(profiler._durations["x"].pending) < each
    found = timings(tmp_path)
    assert sum(record["v"]["x"]["n"] for record in found) == threads * each
    assert sum(record["c"]["n"] for record in found) == threads * each


def test_what_was_timed_is_written_when_the_trial_is_told_to_leave(opened: Open, tmp_path: Path) -> None:
    with opened() as context:
        with context.profiler.timing("x"):
            pass
        (tmp_path / "run" / "control" / "preempt.json").write_text('{"reason": "pause"}')
        assert context.preempt.should_preempt()
        assert [list(record["v"]) for record in timings(tmp_path)] == [["x"]]


def test_a_program_that_never_closes_loses_nothing_and_its_children_add_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    program = """
import os, determined as det
context = det.core.init()
with context.profiler.timing("x"):
    pass
if os.fork() == 0:
    with context.profiler.timing("x"):
        pass
    raise SystemExit(0)
os.wait()
"""
    done = subprocess.run([sys.executable, "-c", program], env=environment_of(run), check=False, timeout=60)
    assert done.returncode == 0
    assert [record["v"]["x"]["n"] for record in timings(tmp_path)] == [1]


@pytest.mark.parametrize(("sync", "told"), [(True, ["x", "step"]), (False, [])])
def test_a_timing_waits_for_the_gpu_when_the_config_says_so(
    tmp_path: Path, sync: bool, told: list[str]
) -> None:
    trial = {"trial_id": 1, "experiment_id": 1, "trial_seed": 1, "hparams": {}, "run_id": 1, "latest_checkpoint": None,
             "config": {"profiling": {"enabled": True, "sync_timings": sync}}, "steps_completed": 0}  # fmt: skip
    run = make_run(tmp_path / "run", trial=trial)
    # where there is no GPU the module's own synchronize is what says that it was asked
    program = """
import json, sys, torch, determined as det
asked = []
torch.cuda.is_initialized = lambda: True
torch.cuda.synchronize = lambda: asked.append(1)
with det.core.init() as context:
    with context.profiler.step(1), context.profiler.timing("x"):
        pass
print(len(asked))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment_of(run),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.split() == [str(len(told))], done.stderr


def test_neither_torch_nor_http_is_imported_for_it(tmp_path: Path) -> None:
    trial = {"trial_id": 1, "experiment_id": 1, "trial_seed": 1, "hparams": {}, "run_id": 1, "latest_checkpoint": None,
             "config": {"profiling": {"enabled": True}}, "steps_completed": 0}  # fmt: skip
    program = """
import sys, determined as det
with det.core.init() as context, context.profiler.timing("x"):
    pass
assert not {"torch", "http.client", "ssl"} & {*sys.modules}
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment_of(make_run(tmp_path / "run", trial=trial)),
        check=False,
        timeout=60,
    )
    assert done.returncode == 0


def test_off_the_cluster_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINMASTER_RUN_DIR", raising=False)
    with core.init() as context:
        profiler = context.profiler
        profiler.on()
        with profiler.step(1), profiler.timing("x"):
            profiler.count("samples", 8)
        profiler.off()
        assert profiler.timing("x") is profiler.timing("y")
    assert os.environ.get("TRAINMASTER_RUN_DIR") is None
