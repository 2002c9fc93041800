"""Two ranks under the launch module: they train as one, pause, and go on bit for bit."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.trainmaster.made_run import environment_of, make_run, records

LAUNCH = [sys.executable, "-m", "determined.launch.torch_distributed"]


def launched(run: Path, folder: Path, *arguments: str) -> None:
    """Run the launch module in this folder to its end, which must be a good one."""
    done = subprocess.run(
        [*LAUNCH, *arguments],
        cwd=folder,
        env=environment_of(run, OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    said = "".join(path.read_text() for path in sorted((run / "spool").glob("rank*.std*")))
    assert done.returncode == 0, done.stderr + said


SCRIPT = """
import os, pathlib, sys, torch
import torch.distributed as dist
from determined import pytorch
import determined as det, trainmaster.pytorch
from trainmaster.pytorch import _replicas
from tests.trainmaster.pytorch.squares import BATCH, Squares
assert trainmaster.pytorch.PyTorchTrial is det.pytorch.PyTorchTrial is pytorch.PyTorchTrial

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
order = pathlib.Path(os.environ["TRAINMASTER_RUN_DIR"], "control", "preempt.json")
folder = pathlib.Path(sys.argv[1])

class Paused(Squares):
    at = -1

    def build_callbacks(self):
        return {"uuid": self.uuid}

    def train_batch(self, batch, epoch_idx, batch_idx):
        if batch_idx == self.at and rank == 0:
            order.write_text("{}")
        return super().train_batch(batch, epoch_idx, batch_idx)

class Uuid(pytorch.PyTorchCallback):
    last = None

    def on_checkpoint_upload_end(self, uuid):
        self.last = uuid

def train(at=-1, latest=None):
    order.unlink(missing_ok=True) if rank == 0 else None
    dist.barrier()
    optimizations = {"gradient_compression": True, "aggregation_frequency": 2}
    with pytorch.init(hparams={"global_batch_size": 2 * BATCH}, exp_conf={"optimizations": optimizations}) as context:
        assert context.distributed.size == 2 and context.get_per_slot_batch_size() == BATCH
        trial = Paused(context)
        trial.at, trial.uuid = at, Uuid()
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(14), validation_period=pytorch.Epoch(1), latest_checkpoint=latest)
    dist.barrier()
    return trial

layer = torch.nn.Linear(2, 3)
layer.register_buffer("turned", torch.arange(6.0).reshape(2, 3).t())
layer.register_forward_pre_hook(lambda module, inputs: inputs[0].shape)  # is to run for batches alone
replica = _replicas.replicate(layer, torch.device("cpu"), False)
layer.turned.add_(rank)
replica.level_buffers()
assert layer.turned.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]], "those of the chief"

straight = train()
assert len(straight.data.read) == 14 * BATCH
first = train(at=6)
assert 7 <= len(first.seen) < 14 and len(first.seen) % 2 == 0, first.seen
second = train(latest=first.uuid.last)
assert second.seen[0] == len(first.seen) and second.seen[-1] == 13, second.seen
assert all(torch.equal(a, b) for a, b in zip(straight.weights(), second.weights()))
torch.save([straight.weights(), straight.data.read], folder / f"rank{rank}.pt")
dist.destroy_process_group()
"""


def test_two_ranks_share_the_data_stay_equal_and_resume_bit_for_bit(tmp_path: Path) -> None:
    storage = {"type": "directory", "container_path": str(tmp_path / "checkpoints")}
    run = make_run(tmp_path / "run", slots=2, checkpoint_storage=storage)
    (tmp_path / "train.py").write_text(SCRIPT)
    launched(run, tmp_path, "train.py", str(tmp_path))
    import torch

    (weights, read), (others, others_read) = (torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2))
    learned = [0, 1, 2, 3, 7, 8]  # all but the running means, which each rank has gone on with
    assert all(torch.equal(weights[place], others[place]) for place in learned)
    epochs: list[set[int]] = [set(order[:20]) for order in (read, others_read)]
    assert not epochs[0] & epochs[1] and epochs[0] | epochs[1] == set(range(40))
    chief, other = (names_of(run, rank) for rank in range(2))
    assert {"dataloader_next", "to_device", "train_batch", "step_lr_schedulers"} <= chief & other
    assert {"from_device", "reduce_metrics", "train_batch.backward"} <= chief & other
    assert not [record for record in records(run, 1) if record["type"] == "metrics"]


def names_of(run: Path, rank: int) -> set[str]:
    """What this rank has timed."""
    timed: list[dict[str, Any]] = [
        record["v"] for record in records(run, rank) if record["type"] == "timings"
    ]
    return {name for values in timed for name in values}


MODEL = """
from tests.trainmaster.pytorch.squares import Squares

class MyTrial(Squares):
    def __init__(self, context):
        super().__init__(context)
        assert context.get_hparam("lr") == 0.1 and context.get_trial_seed() == 5
"""


def test_a_trial_class_runs_by_its_config(tmp_path: Path) -> None:
    storage = {"type": "directory", "container_path": str(tmp_path / "checkpoints")}
    config = {
        "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"records": 120}},
        "min_validation_period": {"batches": 4},
        "min_checkpoint_period": {"epochs": 1},
        "scheduling_unit": 2,
        "perform_initial_validation": True,
    }
    trial = {
        "trial_id": 1, "experiment_id": 1, "trial_seed": 5, "run_id": 1, "steps_completed": 0, "config": config,
        "latest_checkpoint": None, "hparams": {"lr": 0.1, "global_batch_size": 10},
    }  # fmt: skip
    run = make_run(tmp_path / "run", checkpoint_storage=storage, trial=trial)
    (tmp_path / "model_def.py").write_text(MODEL)
    launched(run, tmp_path, "--trial", "model_def:MyTrial")
    reports = [record for record in records(run) if record["type"] == "metrics"]
    steps = {
        group: [report["steps_completed"] for report in reports if report["group"] == group]
        for group in ("training", "validation")
    }
    assert steps == {"training": [2, 4, 6, 8, 10, 12], "validation": [0, 4, 8, 12]}
    saved = {
        record["metadata"]["steps_completed"]: record["uuid"] for record in records(run) if "uuid" in record
    }
    assert {10, 12} <= set(saved) <= {4, 8, 10, 12}, "each epoch, each best, and the end"
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == set(saved.values())
