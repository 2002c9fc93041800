"""`DetCallback`: metrics, checkpoints, progress and pauses of a Lightning `Trainer`."""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional, Set

from lightning.pytorch import Callback, LightningModule, Trainer

from trainmaster import core
from trainmaster._info import get_cluster_info
from trainmaster._searcher_length import check_length
from trainmaster.pytorch import _randomness

logger = logging.getLogger("trainmaster.lightning")

CHECKPOINT_NAME = "lightning.ckpt"  # a file, or the folder of a strategy that shards


class Sorted:
    """Parts a Trainer's metrics, which it keeps in one dict, into those of training and of validation.

    A metric is of the group in which it was seen to change; of both, where both log one of its name.
    """

    def __init__(self) -> None:
        self._seen: Dict[str, float] = {}
        self._names: Dict[str, Set[str]] = {}

    def look(self, metrics: Dict[str, Any]) -> Set[str]:
        """The names of the numbers that are new or other than at the last look."""
        numbers = {name: float(value) for name, value in metrics.items()}
        changed = {name for name, value in numbers.items() if self._seen.get(name) != value}
        self._seen = numbers
        return changed

    def of(self, group: str, metrics: Dict[str, Any]) -> Dict[str, float]:
        """The group's metrics."""
        names = self._names.setdefault(group, set())
        names.update(self.look(metrics))
        return {name: value for name, value in self._seen.items() if name in names}


class DetCallback(Callback):
    """Give it to the Trainer in `callbacks`, and start by `trainer.fit(module, data, ckpt_path=callback.ckpt_path)`.

    `ckpt_path` has the files of the trial's newest checkpoint, or is None. All ranks make the callback. A checkpoint is
    stored every `checkpoint_epochs` epochs (0: none), at the end, and when the slots are wanted, which is asked after
    every step; a step is one of the optimizer's. ValueError at the start when the searcher's length is not the
    Trainer's. Off the cluster reports are logged.
    """

    def __init__(self, core_context: core.Context, checkpoint_epochs: int = 1) -> None:
        super().__init__()
        self.core_context = core_context
        self.info = get_cluster_info()
        self._ranks = core_context.distributed
        self._checkpoint_epochs = checkpoint_epochs
        self._metrics = Sorted()
        self._leaves = False
        self._saved_at = -1
        self._stepped = -1
        self._percent = 0
        self._random_states: Optional[List[Any]] = None  # of all ranks, in what is being saved or was loaded
        self._fetched: Optional[Path] = None
        self.ckpt_path = self._fetch()

    def _fetch(self) -> Optional[str]:
        newest = self.info.latest_checkpoint if self.info else None
        if newest is None:
            return None
        self._fetched = self._shared_folder()
        self.core_context.checkpoint.download(newest, self._fetched)
        return str(self._fetched / CHECKPOINT_NAME)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trial = self.info._trial if self.info else None
        searcher = (trial._config.get("searcher") or {}) if trial else {}
        check_length(searcher, trainer.max_steps, trainer.max_epochs, ("max_steps", "max_epochs"))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stepped = trainer.global_step
        if self._fetched is None:
            return
        logger.info("The trial continues at step %d.", trainer.global_step)
        self._saved_at = trainer.global_step
        self._remove(self._fetched)
        if self._random_states is not None and len(self._random_states) == self._ranks.size:
            _randomness.restore(self._random_states[self._ranks.rank])

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        if step == self._stepped:  # gradients of several batches add up
            return
        self._stepped = step
        if self._ranks.rank == 0:
            self._report_progress(trainer)
            if step % trainer.log_every_n_steps == 0:
                self._report("training", trainer)
        over = 0 < trainer.max_steps <= step
        # after the last batch of an epoch its validation comes first: the searcher waits for that
        if not (trainer.is_last_batch or over) and self.core_context.preempt.should_preempt():
            self._leave(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._metrics.look(trainer.callback_metrics)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking and self._ranks.rank == 0:
            self._report("validation", trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._leaves:
            return
        if self.core_context.preempt.should_preempt():
            self._leave(trainer)
        elif self._checkpoint_epochs and (trainer.current_epoch + 1) % self._checkpoint_epochs == 0:
            self._save(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._leaves:
            self._save(trainer)

    def state_dict(self) -> Dict[str, Any]:
        return {"random_states": self._random_states}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self._random_states = state_dict["random_states"]

    def _report(self, group: str, trainer: Trainer) -> None:
        metrics = self._metrics.of(group, trainer.callback_metrics)
        if metrics:
            numbers = {"epochs": self._epochs(trainer), **metrics}
            self.core_context.train.report_metrics(group, trainer.global_step, numbers)

    def _report_progress(self, trainer: Trainer) -> None:
        total = trainer.estimated_stepping_batches
        if not total or math.isinf(total):
            return
        share = min(1.0, trainer.global_step / total)
        if int(share * 100) > self._percent:
            self._percent = int(share * 100)
            self.core_context.train.report_progress(share)

    def _epochs(self, trainer: Trainer) -> float:
        batches = trainer.num_training_batches
        done = trainer.fit_loop.epoch_loop.batch_progress.current.ready
        share = done / batches if batches and not math.isinf(batches) else 0.0
        return float(trainer.current_epoch + share)

    def _leave(self, trainer: Trainer) -> None:
        """Save, and have the Trainer end after this batch, without a validation and whatever it has for a minimum."""
        self._save(trainer)
        self._leaves = True
        trainer.limit_val_batches = 0
        trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None
        trainer.should_stop = True
        logger.info("The trial stops at step %d to free its slots; its state is saved.", trainer.global_step)

    def _save(self, trainer: Trainer) -> None:
        """Store a checkpoint of all ranks, unless this step has one."""
        step = trainer.global_step
        if step == self._saved_at:
            return
        self._saved_at = step
        self._random_states = self._ranks.allgather(_randomness.state())
        folder = self._shared_folder()
        trainer.save_checkpoint(folder / CHECKPOINT_NAME)
        self._ranks.allgather(None)  # all have written
        self.core_context.checkpoint.upload(
            folder if folder.is_dir() else None, {"steps_completed": step}, shard=True
        )
        self._remove(folder)

    def _shared_folder(self) -> Path:
        """A new folder, of the same name on all hosts: strategies that shard write where the chief says."""
        near = "." if self._ranks.local_size == self._ranks.size else None
        name = tempfile.mkdtemp(prefix="checkpoint-", dir=near) if self._ranks.rank == 0 else None
        return Path(self._ranks.broadcast(str(Path(name).resolve()) if name else None))

    def _remove(self, folder: Path) -> None:
        self._ranks.allgather_local(None)  # all have read
        if self._ranks.local_rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
