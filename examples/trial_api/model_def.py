"""A small convolutional network that reads the digits of data.py, as a PyTorchTrial."""

from __future__ import annotations

from typing import Any

import torch
from data import digits
from determined import pytorch
from torch import nn


class DigitsTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        width = context.get_hparam("width")
        self.model = context.wrap_model(
            nn.Sequential(
                nn.Conv2d(1, width, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(width, 2 * width, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Flatten(),
                nn.Dropout(context.get_hparam("dropout")),
                nn.Linear(32 * width, 10),
            )
        )
        optimizer = torch.optim.SGD(
            self.model.parameters(), lr=context.get_hparam("learning_rate"), momentum=0.9
        )
        self.optimizer = context.wrap_optimizer(optimizer)
        context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.ExponentialLR(self.optimizer, gamma=0.8),
            step_mode=pytorch.LRScheduler.StepMode.STEP_EVERY_EPOCH,
        )

    def build_training_data_loader(self) -> pytorch.DataLoader:
        data = digits(self.context.get_data_config().get("training_samples", 2000), seed=1)
        return pytorch.DataLoader(data, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(digits(500, seed=2), batch_size=100)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
        images, labels = batch
        scores = self.model(images)
        right = (scores.argmax(dim=1) == labels).float().mean()
        return {"validation_loss": nn.functional.cross_entropy(scores, labels), "accuracy": right}
