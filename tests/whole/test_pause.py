"""A real training (torchrun, gloo) paused in the middle of an epoch goes on elsewhere, from the batch it stopped at."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.rig.hosts import HostRig
from tests.rig.stack import Stack, code_of, config, running_stack

pytestmark = pytest.mark.hosts

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
LIMIT_SECONDS = 180.0
BATCHES = 66
HELD_AT = 30  # in the middle of the second of three epochs

#: scikit-learn's handwritten digits, drawn so large as the example's network expects its own
DATA = """
import numpy as np
import torch
from torch.utils.data import TensorDataset

def digits(samples, seed):
    rows = np.array([line.split() for line in open("digits.txt")], dtype=np.float32)
    rows = rows[:1437] if seed == 1 else rows[1437:]
    images = np.kron(rows[:, :64].reshape(-1, 1, 8, 8) / 16, np.ones((1, 1, 2, 2), dtype=np.float32))
    return TensorDataset(torch.tensor(images), torch.tensor(rows[:, 64]).long())
"""

#: A batch that waits for the order to leave, so that it comes in the middle however fast the machine is.
HOLD = """
    def train_batch(self, batch, epoch_idx, batch_idx):
        if batch_idx == self.context.get_hparam("held_at"):
            while not pathlib.Path(os.environ["TRAINMASTER_RUN_DIR"], "control", "preempt.json").exists():
                time.sleep(0.02)
        return self.train_one(batch, epoch_idx, batch_idx)

    def train_one("""


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """Four hosts with two slots each, whose jobs run this Python with its torch."""
    with running_stack(host_rig, hosts=4) as stack:
        stack.add_hosts(python=sys.executable)
        yield stack


def trial_class(stack: Stack, package: str, folder: Path, held_at: int) -> int:
    """The PyTorchTrial of the examples on two hosts with two slots each; it imports `package` for the Trial API."""
    example = yaml.safe_load((EXAMPLES / "trial_api/trial.yaml").read_text())
    text = config(
        4,
        example["entrypoint"],
        hyperparameters={**example["hyperparameters"], "held_at": held_at},
        searcher={**example["searcher"], "max_length": {"batches": BATCHES}},
        scheduling_unit=example["scheduling_unit"],
        checkpoint_storage={"type": "shared_fs", "host_path": str(folder)},
        checkpoint_policy="none",
        reproducibility={"experiment_seed": 5},
    )
    model = (EXAMPLES / "trial_api/model_def.py").read_text()
    model = model.replace("from determined import", f"import os, pathlib, time\nfrom {package} import")
    model = model.replace("\n    def train_batch(", HOLD)
    datasets = pytest.importorskip("sklearn.datasets")
    images, labels = datasets.load_digits(return_X_y=True)
    rows = np.column_stack([images, labels]).astype(int)
    numbers = "\n".join(" ".join(map(str, row)) for row in rows)
    return stack.submit({"model_def.py": model, "data.py": DATA, "digits.txt": numbers}, text)


def train_digits(stack: Stack, slots: int, epochs: int) -> int:
    """The example of the repository on so many slots; reports every 5 batches, saves only when it has to."""
    example = yaml.safe_load((EXAMPLES / "digits_ddp/digits.yaml").read_text())
    hparams = {**example["hyperparameters"], "epochs": epochs, "report_every": 5, "checkpoint_epochs": 1000}
    text = config(slots, example["entrypoint"], hyperparameters=hparams, searcher=example["searcher"])
    return stack.submit({"train.py": code_of(EXAMPLES / "digits_ddp")["train.py"]}, text)


def training_steps(stack: Stack, experiment: int) -> list[int]:
    """Steps of the stored training reports, in their order."""
    trial = stack.trial(experiment)["id"]
    rows = stack.get(f"/api/v1/trials/{trial}/workloads?limit=0")["workloads"]
    return [row["training"]["totalBatches"] for row in rows if "training" in row]


def checkpoints(stack: Stack, experiment: int) -> list[dict[str, Any]]:
    return list(stack.get(f"/api/v1/experiments/{experiment}/checkpoints")["checkpoints"])


def hosts_of(stack: Stack, experiment: int) -> set[str]:
    """The hosts on which the experiment's trial holds slots."""
    task = stack.trial(experiment)["taskId"]
    return {slot.split("/")[0] for slot, holder in stack.holders().items() if holder == task}


def pause(stack: Stack, experiment: int) -> int:
    """Pause it in the middle; answers the step it saved at, once nothing of it is left."""
    stack.wait(lambda: len(training_steps(stack, experiment)) >= 3, LIMIT_SECONDS, "the first steps")
    keys = stack.run_keys(experiment)
    stack.post(f"/api/v1/experiments/{experiment}/pause")
    stack.wait(lambda: not hosts_of(stack, experiment), LIMIT_SECONDS, "the slots to be free")
    stack.assert_nothing_runs(keys)
    assert stack.experiment(experiment)["state"] == "STATE_PAUSED"
    saved = checkpoints(stack, experiment)
    assert len(saved) == 1, saved
    return int(saved[0]["metadata"]["steps_completed"])


def weights(stack: Stack, experiment: int, folder: Path) -> dict[str, Any]:
    """Those that it ended with."""
    ended = stack.wait_end(experiment, LIMIT_SECONDS)
    assert ended == "STATE_COMPLETED", stack.lines_by_rank(experiment)
    assert stack.trial(experiment)["restarts"] == 0
    (last,) = [
        found["uuid"]
        for found in checkpoints(stack, experiment)
        if int(found["metadata"]["steps_completed"]) == BATCHES
    ]
    torch = pytest.importorskip("torch")
    (model,) = torch.load(folder / last / "state_dict.pth", weights_only=False)["models_state_dict"]
    return dict(model)


@pytest.mark.chaos  # two trainings of a minute each
def test_a_gang_paused_in_an_epoch_and_resumed_on_other_hosts_ends_with_the_weights_of_one_that_was_not(
    stack: Stack, tmp_path: Path
) -> None:
    """One imports `determined`, the other `trainmaster`; both train at the same time, each on two hosts."""
    straight = trial_class(stack, "determined", tmp_path, held_at=-1)
    paused = trial_class(stack, "trainmaster", tmp_path, held_at=HELD_AT)
    stack.wait(lambda: len(hosts_of(stack, paused)) == 2, LIMIT_SECONDS, "two hosts")
    before = hosts_of(stack, paused)
    step = pause(stack, paused)
    assert HELD_AT < step < 44
    for host in before:
        stack.post(f"/api/v1/hosts/{host}/disable")
    try:
        stack.post(f"/api/v1/experiments/{paused}/activate")
        stack.wait(lambda: len(hosts_of(stack, paused)) == 2, LIMIT_SECONDS, "two other hosts")
        assert not hosts_of(stack, paused) & before
        one, other = weights(stack, straight, tmp_path), weights(stack, paused, tmp_path)
    finally:
        for host in before:
            stack.post(f"/api/v1/hosts/{host}/enable")
    torch = pytest.importorskip("torch")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert training_steps(stack, paused) == sorted({*training_steps(stack, straight), step})
    summary = stack.get(f"/api/v1/trials/{stack.trial(paused)['id']}/timings")["summary"]
    timed = {
        "dataloader_next",
        "to_device",
        "train_batch",
        "step_lr_schedulers",
        "from_device",
        "reduce_metrics",
    }
    assert timed <= {entry["name"] for entry in summary}
    stack.wait_free()


@pytest.mark.chaos  # most of a minute
def test_a_paused_training_goes_on_elsewhere_with_its_checkpoint(stack: Stack) -> None:
    experiment = train_digits(stack, slots=1, epochs=16)
    stack.wait(stack.holders, LIMIT_SECONDS, "a host to be given")
    (first,) = hosts_of(stack, experiment)
    step = pause(stack, experiment)
    stack.post(f"/api/v1/hosts/{first}/disable")
    try:
        stack.post(f"/api/v1/experiments/{experiment}/activate")
        stack.wait(stack.holders, LIMIT_SECONDS, "another host to be given")
        assert hosts_of(stack, experiment) != {first}
        ended = stack.wait_end(experiment, LIMIT_SECONDS)
        assert ended == "STATE_COMPLETED", stack.trial(experiment).get("failure")
        lines = stack.lines_by_rank(experiment)[0]
    finally:
        stack.post(f"/api/v1/hosts/{first}/enable")
    assert [line for line in lines if "continues from step" in line] == [f"rank 0 continues from step {step}"]
    printed = [int(found[1]) for line in lines if (found := re.match(r"rank \d+ step (\d+) ", line))]
    assert printed == list(range(5, printed[-1] + 1, 5))
    steps = training_steps(stack, experiment)
    assert steps == list(range(5, steps[-1] + 1, 5))
    assert step < steps[-1]
    at = f"/api/v1/trials/{stack.trial(experiment)['id']}/media"
    spread = [row["step"] for row in stack.get(f"{at}?kind=histogram&limit=0")["media"]]
    assert spread == [epoch * spread[0] for epoch in range(1, 17)]
    assert stack.get(f"{at}?kind=image")["pagination"]["total"] == 16 * 16
