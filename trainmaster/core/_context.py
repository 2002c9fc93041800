"""`core.init()` and the context it gives."""

from __future__ import annotations

import dataclasses
import faulthandler
import logging
import os
import signal
import sys
import threading
from typing import Any, Dict, Optional, Type, TypeVar, Union

from trainmaster._info import ClusterInfo, get_cluster_info
from trainmaster.core._checkpoint import CheckpointContext
from trainmaster.core._distributed import DistributedContext, single
from trainmaster.core._preempt import PreemptContext, PreemptMode
from trainmaster.core._profiler import ProfilerContext, profiling_of
from trainmaster.core._records import Records
from trainmaster.core._searcher import SearcherContext
from trainmaster.core._storage_choice import require_shared, storage_for
from trainmaster.core._tensorboard import TensorboardFiles
from trainmaster.core._tensorboard_mode import TensorboardMode
from trainmaster.core._train import EarlyExitReason, TrainContext
from trainmaster.errors import InvalidHP

logger = logging.getLogger("trainmaster.core")


class ExperimentalContext:
    """Ties this trial's metrics to the checkpoint that it evaluates; off the cluster that is only logged."""

    def __init__(self, records: Optional[Records]) -> None:
        self._records = records

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """Say that this trial uses a checkpoint, for inference say: one of `client.get_checkpoint`, or its id."""
        self._report(str(getattr(checkpoint, "uuid", checkpoint)), {})

    def report_task_using_model_version(self, model_version: Any) -> None:
        """Say that this trial uses a version of a registered model. ValueError when it has no checkpoint."""
        checkpoint = getattr(model_version, "checkpoint", None)
        if checkpoint is None:
            raise ValueError(f"{model_version!r} is not a model version with a checkpoint.")
        version = {"model_id": model_version.model_id, "model_version": model_version.model_version}
        self._report(str(checkpoint.uuid), version)

    def _report(self, uuid: str, more: Dict[str, Any]) -> None:
        if self._records is None:
            logger.info("uses checkpoint %s", uuid)
        else:
            self._records.append("uses_checkpoint", uuid=uuid, **more)


@dataclasses.dataclass(eq=False, repr=False)
class Context:
    """All of the Core API in one object; use it as a context manager, or call `start` and `close`."""

    checkpoint: CheckpointContext
    distributed: DistributedContext
    preempt: PreemptContext
    train: TrainContext
    searcher: SearcherContext
    profiler: ProfilerContext
    info: Optional[ClusterInfo]
    records: dataclasses.InitVar[Optional[Records]]

    def __post_init__(self, records: Optional[Records]) -> None:
        self.experimental = ExperimentalContext(records)
        self._records = records

    def alert(
        self, title: Optional[str] = None, description: Optional[str] = None, level: Optional[str] = "info"
    ) -> None:
        """Have people hear of something: in the log and in the timeline of the trial. Off the cluster it is logged.

        `level` is debug, info, warn or error (ValueError); RuntimeError in a task that is no trial.
        """
        known = {"debug": "DEBUG", "info": "INFO", "warn": "WARNING", "warning": "WARNING", "error": "ERROR"}
        name = known.get(str(level or "info").lower())
        if name is None:
            raise ValueError(f"The level of an alert is {level!r}; allowed: debug, info, warn, error.")
        if self._records is None:
            logger.log(getattr(logging, name), "Alert: %s: %s", title or "", description or "")
            return
        if self.info is None or self.info._trial is None:
            raise RuntimeError("alert() is only available in trials; this task is not a trial.")
        self._records.append("alert", title=title or "", description=description or "", level=name)

    def start(self) -> Context:
        self.preempt.start()
        if threading.current_thread() is threading.main_thread() and sys.__stderr__ is not None:
            faulthandler.register(signal.SIGUSR1, file=sys.__stderr__, all_threads=True, chain=False)
        return self

    def close(
        self, exc_type: object = None, exc_val: Optional[BaseException] = None, exc_tb: object = None
    ) -> None:
        """Send what is left; the arguments are those of `__exit__`, which old scripts hand over."""
        self.preempt.close()
        self.distributed.close()
        self.profiler.close()
        self.train._tensorboard.close()
        if self._records is not None:
            self._records.close()

    def __enter__(self) -> Context:
        return self.start()

    def __exit__(self, kind: object, error: Optional[BaseException], trace: object) -> None:
        invalid = isinstance(error, InvalidHP)
        if invalid:
            logger.info(
                "The hyperparameters are invalid: %s. This is reported to the searcher, and the trial ends.",
                error,
            )
            self.train.report_early_exit(EarlyExitReason.INVALID_HP)
        self.close()
        if invalid:
            raise SystemExit(0)


Kind = TypeVar("Kind", bound=Context)


def init(
    *,
    distributed: Optional[DistributedContext] = None,
    checkpoint_storage: Optional[Union[str, Dict[str, Any]]] = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
) -> Context:
    """Build the Core API's context for this worker.

    In a task with more than one slot `distributed` is needed (ValueError). `checkpoint_storage` is a folder
    or a config section, and overrides the config's. Off the cluster reports are logged and checkpoints go to
    a folder of this user.
    """
    info = get_cluster_info()
    if distributed is None:
        slots = sum(info.container_slot_counts) if info else 1
        if slots > 1:
            raise ValueError(
                f"This task has {slots} slots, so core.init() needs distributed=..., for example "
                "core.DistributedContext.from_torch_distributed()."
            )
        distributed = single()
    if checkpoint_storage is None:
        require_shared(info, distributed.size)
    if info is None and os.environ.get("RANK", "0") == "0":
        logger.info("Outside the cluster: metrics and progress are only logged.")
    return build(Context, info, distributed, checkpoint_storage, preempt_mode, tensorboard_mode)


def build(
    kind: Type[Kind],
    info: Optional[ClusterInfo],
    distributed: DistributedContext,
    checkpoint_storage: Optional[Union[str, Dict[str, Any]]],
    preempt_mode: PreemptMode,
    tensorboard_mode: TensorboardMode,
) -> Kind:
    """A context for this worker of the run that `info` describes; None: off the cluster."""
    records = Records(info._run_dir, distributed.rank) if info else None
    step = info._trial._steps_completed if info and info._trial else 0
    profiler = ProfilerContext(records, distributed._sign, distributed.rank, profiling_of(info), step)
    storage = storage_for(info, checkpoint_storage)
    tensorboard = TensorboardFiles(info, distributed, storage, tensorboard_mode)
    return kind(
        checkpoint=CheckpointContext(info, distributed, storage, records),
        distributed=distributed,
        preempt=PreemptContext(
            info._run_dir if info else None, distributed, preempt_mode, records, profiler.flush
        ),
        train=TrainContext(info, distributed, records, tensorboard),
        searcher=SearcherContext(info, distributed, records),
        profiler=profiler,
        info=info,
        records=records,
    )
