"""`PyTorchTrialContext`: what a trial does with its models, optimizers and batches; and its `experimental`."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Set

import torch

from trainmaster.core import Context
from trainmaster.pytorch import _data, _replicas
from trainmaster.pytorch._facts import TrialFacts, note_meaningless, optimizations_of
from trainmaster.pytorch._lr_scheduler import LRScheduler
from trainmaster.pytorch._reducers import ReducerContext
from trainmaster.pytorch._units import Position

logger = logging.getLogger("trainmaster.pytorch")


class PyTorchTrialContext(TrialFacts, ReducerContext):
    """Given to the trial's constructor, by `pytorch.init()`.

    `models`, `optimizers` and `lr_schedulers` are what was wrapped, in that order, and so the order in checkpoints.
    """

    def __init__(
        self,
        core_context: Context,
        hparams: Dict[str, Any],
        config: Dict[str, Any],
        aggregation_frequency: Optional[int] = None,
        enable_tensorboard_logging: bool = True,
    ) -> None:
        TrialFacts.__init__(self, core_context.info, core_context.distributed, hparams, config)
        ReducerContext.__init__(self)
        self._core = core_context
        self._optimizations = optimizations_of(config, aggregation_frequency)
        note_meaningless(config)
        self._device = _replicas.device_of(core_context.distributed)
        self._tensorboard = enable_tensorboard_logging
        self._writer: Any = None
        self._torch_profiler: Any = None
        self._stop_requested = False
        self._position: Optional[Position] = None
        self._first_batch = 0
        self._unmoved: Set[type] = set()
        self._scaler: Any = None
        self.models: List[Any] = []
        self.optimizers: List[Any] = []
        self.lr_schedulers: List[LRScheduler] = []
        self.experimental = PyTorchExperimentalContext(self)

    @property
    def device(self) -> Any:
        """This rank's GPU, or the CPU."""
        return self._device

    def to_device(self, data: Any) -> Any:
        """Copy a structure (lists, tuples, dicts) with its tensors and arrays on this rank's device."""
        return _data.to_device(data, self._device, self._unmoved)

    def wrap_model(self, model: Any) -> Any:
        """Move the model to the device and keep it in checkpoints; in a gang, train it alike on all ranks.

        Use what is returned. Wrap it before the optimizer is made, for that takes the moved parameters.
        """
        model = model.to(self._device)
        if self.distributed.size > 1:
            model = _replicas.replicate(model, self._device, self._optimizations.gradient_compression)
        self.models.append(model)
        return model

    def wrap_optimizer(
        self,
        optimizer: Any,
        backward_passes_per_step: int = 1,
        fp16_compression: Optional[bool] = None,
        average_aggregated_gradients: Optional[bool] = None,
    ) -> Any:
        """Keep the optimizer in checkpoints, and return it.

        The further arguments are those of Horovod: `optimizations` in the config says the same for all optimizers.
        """
        if backward_passes_per_step != 1 or fp16_compression or average_aggregated_gradients is False:
            logger.warning(
                "wrap_optimizer(): backward_passes_per_step, fp16_compression and average_aggregated_gradients have no "
                "effect; set optimizations.aggregation_frequency, gradient_compression and "
                "average_aggregated_gradients in the config."
            )
        self.optimizers.append(optimizer)
        return optimizer

    def wrap_lr_scheduler(
        self, lr_scheduler: Any, step_mode: LRScheduler.StepMode, frequency: int = 1
    ) -> LRScheduler:
        """Keep the scheduler in checkpoints, and step it every `frequency`-th time of `step_mode`."""
        if isinstance(lr_scheduler, LRScheduler):
            raise TypeError("wrap_lr_scheduler() takes a PyTorch scheduler, but this one is already wrapped.")
        wrapped = LRScheduler(lr_scheduler, step_mode, frequency)
        self.lr_schedulers.append(wrapped)
        return wrapped

    def wrap_scaler(self, scaler: Any) -> Any:
        """Keep a gradient scaler of torch.amp in checkpoints, and return it; there can be one (ValueError)."""
        if self._scaler is not None:
            raise ValueError("A gradient scaler is already wrapped; a trial can have only one.")
        self._scaler = scaler
        return scaler

    def configure_apex_amp(self, *_: Any, **__: Any) -> Any:
        """RuntimeError: Apex is not supported, PyTorch's own mixed precision is."""
        raise RuntimeError("Apex is not supported; call context.experimental.use_amp() instead.")

    def backward(
        self, loss: Any, gradient: Any = None, retain_graph: bool = False, create_graph: bool = False
    ) -> None:
        """Compute gradients; in a gang they are averaged over the ranks, every `aggregation_frequency` batches."""
        if self._scaler is not None and self.experimental._auto_amp:
            loss = self._scaler.scale(loss)
        waits = self.distributed.size > 1 and self._exchanges()
        with self._core.profiler.timing("train_batch.backward", waits=waits), self._full_precision():
            loss.backward(gradient=gradient, retain_graph=retain_graph, create_graph=create_graph)

    def step_optimizer(
        self,
        optimizer: Any,
        clip_grads: Optional[Callable[[List[Any]], Any]] = None,
        auto_zero_grads: bool = True,
        scaler: Any = None,
    ) -> None:
        """Update the weights, at every `aggregation_frequency`-th batch; else gradients add up.

        `clip_grads` is called with a list of all parameters before. A `scaler` of one's own is used, not updated.
        ValueError for `auto_zero_grads=False` where gradients of several batches add up.
        """
        if not auto_zero_grads and self._optimizations.aggregation_frequency > 1:
            raise ValueError(
                "step_optimizer(auto_zero_grads=False) needs an aggregation_frequency of 1: gradients that are kept "
                "would be averaged twice."
            )
        if not self._exchanges():
            return
        with self._core.profiler.timing("train_batch.sync_optimizers"):
            if self._optimizations.average_aggregated_gradients:
                self._average(optimizer)
            automatic = self._scaler is not None and self.experimental._auto_amp
            if clip_grads is not None:
                if automatic:
                    self._scaler.unscale_(optimizer)
                clip_grads(list(_parameters(optimizer)))
            scaler = scaler if scaler is not None else self._scaler if automatic else None
            if scaler is not None:
                scaler.step(optimizer)
            else:
                optimizer.step()
            if auto_zero_grads:
                optimizer.zero_grad()

    def is_epoch_start(self) -> bool:
        """True in the first batch of an epoch."""
        return self._now().batch_in_epoch == 0

    def is_epoch_end(self) -> bool:
        """True in the last batch of an epoch."""
        position = self._now()
        return position.batch_in_epoch + 1 >= position.per_epoch

    def current_train_epoch(self) -> int:
        """The epoch that is being trained, from 0."""
        return self._now().epochs

    def current_train_batch(self) -> int:
        """The batch that is being trained, from 0 since the start of the training."""
        return self._now().batches

    def get_initial_batch(self) -> int:
        """The batch that this process began with: 0, or where the trial went on."""
        return self._first_batch

    def get_stop_requested(self) -> bool:
        return self._stop_requested

    def set_stop_requested(self, stop_requested: bool) -> None:
        """Ask for the end of the training, on any rank: it saves a checkpoint after some batch and ends well."""
        if not isinstance(stop_requested, bool):
            raise TypeError(f"stop_requested is {stop_requested!r}; it must be True or False.")
        self._stop_requested = stop_requested

    def autocast_forward_pass(self, to_wrap: Any) -> Any:
        """Let the model's forward pass run in mixed precision, wherever it is called from."""
        target = _replicas.bare(to_wrap)
        plain = target.forward

        def forward(*inputs: Any, **named: Any) -> Any:
            with self._autocast():
                return plain(*inputs, **named)

        target.forward = forward
        return to_wrap

    def set_profiler(self, *arguments: Any, **named: Any) -> None:
        """Run `torch.profiler.profile` with these arguments over the training, one step a batch."""
        folder = str(self.get_tensorboard_path())
        named.setdefault("on_trace_ready", torch.profiler.tensorboard_trace_handler(folder))
        self._torch_profiler = torch.profiler.profile(*arguments, **named)

    def get_tensorboard_path(self) -> Path:
        """A folder of this rank for files of TensorBoard, as `core_context.train.get_tensorboard_path` says."""
        return self._core.train.get_tensorboard_path()

    def get_tensorboard_writer(self) -> Any:
        """A SummaryWriter on that folder, one for all calls. ImportError where TensorBoard is not installed."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(log_dir=str(self.get_tensorboard_path()))
        return self._writer

    def get_enable_tensorboard_logging(self) -> bool:
        return self._tensorboard

    def set_enable_tensorboard_logging(self, enable_tensorboard_logging: bool) -> None:
        """Metrics are shown by Trainmaster itself; programs may ask this before they write files of their own."""
        if not isinstance(enable_tensorboard_logging, bool):
            raise TypeError(
                f"enable_tensorboard_logging is {enable_tensorboard_logging!r}; it must be True or False."
            )
        self._tensorboard = enable_tensorboard_logging

    @property
    def _epoch_len(self) -> Optional[int]:
        """Batches in an epoch, which training code for Determined asks by this name; None before the training."""
        return None if self._position is None else self._position.per_epoch

    def _now(self) -> Position:
        if self._position is None:
            raise RuntimeError("This is only known while a Trainer is training.")
        return self._position

    def _exchanges(self) -> bool:
        """True in a batch after which gradients are exchanged and weights updated."""
        if self._position is None:
            return True
        return (self._position.batches + 1) % self._optimizations.aggregation_frequency == 0

    def _gathering(self) -> ContextManager[Any]:
        """Around a batch: in all but the last of an aggregation no rank waits for others."""
        stack = contextlib.ExitStack()
        if not self._exchanges():
            for replica in _replicas.replicas(self.models):
                stack.enter_context(replica.no_sync())
        return stack

    def _autocast(self) -> ContextManager[None]:
        kind = self._device.type
        dtype = torch.float16 if kind == "cuda" else torch.bfloat16
        block: ContextManager[None] = torch.autocast(kind, dtype=dtype)
        return block

    def _precision(self) -> ContextManager[None]:
        """Around a batch."""
        return self._autocast() if self.experimental._auto_amp else contextlib.nullcontext()

    def _full_precision(self) -> ContextManager[Any]:
        """Around a backward pass, which has the precision of its forward pass anyway."""
        return (
            torch.autocast(self._device.type, enabled=False)
            if self.experimental._auto_amp
            else contextlib.nullcontext()
        )

    def _average(self, optimizer: Any) -> None:
        frequency = self._optimizations.aggregation_frequency
        if frequency > 1:
            for parameter in _parameters(optimizer):
                if parameter.grad is not None:
                    parameter.grad.div_(frequency)

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _parameters(optimizer: Any) -> Iterator[Any]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


class PyTorchExperimentalContext(ReducerContext):
    """Settings that few trials need, and the old place of the context's reducers, which are the same ones."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context
        self.distributed = context.distributed
        self._wrapped_reducers = context._wrapped_reducers
        self._auto_amp = False
        self._auto_to_device = True
        self._data_checks = True

    def use_amp(self) -> None:
        """Train in mixed precision: float16 with a gradient scaler on a GPU, bfloat16 without one on a CPU.

        Everything is automatic as long as `context.backward` and `context.step_optimizer` are used.
        """
        if self._auto_amp:
            return
        self._context.wrap_scaler(_scaler(self._context.device))
        self._auto_amp = True

    def disable_auto_to_device(self) -> None:
        """Hand batches to the trial as the loader gives them; it then calls `context.to_device` by itself."""
        self._auto_to_device = False

    def disable_dataset_reproducibility_checks(self) -> None:
        """Allow loaders other than pytorch.DataLoader. They share the data among ranks by themselves.

        A trial that continues in the middle of an epoch then begins a new pass over the data.
        """
        self._data_checks = False


def _scaler(device: Any) -> Any:
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
    return torch.cuda.amp.GradScaler(enabled=device.type == "cuda")  # before PyTorch 2.3
