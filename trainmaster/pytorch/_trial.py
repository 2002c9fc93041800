"""`PyTorchTrial`: what a user writes."""

from __future__ import annotations

import abc
from typing import Any, Dict, Union

from trainmaster.pytorch._callbacks import PyTorchCallback
from trainmaster.pytorch._data import data_length
from trainmaster.pytorch._reducers import Reducer


class PyTorchTrial(abc.ABC):
    """A model, its data, and what is done with a batch; the Trainer does the rest.

    The constructor takes the context, wraps models and optimizers with it and keeps it. Either `evaluate_batch` or
    `evaluate_full_dataset` is needed for validations.
    """

    trial_context_class: Any = None  # set in trainmaster.pytorch, for programs that ask

    @abc.abstractmethod
    def __init__(self, context: Any) -> None:
        """`context` is a PyTorchTrialContext."""
        self.context = context

    @abc.abstractmethod
    def build_training_data_loader(self) -> Any:
        """A pytorch.DataLoader over all training data; its batch size is that of one slot."""

    @abc.abstractmethod
    def build_validation_data_loader(self) -> Any:
        """A pytorch.DataLoader over all validation data."""

    @abc.abstractmethod
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Union[Any, Dict[str, Any]]:
        """Train on one batch of this rank, both numbers from 0, `batch_idx` since the start of the training.

        Calls `context.backward(loss)` and `context.step_optimizer(optimizer)`. Returns metrics by name, each a number
        or a tensor with one element; a single tensor is `{"loss": tensor}`.
        """

    def evaluate_batch(self, batch: Any, batch_idx: int) -> Dict[str, Any]:
        """Metrics of one validation batch of this rank, without gradients; the second parameter may be left out."""
        raise NotImplementedError

    def evaluate_full_dataset(self, data_loader: Any) -> Dict[str, Any]:
        """Metrics of the whole validation data, on the chief alone; batches are to be moved by `context.to_device`."""
        raise NotImplementedError

    def evaluation_reducer(self) -> Union[Reducer, Dict[str, Reducer]]:
        """How `evaluate_batch`'s metrics become one: for all, or by name."""
        return Reducer.AVG

    def build_callbacks(self) -> Dict[str, PyTorchCallback]:
        """Callbacks by name; their state is kept in checkpoints under it."""
        return {}

    def get_batch_length(self, batch: Any) -> int:
        """How many samples a batch has."""
        return data_length(batch)


def overrides(trial: PyTorchTrial, method: str) -> bool:
    """True when the trial's class has its own."""
    return getattr(type(trial), method) is not getattr(PyTorchTrial, method)
