"""A real training (torchrun, gloo) is paused and goes on from the step it stopped at, also on another host."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rig.hosts import HostRig
from tests.rig.stack import Stack, code_of, config, running_stack

pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytestmark = pytest.mark.hosts

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "digits_ddp"
LIMIT_SECONDS = 120.0


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """Two hosts with two slots each, whose jobs run this Python with its torch."""
    with running_stack(host_rig) as stack:
        stack.add_hosts(python=sys.executable)
        yield stack


def train(stack: Stack, slots: int, epochs: int) -> int:
    """The example of the repository on so many slots; reports every 5 batches, saves only when it has to."""
    example = yaml.safe_load((EXAMPLE / "digits.yaml").read_text())
    hparams = {**example["hyperparameters"], "epochs": epochs, "report_every": 5, "checkpoint_epochs": 1000}
    text = config(slots, example["entrypoint"], hyperparameters=hparams, searcher=example["searcher"])
    return stack.submit({"train.py": code_of(EXAMPLE)["train.py"]}, text)


def training_steps(stack: Stack, experiment: int) -> list[int]:
    """Steps of the stored training reports, in their order."""
    trial = stack.trial(experiment)["id"]
    rows = stack.get(f"/api/v1/trials/{trial}/workloads?limit=0")["workloads"]
    return [row["training"]["totalBatches"] for row in rows if "training" in row]


def checkpoints(stack: Stack, experiment: int) -> list[dict[str, Any]]:
    return list(stack.get(f"/api/v1/experiments/{experiment}/checkpoints")["checkpoints"])


def pause(stack: Stack, experiment: int) -> int:
    """Pause it in the middle; answers the step it saved at, once nothing of it is left."""
    stack.wait(lambda: len(training_steps(stack, experiment)) >= 3, LIMIT_SECONDS, "the first steps")
    keys = stack.run_keys(experiment)
    stack.post(f"/api/v1/experiments/{experiment}/pause")
    stack.wait(lambda: not stack.holders(), LIMIT_SECONDS, "the slots to be free")
    stack.assert_nothing_runs(keys)
    assert stack.experiment(experiment)["state"] == "STATE_PAUSED"
    saved = checkpoints(stack, experiment)
    assert len(saved) == 1, saved
    return int(saved[0]["metadata"]["steps_completed"])


def assert_went_on(stack: Stack, experiment: int, step: int, ranks: int) -> None:
    """It ended well, every rank resumed at that step, and no step was trained twice or left out."""
    ended = stack.wait_end(experiment, LIMIT_SECONDS)
    assert ended == "STATE_COMPLETED", stack.trial(experiment).get("failure")
    assert stack.trial(experiment)["restarts"] == 0
    for rank, lines in list(stack.lines_by_rank(experiment).items())[:ranks]:
        resumed = [line for line in lines if "goes on from step" in line]
        assert resumed == [f"rank {rank} goes on from step {step}"]
        printed = [int(found[1]) for line in lines if (found := re.match(r"rank \d+ step (\d+) ", line))]
        assert printed == list(range(5, printed[-1] + 1, 5))
    steps = training_steps(stack, experiment)
    assert steps == list(range(5, steps[-1] + 1, 5))
    assert step < steps[-1]


def test_a_paused_gang_saves_frees_its_slots_and_goes_on_from_its_step(stack: Stack) -> None:
    experiment = train(stack, slots=4, epochs=8)
    step = pause(stack, experiment)
    stack.post(f"/api/v1/experiments/{experiment}/activate")
    assert_went_on(stack, experiment, step, ranks=4)
    assert not stack.holders()
    stack.assert_nothing_runs(stack.run_keys(experiment))


@pytest.mark.chaos  # most of a minute
def test_a_paused_training_goes_on_elsewhere_with_its_checkpoint(stack: Stack) -> None:
    experiment = train(
        stack, slots=1, epochs=16
    )  # still training when the pause comes, on a fast machine too
    stack.wait(stack.holders, LIMIT_SECONDS, "a host to be given")
    first = next(iter(stack.holders())).split("/")[0]
    step = pause(stack, experiment)
    stack.post(f"/api/v1/hosts/{first}/disable")
    try:
        stack.post(f"/api/v1/experiments/{experiment}/activate")
        stack.wait(stack.holders, LIMIT_SECONDS, "another host to be given")
        assert next(iter(stack.holders())).split("/")[0] != first
        assert_went_on(stack, experiment, step, ranks=1)
    finally:
        stack.post(f"/api/v1/hosts/{first}/enable")
