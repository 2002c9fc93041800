"""A small trial with everything that a resume could lose: shuffling, dropout, momentum, a schedule, random noise."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from tests.trainmaster.made_run import make_run, records
from trainmaster import pytorch

SAMPLES, BATCH = 40, 4


class Noisy(Dataset[Any]):
    """x and its square sum, with noise drawn from all three generators at each reading."""

    def __init__(self, samples: int = SAMPLES, noise: bool = True) -> None:
        generator = torch.Generator()
        generator.manual_seed(3)
        self.x = torch.randn(samples, 6, generator=generator)
        self.noise = noise
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.read.append(index)
        x = self.x[index]
        y = (x**2).sum()
        if self.noise:
            x = x + 0.01 * (random.random() + float(np.random.rand()) + torch.rand(()))
        return x, y


class Squares(pytorch.PyTorchTrial):
    """Learns them by SGD with momentum, or Adam when told so."""

    workers = 0

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        layers = nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1)
        )
        self.model = context.wrap_model(layers)
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        )
        self.schedule = context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=3, gamma=0.9),
            pytorch.LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP,
        )
        self.data = Noisy()
        self.seen: list[int] = []

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(self.data, batch_size=BATCH, shuffle=True, num_workers=self.workers)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(Noisy(10, noise=False), batch_size=BATCH)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        self.seen.append(batch_idx)
        loss = nn.functional.mse_loss(self.model(x).squeeze(1), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss, "lr": self.schedule.get_last_lr()[0]}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        return {"validation_loss": nn.functional.mse_loss(self.model(x).squeeze(1), y)}

    def weights(self) -> list[torch.Tensor]:
        return [value.clone() for value in self.model.state_dict().values()]


class Runs:
    """Trials of one experiment on this machine, in this process, with a folder that keeps their checkpoints."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.storage = {"type": "directory", "container_path": str(folder / "checkpoints")}
        self._monkeypatch = monkeypatch
        self._count = 0
        self.run = folder

    @contextmanager
    def attempt(
        self,
        latest: str | None = None,
        config: dict[str, Any] | None = None,
        trial_id: int | None = None,
        **hparams: Any,
    ) -> Iterator[pytorch.PyTorchTrialContext]:
        """The context of the next attempt at the trial, in a run folder of its own."""
        self._count += 1
        self.run = make_run(self.folder / f"run{self._count}", checkpoint_storage=self.storage)
        spec = json.loads((self.run / "spec.json").read_text())
        spec["trial"].update(
            latest_checkpoint=latest,
            hparams={"global_batch_size": BATCH, **hparams},
            config={"searcher": {"name": "single", "metric": "validation_loss"}, **(config or {})},
        )
        spec["trial"]["trial_id"] = trial_id or spec["trial"]["trial_id"]
        (self.run / "spec.json").write_text(json.dumps(spec))
        self._monkeypatch.setenv("TRAINMASTER_RUN_DIR", str(self.run))
        with pytorch.init() as context:
            yield context

    def preempt(self) -> None:
        """Order the attempt that runs now to save and leave."""
        (self.run / "control" / "preempt.json").write_text("{}")

    def records(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in records(self.run) if record["type"] == kind]

    def metrics(self, group: str) -> list[dict[str, Any]]:
        return [record for record in self.records("metrics") if record["group"] == group]

    def checkpoints(self) -> list[dict[str, Any]]:
        return self.records("checkpoint")
