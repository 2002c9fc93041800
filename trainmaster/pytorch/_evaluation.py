"""Validation: batches of all ranks become one set of metrics; and metrics as plain numbers."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import logging
import time
from typing import Any, Dict, List, Optional, Set

import numpy as np
import torch

from trainmaster import dialect_log
from trainmaster.core import ProfilerContext
from trainmaster.pytorch._reducers import combined, partial, reducer_of
from trainmaster.pytorch._replicas import replicas
from trainmaster.pytorch._trial import Callbacks, PyTorchTrial, overrides
from trainmaster.pytorch._trial_context import PyTorchTrialContext

logger = logging.getLogger("trainmaster.pytorch")

_complained: Set[str] = set()


@dataclasses.dataclass(eq=False)
class Evaluation:
    """Validates a trial as often as wanted. `loader` is this rank's part, or on the chief all of the data."""

    trial: PyTorchTrial
    context: PyTorchTrialContext
    callbacks: Callbacks
    loader: Any
    most_batches: Optional[int] = None

    def __post_init__(self) -> None:
        self._profiler: ProfilerContext = self.context._core.profiler

    def run(self) -> Dict[str, Any]:
        """The metrics of all ranks together, on every rank."""
        self._counted: List[int] = []  # the samples of each batch of this rank
        with torch.no_grad():
            return self._run()

    def _run(self) -> Dict[str, Any]:
        context = self.context
        for replica in replicas(context.models):
            replica.level_buffers()
        training = [model.training for model in context.models]
        context._reset_for(training=False)
        for model in context.models:
            model.eval()
        self.callbacks.call("on_validation_start")
        whole = overrides(self.trial, "evaluate_full_dataset")
        metrics = self._whole() if whole else self._by_batches()
        metrics.update(context.experimental.reduce_metrics(for_training=False))
        context._reset_for(training=True)
        self.callbacks.call("on_validation_end", metrics)
        for model, was in zip(context.models, training):  # noqa: B905  (Python 3.8)
            model.train(was)
        return metrics

    def _by_batches(self) -> Dict[str, Any]:
        begun = time.monotonic()
        self.callbacks.call("on_validation_epoch_start")
        outputs = self._outputs()
        with self._profiler.timing("from_device"):
            outputs = [to_arrays(output) for output in outputs]
        self.callbacks.call("on_validation_epoch_end", outputs)
        numbers = [to_numbers(output) for output in outputs]
        choice = self.trial.evaluation_reducer()
        values: Dict[str, List[float]] = {}
        for batch in numbers:
            for name, number in batch.items():
                values.setdefault(name, []).append(number)
        own = {name: partial(reducer_of(choice, name), each) for name, each in values.items()}
        with self._profiler.timing("reduce_metrics"):
            told = self.context.distributed.allgather((own, self._counted))
        ranks = [each for each, _ in told]
        if self.context.distributed.rank == 0:
            dialect_log.pytorch.info(_timing([counted for _, counted in told], time.monotonic() - begun))
        names = sorted({name for rank in ranks for name in rank})
        return {
            name: combined(reducer_of(choice, name), [rank[name] for rank in ranks if name in rank])
            for name in names
        }

    def _outputs(self) -> List[Dict[str, Any]]:
        """What `evaluate_batch` gave for each batch of this rank."""
        counted = len(inspect.signature(self.trial.evaluate_batch).parameters) > 1
        outputs = []
        for number, batch in enumerate(itertools.islice(self.loader.epoch(0), self.most_batches)):
            self._counted.append(self._length(batch))
            if self.context.experimental._auto_to_device:
                batch = self.context.to_device(batch)
            with self._profiler.timing("evaluate_batch"), self.context._precision():
                output = (
                    self.trial.evaluate_batch(batch, number) if counted else self.trial.evaluate_batch(batch)  # type: ignore[call-arg]
                )
            if not isinstance(output, dict):
                raise TypeError(
                    f"evaluate_batch() must return a dict of metrics, not {type(output).__name__}."
                )
            outputs.append(output)
        return outputs

    def _length(self, batch: Any) -> int:
        """The samples of a batch; 0 where the trial cannot say, for a training does not end for a rate."""
        try:
            return int(self.trial.get_batch_length(batch))
        except TypeError:
            return 0

    def _whole(self) -> Dict[str, Any]:
        """The chief evaluates; the others wait for its metrics."""
        metrics: Optional[Dict[str, Any]] = None
        if self.context.distributed.rank == 0:
            with self._profiler.timing("evaluate_full_dataset"), self.context._precision():
                found = self.trial.evaluate_full_dataset(self.loader.plain())
            if not isinstance(found, dict):
                raise TypeError(
                    f"evaluate_full_dataset() must return a dict of metrics, not {type(found).__name__}."
                )
            metrics = to_numbers(found, keep_others=True)
        shared: Dict[str, Any] = self.context.distributed.broadcast(metrics)
        return shared


def _timing(ranks: List[List[int]], seconds: float) -> str:
    """How fast a validation was, in the words that Determined's log has for it."""
    records, batches = sum(map(sum, ranks)), sum(map(len, ranks))
    each = max(seconds, 1e-9)
    return (
        f"validated: {records} records in {seconds:.4g}s ({records / each:.4g} records/s), "
        f"in {batches} batches ({batches / each:.4g} batches/s)"
    )


def held(metrics: Any) -> Dict[str, Any]:
    """What `train_batch` returned, as a dict whose tensors hold no graph. TypeError for other things than metrics."""
    if isinstance(metrics, torch.Tensor):
        metrics = {"loss": metrics}
    if not isinstance(metrics, dict):
        raise TypeError(
            "train_batch() must return a dict of metrics (it may be empty) or the loss as a tensor, "
            f"not {type(metrics).__name__}."
        )
    kept: Dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, torch.Tensor) and _size(value) != 1:
            _left_out(name, value)  # now: it may be large, and a reporting period long
        else:
            kept[name] = value.detach() if isinstance(value, torch.Tensor) else value
    return kept


def to_numbers(metrics: Dict[str, Any], keep_others: bool = False) -> Dict[str, Any]:
    """Numbers and one-element tensors and arrays as floats; others are left out with a word, or kept as they are."""
    found: Dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, (torch.Tensor, np.ndarray, np.generic)) and _size(value) == 1:
            found[name] = float(value.item())
        elif isinstance(value, (bool, int, float)):
            found[name] = float(value)
        elif keep_others:
            found[name] = value.tolist() if isinstance(value, (torch.Tensor, np.ndarray)) else value
        else:
            _left_out(name, value)
    return found


def to_arrays(metrics: Dict[str, Any]) -> Dict[str, Any]:
    """The tensors among them as NumPy arrays, all else as it is."""
    return {
        name: _array(value) if isinstance(value, torch.Tensor) else value for name, value in metrics.items()
    }


def _array(value: Any) -> Any:
    value = value.detach().cpu()
    if value.layout is not torch.strided:
        value = value.to_dense()
    return (value.float() if value.dtype is torch.bfloat16 else value).numpy()  # NumPy has no bfloat16


def _left_out(name: str, value: Any) -> None:
    if name not in _complained:
        _complained.add(name)
        logger.warning(
            "The metric %r is of type %s, not a single number, and is skipped.", name, type(value).__name__
        )


def _size(value: Any) -> int:
    return int(value.numel()) if isinstance(value, torch.Tensor) else int(value.size)
