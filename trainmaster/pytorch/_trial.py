"""`PyTorchTrial` and `PyTorchCallback`: what a user writes; and how callbacks are called."""

from __future__ import annotations

import abc
from typing import Any, Dict, List, Optional, Union

from trainmaster.core import ProfilerContext
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


class PyTorchCallback:
    """Override what you need; `build_callbacks` of the trial gives them by name. Every rank calls its own.

    In this order: on_trial_startup; with a checkpoint on_checkpoint_load_start and load_state_dict; on_training_start;
    of each epoch on_training_epoch_start and on_training_epoch_end; between batches on_training_workload_end, then
    on_validation_start, on_validation_epoch_start, on_validation_epoch_end, on_validation_end, then
    on_checkpoint_save_start, on_checkpoint_write_end, on_checkpoint_end, on_checkpoint_upload_end; at last, also after
    an error, on_trial_shutdown. Those of a validation are called without gradients, with models in eval mode.
    """

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: Optional[str]) -> None:
        """The first thing; `first_batch_idx` is 0 unless the trial continues from `checkpoint_uuid`."""

    def on_trial_shutdown(self) -> None:
        """The last thing, whatever ended the training."""

    def on_training_start(self) -> None:
        """Everything is restored, the first batch comes next."""

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        """Not called for an epoch that is gone on with in its middle."""

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        """The last batch of the epoch has been trained."""

    def on_training_workload_end(
        self, avg_metrics: Dict[str, Any], batch_metrics: List[Dict[str, Any]]
    ) -> None:
        """A reporting period is over: metrics averaged over it (and the ranks), and this rank's of each batch."""

    def on_validation_start(self) -> None:
        """A validation begins."""

    def on_validation_epoch_start(self) -> None:
        """The validation data is about to be read."""

    def on_validation_epoch_end(self, outputs: List[Any]) -> None:
        """`outputs` is what `evaluate_batch` returned on this rank, batch by batch, its tensors as NumPy arrays."""

    def on_validation_end(self, metrics: Dict[str, Any]) -> None:
        """The metrics of all ranks together, before they are reported."""

    def on_checkpoint_load_start(self, checkpoint: Dict[str, Any]) -> None:
        """Before the state of a checkpoint is restored; `checkpoint` may be changed."""

    def on_checkpoint_save_start(self, checkpoint: Dict[str, Any]) -> None:
        """On the chief alone, before a checkpoint is written; `checkpoint` may be changed."""

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        """On the chief alone: the folder is written and not stored yet; add files to it here."""

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """The older name of on_checkpoint_write_end; called after it."""

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        """The checkpoint is complete."""

    def state_dict(self) -> Dict[str, Any]:
        """What the callback wants to find again in `load_state_dict` when the trial continues."""
        return {}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """The state that the chief's callback of this name had given."""


class Callbacks:
    """All callbacks of a trial, each call of a hook that is overridden timed as `callbacks.<class>.<hook>`."""

    def __init__(self, callbacks: Dict[str, PyTorchCallback], profiler: ProfilerContext) -> None:
        for name, callback in callbacks.items():
            if not isinstance(callback, PyTorchCallback):
                raise TypeError(
                    f"build_callbacks() returned {type(callback).__name__} as {name!r}; it must be a PyTorchCallback."
                )
        self._callbacks = callbacks
        self._profiler = profiler

    def call(self, hook: str, *arguments: Any) -> None:
        """Call `hook` of each, in the order of `build_callbacks`."""
        for callback in self._callbacks.values():
            if getattr(type(callback), hook) is not getattr(PyTorchCallback, hook):
                with self._profiler.timing(f"callbacks.{type(callback).__name__[:80]}.{hook}"):
                    getattr(callback, hook)(*arguments)

    def state_dict(self) -> Dict[str, Any]:
        return {name: callback.state_dict() for name, callback in self._callbacks.items()}

    def load_state_dict(self, states: Dict[str, Any]) -> None:
        """Callbacks that are new since the checkpoint stay as they are."""
        for name, callback in self._callbacks.items():
            if name in states:
                callback.load_state_dict(states[name])
