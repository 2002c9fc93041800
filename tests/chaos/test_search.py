"""An adaptive search of 16 trials, during which everything is killed twice: server, runners and training."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.rig.stack import Stack, config

pytestmark = [pytest.mark.chaos, pytest.mark.hosts]

LIMIT_SECONDS = 600.0
BEST_LR = 0.3
LENGTH, DIVISOR = 16, 4
#: The better a trial's lr, the better it is at every step; it goes on from where it was saved. No two trials of this
#: seed are closer to each other than what a trial gains by its steps, so their order depends on nobody's speed.
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
    "max_length": {"batches": LENGTH},
    "divisor": DIVISOR,
    "max_trials": 16,
    "max_concurrent_trials": 4,
}
#: For the server's Django: of each rung of each bracket (lr, outcome) of those that came there, the best first.
RUNGS = """
import json
from experiments.models import Experiment
from searching.rungs import tree
experiment = Experiment.objects.get(pk={experiment})
lr = {{str(name): hparams["lr"] for name, hparams in experiment.trials.values_list("request_id", "hparams")}}
rungs = [
    [[(lr[entry.request_id], entry.outcome) for entry in rung.entries] for rung in bracket.rungs]
    for bracket in tree(experiment.search)
]
print(json.dumps(rungs))
"""


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


def running(stack: Stack, experiment: int) -> list[int]:
    return processes_of({trial["taskId"] for trial in trials(stack, experiment)})


def kill_everything(stack: Stack, experiment: int) -> None:
    """The server with its databases, and on the hosts runners, keepers and training, all by kill -9."""
    tasks = {trial["taskId"] for trial in trials(stack, experiment)}
    stack.wait(lambda: processes_of(tasks), LIMIT_SECONDS, "something to run that can be killed")
    stack.server.kill()
    for process in processes_of(tasks):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    stack.server.start()
    stack.token = stack.server.token()


def away(lr: float) -> float:
    """How bad a trial is."""
    return abs(float(lr) - BEST_LR)


def finds_the_better_ones(rungs: list[list[tuple[float, str]]], stop_once: bool, whole: set[float]) -> None:
    """In whatever order trials came to a rung of one bracket, the best of them went on: of those that are stopped for
    good the very best, which is never behind; of those that are parked the whole share that is kept.

    `whole`: the lr of trials that have trained to the end. On a slow machine a trial may have done so before it hears
    that it is parked: it has nothing left to be promoted for.
    """
    for rung, following in pairwise(rungs):
        found = [lr for lr, _ in rung]
        assert found == sorted(found, key=away)
        sure = min(1, len(rung)) if stop_once else len(rung) // DIVISOR
        for lr, outcome in rung[:sure]:
            assert outcome == "promoted" or (outcome == "finished" and lr in whole), rung
        assert sorted(lr for lr, _ in following) == sorted(lr for lr, how in rung if how == "promoted")


@pytest.mark.survive(6)
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

    by_truth = sorted(found, key=lambda trial: away(trial["hparams"]["lr"]))
    assert stack.experiment(experiment)["bestTrialId"] == by_truth[0]["id"]
    assert max(trial["totalBatchesProcessed"] for trial in found) == LENGTH
    brackets = json.loads(stack.server.shell(RUNGS.format(experiment=experiment)))
    assert sum(len(rungs[0]) for rungs in brackets) == 16, "each came to the first rung of its bracket, once"
    whole = {trial["hparams"]["lr"] for trial in found if trial["totalBatchesProcessed"] == LENGTH}
    for rungs in brackets:
        finds_the_better_ones(rungs, stop_once, whole)
    stack.wait(lambda: not running(stack, experiment), 60, "the last processes to leave")
