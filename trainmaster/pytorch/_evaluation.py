"""Validation: batches of all ranks become one set of metrics."""

from __future__ import annotations

import inspect
from typing import Any, Dict, List, Optional

import torch

from trainmaster.core import ProfilerContext
from trainmaster.pytorch._callbacks import Callbacks
from trainmaster.pytorch._numbers import to_arrays, to_numbers
from trainmaster.pytorch._reducers import BatchMetrics, combined, reducer_of
from trainmaster.pytorch._replicas import replicas
from trainmaster.pytorch._trial import PyTorchTrial, overrides
from trainmaster.pytorch._trial_context import PyTorchTrialContext


class Evaluation:
    """Validates a trial as often as wanted. `loader` is this rank's part, or on the chief all of the data."""

    def __init__(
        self,
        trial: PyTorchTrial,
        context: PyTorchTrialContext,
        callbacks: Callbacks,
        loader: Any,
        most_batches: Optional[int] = None,
    ) -> None:
        self._trial = trial
        self._context = context
        self._callbacks = callbacks
        self._loader = loader
        self._most_batches = most_batches
        self._profiler: ProfilerContext = context._core.profiler

    def run(self) -> Dict[str, Any]:
        """The metrics of all ranks together, on every rank."""
        with torch.no_grad():
            return self._run()

    def _run(self) -> Dict[str, Any]:
        context = self._context
        for replica in replicas(context.models):
            replica.level_buffers()
        training = [model.training for model in context.models]
        for kept in context._wrapped_reducers:
            if kept.for_validation:
                kept.reducer.reset()
        for model in context.models:
            model.eval()
        self._callbacks.call("on_validation_start")
        whole = overrides(self._trial, "evaluate_full_dataset")
        metrics = self._whole() if whole else self._by_batches()
        metrics.update(context.experimental.reduce_metrics(for_training=False))
        for kept in context._wrapped_reducers:
            if kept.for_training:
                kept.reducer.reset()
        self._callbacks.call("on_validation_end", metrics)
        for model, was in zip(context.models, training):  # noqa: B905  (Python 3.8)
            model.train(was)
        return metrics

    def _by_batches(self) -> Dict[str, Any]:
        self._callbacks.call("on_validation_epoch_start")
        outputs = self._outputs()
        with self._profiler.timing("from_device"):
            outputs = [to_arrays(output) for output in outputs]
        self._callbacks.call("on_validation_epoch_end", outputs)
        numbers = [to_numbers(output) for output in outputs]
        choice = self._trial.evaluation_reducer()
        own: Dict[str, BatchMetrics] = {}
        for batch in numbers:
            for name, number in batch.items():
                own.setdefault(name, BatchMetrics(reducer_of(choice, name))).values.append(number)
        with self._profiler.timing("reduce_metrics"):
            ranks = self._context.distributed.allgather({name: kept.partial() for name, kept in own.items()})
        names = sorted({name for rank in ranks for name in rank})
        return {
            name: combined(reducer_of(choice, name), [rank[name] for rank in ranks if name in rank])
            for name in names
        }

    def _outputs(self) -> List[Dict[str, Any]]:
        """What `evaluate_batch` gave for each batch of this rank."""
        counted = len(inspect.signature(self._trial.evaluate_batch).parameters) > 1
        outputs = []
        for number, batch in enumerate(self._loader.epoch(0)):
            if number == self._most_batches:
                break
            if self._context.experimental._auto_to_device:
                batch = self._context.to_device(batch)
            with self._profiler.timing("evaluate_batch"), self._context._precision():
                output = (
                    self._trial.evaluate_batch(batch, number)
                    if counted
                    else self._trial.evaluate_batch(batch)  # type: ignore[call-arg]
                )
            if not isinstance(output, dict):
                raise TypeError(
                    f"evaluate_batch() must return a dict of metrics, not {type(output).__name__}."
                )
            outputs.append(output)
        return outputs

    def _whole(self) -> Dict[str, Any]:
        """The chief evaluates; the others wait for its metrics."""
        metrics: Optional[Dict[str, Any]] = None
        if self._context.distributed.rank == 0:
            with self._profiler.timing("evaluate_full_dataset"), self._context._precision():
                found = self._trial.evaluate_full_dataset(self._loader.plain())
            if not isinstance(found, dict):
                raise TypeError(
                    f"evaluate_full_dataset() must return a dict of metrics, not {type(found).__name__}."
                )
            metrics = to_numbers(found, keep_others=True)
        shared: Dict[str, Any] = self._context.distributed.broadcast(metrics)
        return shared
