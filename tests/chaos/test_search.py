"""An adaptive search of 16 trials, during which everything is killed twice: server, runners and training."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.rig.stack import Stack, config

pytestmark = [pytest.mark.chaos, pytest.mark.hosts]

LIMIT_SECONDS = 600.0
BEST_LR = 0.3
#: The better a trial's lr, the better it is at every step; it goes on from where it was saved.
TRAINING = """
import pathlib, time
import determined as det

info = det.get_cluster_info()
lr = info.trial.hparams["lr"]
with det.core.init() as context:
    step = 0
    if info.latest_checkpoint:
        with context.checkpoint.restore_path(info.latest_checkpoint) as folder:
            step = int((folder / "step").read_text())
    while step < 16:
        step += 1
        time.sleep(0.3)
        context.train.report_validation_metrics(step, {"loss": (lr - 0.3) ** 2 + 0.001 / step})
        with context.checkpoint.store_path({"steps_completed": step}) as (folder, uuid):
            (folder / "step").write_text(str(step))
        if context.preempt.should_preempt():
            break
"""
SEARCHER = {
    "name": "adaptive_asha",
    "metric": "loss",
    "max_length": {"batches": 16},
    "max_trials": 16,
    "max_concurrent_trials": 4,
}


def trials(stack: Stack, experiment: int) -> list[dict[str, Any]]:
    try:
        return list(stack.get(f"/api/v1/experiments/{experiment}/trials?limit=0")["trials"])
    except OSError:  # the server was just killed: not an answer
        return []


def processes_of(tasks: set[str]) -> list[int]:
    """The pids of every process of every run of these tasks, on whatever host."""
    markers = tuple(f"TRAINMASTER_RUN={task}.".encode() for task in tasks)
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if any(each.startswith(markers) for each in environ.read_bytes().split(b"\0")):
                found.append(int(environ.parent.name))
    return found


def kill_everything(stack: Stack, experiment: int) -> None:
    """The server with its databases, and on the hosts runners, keepers and training, all by kill -9."""
    tasks = {trial["taskId"] for trial in trials(stack, experiment)}
    stack.server.kill()
    for process in processes_of(tasks):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    stack.server.start()
    stack.token = stack.server.token()


@pytest.mark.parametrize("stop_once", [False, True])
def test_an_adaptive_search_survives_that_everything_is_killed_twice(stack: Stack, stop_once: bool) -> None:
    settings = {
        "hyperparameters": {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}},
        "searcher": {**SEARCHER, "stop_once": stop_once},
        "max_restarts": 5,
        "reproducibility": {"experiment_seed": 5},
    }
    experiment = stack.submit({"train.py": TRAINING}, config(1, "python3 train.py", **settings))
    for made in (6, 12):
        stack.wait(lambda made=made: len(trials(stack, experiment)) >= made, LIMIT_SECONDS, f"{made} trials")
        kill_everything(stack, experiment)
    assert stack.wait_end(experiment, LIMIT_SECONDS) == "STATE_COMPLETED"
    found = trials(stack, experiment)
    assert len(found) == 16, "none was lost, none was made twice"
    assert len({trial["hparams"]["lr"] for trial in found}) == 16
    assert {trial["state"] for trial in found} == {"STATE_COMPLETED"}

    by_truth = sorted(found, key=lambda trial: abs(float(trial["hparams"]["lr"]) - BEST_LR))
    best = stack.experiment(experiment)["bestTrialId"]
    assert best in [trial["id"] for trial in by_truth[:8]]
    stack.wait(
        lambda: not processes_of({trial["taskId"] for trial in found}), 60, "the last processes to leave"
    )
