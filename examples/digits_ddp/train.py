"""Handwritten digits with PyTorch's DistributedDataParallel, on any number of GPUs or CPU slots.

    python3 -m determined.launch.torch_distributed train.py

The images come with scikit-learn, so nothing is downloaded. Pausing the experiment saves a checkpoint, and
activating it goes on from there, on whatever hosts are free then.
"""

from __future__ import annotations

import logging
import os
import pathlib
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread per rank: slots share the host's cores

import determined as det
import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

DEFAULTS: dict[str, Any] = {
    "epochs": 60,
    "batch_size": 8,  # per rank: small, so that the gradients are exchanged often
    "learning_rate": 0.01,
    "hidden": 128,
    "report_every": 10,  # batches
    "checkpoint_epochs": 20,
}


def load_data(seed: int) -> tuple[TensorDataset, TensorDataset]:
    """1,437 images of 8 x 8 pixels for training and 360 for validation, the same split on every rank."""
    digits = load_digits()
    images = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    labels = torch.tensor(digits.target, dtype=torch.int64)
    order = torch.from_numpy(np.random.RandomState(seed).permutation(len(labels)))
    cut = int(len(labels) * 0.8)
    return (
        TensorDataset(images[order[:cut]], labels[order[:cut]]),
        TensorDataset(images[order[cut:]], labels[order[cut:]]),
    )


def build_model(hidden: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
    )


class Training:
    """Model, data and position of one rank."""

    def __init__(self, core_context: det.core.Context, hparams: dict[str, Any], seed: int) -> None:
        self.core = core_context
        self.hparams = hparams
        self.rank = core_context.distributed.rank
        cuda = torch.cuda.is_available()
        self.device = (
            torch.device("cuda", core_context.distributed.local_rank) if cuda else torch.device("cpu")
        )
        torch.manual_seed(seed)
        train_data, self.validation_data = load_data(seed)
        self.sampler: DistributedSampler = DistributedSampler(train_data, seed=seed, drop_last=True)
        self.loader = DataLoader(
            train_data, batch_size=hparams["batch_size"], sampler=self.sampler, drop_last=True
        )
        model = build_model(hparams["hidden"]).to(self.device)
        self.model = DistributedDataParallel(model, device_ids=[self.device.index] if cuda else None)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=hparams["learning_rate"], momentum=0.9)
        self.steps = 0
        self.saved_at = -1

    def save(self) -> None:
        """Every rank calls; the chief writes."""
        if self.rank == 0 and self.saved_at != self.steps:
            with self.core.checkpoint.store_path({"steps_completed": self.steps}) as (folder, uuid):
                state = {
                    "model": self.model.module.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                    "steps": self.steps,
                }
                torch.save(state, folder / "state.pt")
            print(f"step {self.steps}: checkpoint {uuid}", flush=True)
        self.saved_at = self.steps

    def restore(self, folder: pathlib.Path) -> None:
        state = torch.load(folder / "state.pt", map_location=self.device, weights_only=True)
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps = self.saved_at = state["steps"]

    def train_batch(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(images.to(self.device)), labels.to(self.device))
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        return float(loss.item())

    def validate(self) -> dict[str, float]:
        """Every rank calls and looks at its part of the validation images; the chief reports."""
        images, labels = self.validation_data.tensors
        mine = slice(self.rank, None, self.core.distributed.size)
        with torch.no_grad():
            scores = self.model.module(images[mine].to(self.device))
        wanted = labels[mine].to(self.device)
        loss = nn.functional.cross_entropy(scores, wanted, reduction="sum")
        right = (scores.argmax(dim=1) == wanted).sum()
        parts = self.core.distributed.gather((float(loss), int(right)))
        if parts is None:
            return {}
        metrics = {
            "validation_loss": sum(part[0] for part in parts) / len(labels),
            "accuracy": sum(part[1] for part in parts) / len(labels),
        }
        self.core.train.report_validation_metrics(steps_completed=self.steps, metrics=metrics)
        self.show(images[mine][:16], labels[mine][:16], scores.argmax(dim=1)[:16])
        return metrics

    def show(self, images: torch.Tensor, labels: torch.Tensor, read: torch.Tensor) -> None:
        """What the page Media shows: some images with what they were read as, and how the weights are spread."""
        pairs = zip(labels.tolist(), read.tolist(), strict=True)
        captions = [f"{label} read as {found}" for label, found in pairs]
        digits = list(images.reshape(-1, 8, 8))
        self.core.train.report_images(self.steps, {"validation": digits}, {"validation": captions})
        self.core.train.report_histograms(self.steps, {"weights": self.model.module[0].weight})

    def report(self, loss: float, epoch: int) -> None:
        # Rank and step first: `print` is enough, the log knows which rank wrote a line.
        print(f"rank {self.rank} step {self.steps} epoch {epoch} loss {loss:.4f}", flush=True)
        if self.rank == 0:
            self.core.train.report_training_metrics(steps_completed=self.steps, metrics={"loss": loss})

    def run(self) -> None:
        per_epoch = len(self.loader)
        total = per_epoch * self.hparams["epochs"]
        while self.steps < total:
            epoch = self.steps // per_epoch
            self.sampler.set_epoch(epoch)
            done_in_epoch = self.steps % per_epoch  # after a resume in the middle of an epoch
            for index, (images, labels) in enumerate(self.loader):
                if index < done_in_epoch:
                    continue
                loss = self.train_batch(images, labels)
                if self.steps % self.hparams["report_every"] == 0:
                    self.report(loss, epoch)
                    # One answer for all ranks; the last step ends the training anyway.
                    if self.steps < total and self.core.preempt.should_preempt():
                        self.save()
                        print(
                            f"rank {self.rank} leaves at step {self.steps}: the slots are wanted", flush=True
                        )
                        return
            metrics = self.validate()
            if (epoch + 1) % self.hparams["checkpoint_epochs"] == 0 or self.steps == total:
                self.save()
            if self.rank == 0:
                self.core.train.report_progress(self.steps / total)
                print(f"epoch {epoch}: accuracy {metrics['accuracy']:.3f}", flush=True)


def main() -> None:
    info = det.get_cluster_info()
    hparams = {**DEFAULTS, **(info.trial.hparams if info else {})}
    torch.set_num_threads(1)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    distributed = det.core.DistributedContext.from_torch_distributed()
    if torch.cuda.is_available():
        torch.cuda.set_device(distributed.local_rank)
    latest: str | None = info.latest_checkpoint if info else None
    with det.core.init(distributed=distributed) as core_context:
        print(f"rank {distributed.rank} of {distributed.size} starts", flush=True)
        training = Training(core_context, hparams, seed=info.trial.trial_seed if info else 0)
        if latest is not None:
            with core_context.checkpoint.restore_path(latest) as folder:
                training.restore(folder)
            print(f"rank {distributed.rank} continues from step {training.steps}", flush=True)
        training.run()
    dist.destroy_process_group()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    main()
