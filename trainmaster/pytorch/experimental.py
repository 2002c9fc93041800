"""Batch inference over all slots: `torch_batch_process`."""

from __future__ import annotations

import abc
import contextlib
import logging
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Set, Type

import torch

from trainmaster import core, dialect_log
from trainmaster._info import get_cluster_info
from trainmaster.pytorch import _data, _randomness, _replicas
from trainmaster.pytorch._reducers import ReducerContext

logger = logging.getLogger("trainmaster.pytorch")

_SIZE = "batch_process_ranks"
#: in the metadata of what `upload_path` stores: it is the user's data, not progress, so the server keeps it
_RESULTS = "batch_process_results"


class TorchBatchProcessorContext(ReducerContext):
    """What a processor can ask and do on its rank.

    What its reducers (`wrap_reducer`) make of all ranks' batches is reported at the end as validation metrics, and
    at a pause of the batches until then: after it they begin anew.
    """

    def __init__(self, core_context: core.Context) -> None:
        super().__init__()
        self._core = core_context
        self._unmoved: Set[type] = set()
        self._rounds = 0
        self.distributed = core_context.distributed
        self.device = _replicas.device_of(core_context.distributed)

    def to_device(self, data: Any, warned_types: Optional[Set[type]] = None) -> Any:
        """Copy a structure with its tensors and arrays on this rank's device.

        What cannot be moved is logged, once for each type that is not in `warned_types`.
        """
        return _data.to_device(data, self.device, self._unmoved if warned_types is None else warned_types)

    def prepare_model_for_inference(self, model: Any) -> Any:
        """The model on the device, in evaluation mode."""
        model.eval()
        return model.to(self.device)

    def get_distributed_rank(self) -> int:
        return self.distributed.rank

    def get_distributed_size(self) -> int:
        return self.distributed.size

    def get_hparams(self) -> Dict[str, Any]:
        """The trial's hyperparameters; none off the cluster."""
        trial = self._core.info._trial if self._core.info else None
        return trial.hparams if trial else {}

    def get_tensorboard_path(self) -> Path:
        """A folder of this rank for files of TensorBoard, as `core_context.train.get_tensorboard_path` says."""
        return self._core.train.get_tensorboard_path()

    def report_metrics(self, group: str, steps_completed: int, metrics: Dict[str, Any]) -> None:
        """Report metrics of any group."""
        self._core.train.report_metrics(group, steps_completed, metrics)

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """Say that this trial uses a checkpoint, as `core_context.experimental` does."""
        self._core.experimental.report_task_using_checkpoint(checkpoint)

    def report_task_using_model_version(self, model_version: Any) -> None:
        """Say that this trial uses a version of a registered model, as `core_context.experimental` does."""
        self._core.experimental.report_task_using_model_version(model_version)

    @contextlib.contextmanager
    def upload_path(self) -> Iterator[Path]:
        """A folder for results, stored as one checkpoint of all ranks at the end of the block, and kept.

        All ranks must call, as in `on_checkpoint_start` and `on_finish`, and name their files apart, by their rank.
        """
        with self._core.checkpoint.store_path({**self._metadata(), _RESULTS: True}, shard=True) as (path, _):
            yield path

    def _metadata(self) -> Dict[str, Any]:
        return {"steps_completed": self._rounds, _SIZE: self.distributed.size}


def get_default_device(core_context: core.Context) -> Any:
    """This rank's GPU, or the CPU."""
    return _replicas.device_of(core_context.distributed)


class TorchBatchProcessor(abc.ABC):
    """What is done with each batch; there is one of it on every rank."""

    @abc.abstractmethod
    def __init__(self, context: TorchBatchProcessorContext) -> None:
        """Load the model, and keep the context."""

    @abc.abstractmethod
    def process_batch(self, batch: Any, batch_idx: int) -> None:
        """Process a batch of this rank, which is its `batch_idx`-th; without gradients, not on the device yet."""

    def on_checkpoint_start(self) -> None:  # noqa: B027  (needed by few)
        """Before progress is saved, on every rank: store results now, for these batches are not processed again."""

    def on_finish(self) -> None:  # noqa: B027
        """All batches have been processed."""


def torch_batch_process(
    batch_processor_cls: Type[TorchBatchProcessor],
    dataset: Any,
    batch_size: Optional[int] = None,
    max_batches: Optional[int] = None,
    checkpoint_interval: int = 5,
    dataloader_kwargs: Optional[Dict[str, Any]] = None,
    distributed_context: Optional[core.DistributedContext] = None,
) -> None:
    """Process a dataset with indices on all ranks, which take its batches in turn; `max_batches` is for each rank.

    After every `checkpoint_interval` batches of each rank progress is saved, and the slots are left if they are wanted;
    the task then goes on from there. ValueError for a batch size that is given twice, or not at all.
    """
    options = _options(dataloader_kwargs, batch_size, checkpoint_interval)
    info = get_cluster_info()
    ours = not _replicas.joined()
    distributed = distributed_context or _replicas.join(None)
    with core.init(distributed=distributed) as core_context:
        trial = info._trial if info else None
        _randomness.seed_all(trial.trial_seed if trial else 0)
        loader = _data.DataLoader(dataset, **options)
        process = _Process(core_context, batch_processor_cls, loader, max_batches, checkpoint_interval)
        process.run(info.latest_checkpoint if info else None)
    if ours:
        _replicas.leave()


def _options(given: Optional[Dict[str, Any]], batch_size: Optional[int], interval: int) -> Dict[str, Any]:
    options = dict(given or {})
    if (batch_size is None) == (options.get("batch_size") is None):
        raise ValueError("Give either batch_size or batch_size in dataloader_kwargs, not both.")
    if options.get("shuffle") or "sampler" in options or "batch_sampler" in options:
        raise ValueError(
            "dataloader_kwargs cannot have shuffle, sampler or batch_sampler: batches are read in order."
        )
    if isinstance(interval, bool) or not isinstance(interval, int) or interval < 1:
        raise ValueError(f"checkpoint_interval is {interval!r}; it must be a whole number, 1 or more.")
    if batch_size is not None:
        options["batch_size"] = batch_size
    return options


class _Process:
    """Rounds of one batch on every rank; in the last some ranks may have none."""

    def __init__(
        self,
        core_context: core.Context,
        processor: Type[TorchBatchProcessor],
        loader: _data.DataLoader,
        max_batches: Optional[int],
        interval: int,
    ) -> None:
        ranks = core_context.distributed
        self._core = core_context
        self._interval = interval
        self._loader = _data.EpochLoader(loader, 0, ranks.rank, ranks.size, even=False)
        self._rounds = -(-len(loader) // ranks.size)
        if max_batches is not None:
            self._rounds = min(self._rounds, max_batches)
        self._context = TorchBatchProcessorContext(core_context)
        self._processor = processor(self._context)

    def run(self, checkpoint: Optional[str]) -> None:
        context = self._context
        context._rounds = self._done_before(checkpoint) if checkpoint else 0
        batches = self._loader.epoch(0, context._rounds)
        while context._rounds < self._rounds:
            self._process(batches)
            context._rounds += 1
            if context._rounds % self._interval == 0 and context._rounds < self._rounds:
                self._save()
                if self._core.preempt.should_preempt():
                    self._report()
                    logger.info("Stopping after %d batches of each rank to free the slots.", context._rounds)
                    return
        self._report()
        self._processor.on_finish()
        self._save()

    def _process(self, batches: Iterator[Any]) -> None:
        profiler, number = self._core.profiler, self._context._rounds
        with profiler.step(number + 1):
            with profiler.timing("dataloader_next"):
                batch = next(batches, None)
            if batch is not None:
                with profiler.timing("process_batch"), torch.no_grad():
                    self._processor.process_batch(batch, number)

    def _report(self) -> None:
        """What the reducers make of the batches since this process began."""
        metrics = self._context.reduce_metrics(for_training=False)
        if metrics and self._core.distributed.rank == 0:
            self._core.train.report_validation_metrics(self._context._rounds, metrics)

    def _save(self) -> None:
        dialect_log.pytorch.info("Completed steps:  %d and checkpointing", self._context._rounds)
        self._processor.on_checkpoint_start()
        self._core.distributed.gather(None)  # what is called done is done on all ranks
        if self._core.distributed.rank == 0:
            with self._core.checkpoint.store_path(self._context._metadata()):
                pass
            done = self._context._rounds / self._rounds if self._rounds else 1.0  # none of an empty dataset
            self._core.train.report_progress(done)

    def _done_before(self, checkpoint: str) -> int:
        """Rounds that are done; with another number of ranks some batches are processed once more."""
        size = self._core.distributed.size
        metadata: Dict[str, Any] = {}
        if self._core.distributed.rank == 0:
            metadata = self._core.checkpoint.get_metadata(checkpoint)
        metadata = self._core.distributed.broadcast(metadata)
        return int(metadata["steps_completed"]) * int(metadata.get(_SIZE, size)) // size
