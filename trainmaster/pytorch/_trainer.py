"""`pytorch.init()` and `pytorch.Trainer`."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Any, ContextManager, Dict, Iterator, Optional

from trainmaster import core, dialect_log
from trainmaster._info import get_cluster_info
from trainmaster.pytorch import _randomness, _replicas, _state, _units
from trainmaster.pytorch._data import DataLoader, EpochLoader, ForeignLoader
from trainmaster.pytorch._evaluation import Evaluation
from trainmaster.pytorch._training import Training
from trainmaster.pytorch._trial import Callbacks, PyTorchTrial, overrides
from trainmaster.pytorch._trial_context import PyTorchTrialContext
from trainmaster.pytorch._units import UNKNOWN, Batch, Plan, Position, TrainUnit

logger = logging.getLogger("trainmaster.pytorch")


@contextlib.contextmanager
def init(
    *,
    hparams: Optional[Dict[str, Any]] = None,
    exp_conf: Optional[Dict[str, Any]] = None,
    distributed: Optional[core.DistributedContext] = None,
    aggregation_frequency: Optional[int] = None,
    enable_tensorboard_logging: bool = True,
) -> Iterator[PyTorchTrialContext]:
    """The trial's context, with all random numbers seeded by the trial's seed.

    In a task hyperparameters and configuration are the trial's own, unless they are given. Under torchrun, which our
    launch module runs, the ranks find each other by themselves. ValueError for several ranks that cannot.
    """
    info = get_cluster_info()
    trial = info._trial if info is not None else None
    if hparams is None:
        hparams = trial.hparams if trial else {}
    if exp_conf is None:
        exp_conf = trial._config if trial else {}
    ours = not _replicas.joined()
    distributed = _replicas.join(distributed)
    with core.init(distributed=distributed) as core_context:
        context = PyTorchTrialContext(
            core_context, hparams, exp_conf, aggregation_frequency, enable_tensorboard_logging
        )
        _randomness.seed_all(context.get_trial_seed())
        try:
            yield context
        finally:
            context._close()
    if ours:  # not after an error: saying goodbye to ranks that have failed may take for ever
        _replicas.leave()


class Trainer:
    """Trains a PyTorchTrial, on the cluster and off it."""

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
        if not isinstance(trial, PyTorchTrial):
            raise TypeError(f"Trainer() takes an instance of a PyTorchTrial, not {type(trial).__name__}.")
        self._trial = trial
        self._context = context
        self._core = context._core

    def configure_profiler(
        self,
        enabled: bool = True,
        sampling_interval: float = 1,
        samples_per_report: int = 10,
        **older: Any,
    ) -> None:
        """As `core_context.profiler.on()` and `off()`: whether timings are recorded, as they are by default.

        `sync_timings`, `begin_on_batch` and `end_after_batch` are taken from older scripts; the config's section
        `profiling` says the same. TypeError for other names.
        """
        unknown = sorted(set(older) - {"sync_timings", "begin_on_batch", "end_after_batch"})
        if unknown:
            raise TypeError(f"configure_profiler() has no argument {unknown[0]!r}.")
        if older:
            logger.warning(
                "configure_profiler(): %s have no effect; set them in the config's section `profiling`.",
                ", ".join(sorted(older)),
            )
        if enabled:
            self._core.profiler.on(sampling_interval, samples_per_report)
        else:
            self._core.profiler.off()

    def fit(
        self,
        checkpoint_period: Optional[TrainUnit] = None,
        validation_period: Optional[TrainUnit] = None,
        max_length: Optional[TrainUnit] = None,
        reporting_period: TrainUnit = Batch(100),  # noqa: B008  (it never changes)
        checkpoint_policy: str = "best",
        latest_checkpoint: Optional[str] = None,
        step_zero_validation: bool = False,
        test_mode: bool = False,
        profiling_enabled: bool = False,
    ) -> None:
        """Train up to `max_length`, by default the searcher's; ValueError when neither is given.

        A period that is None means: only at the end, where there always is a validation and a checkpoint.
        `checkpoint_policy` saves after each validation (`all`), after one that is the trial's best by the searcher's
        metric (`best`), or not for that (`none`). `latest_checkpoint`, the id of one or a folder, is gone on from; in a
        task it is the trial's own newest unless another is given. `test_mode`, off the cluster, is one batch of each.
        """
        if test_mode and self._context._trial is not None:
            raise ValueError(
                "fit(test_mode=True) is for programs outside the cluster; set a small max_length here."
            )
        if profiling_enabled:
            self.configure_profiler()
        plan = Plan(
            max_length=Batch(1) if test_mode else self._length(max_length),
            checkpoint_period=_units.checked_unit(checkpoint_period, "checkpoint_period"),
            validation_period=_units.checked_unit(validation_period, "validation_period"),
            reporting_period=_units.checked_unit(reporting_period, "reporting_period") or Batch(100),
            checkpoint_policy=_units.checked_policy(checkpoint_policy),
            step_zero_validation=step_zero_validation,
            test_mode=test_mode,
        )
        if latest_checkpoint is None and self._core.info is not None:
            latest_checkpoint = self._core.info.latest_checkpoint
        self._train(plan, latest_checkpoint)

    def _train(self, plan: Plan, checkpoint: Optional[str]) -> None:
        if checkpoint:
            dialect_log.pytorch.info("Restoring trial from checkpoint %s", checkpoint)
        state = self._read(checkpoint) if checkpoint else None
        own = state is not None and _state.is_own(self._context, state)
        first = state["trainer"]["batches"] if state is not None and own else 0
        callbacks = Callbacks(self._trial.build_callbacks(), self._core.profiler)
        context = self._context
        context._first_batch = first
        try:
            callbacks.call("on_trial_startup", first, checkpoint)
            training = self._training(plan, callbacks)
            if state is not None:
                training.resume(state)
                whose = "" if own else "of another trial "
                logger.info(
                    "The training continues after batch %d, from checkpoint %s%s.", first, whose, checkpoint
                )
            del state
            training.run()
        finally:
            context._position = None
            callbacks.call("on_trial_shutdown")

    def _training(self, plan: Plan, callbacks: Callbacks) -> Training:
        trial, context, ranks = self._trial, self._context, self._context.distributed
        loader = self._loader(
            trial.build_training_data_loader(), "training", ranks.rank, ranks.size, even=True
        )
        per_epoch = self._batches_per_epoch(loader, plan)
        seed = context.get_trial_seed()
        if not (context.models and context.optimizers):
            raise ValueError(
                f"{type(trial).__name__} has wrapped {len(context.models)} models and {len(context.optimizers)} "
                "optimizers: pass each to context.wrap_model() and context.wrap_optimizer(), and use what they return. "
                "What is not wrapped is not saved in checkpoints, and each rank would train its own copy."
            )
        evaluation = Evaluation(
            trial, context, callbacks, self._validation_loader(), most_batches=1 if plan.test_mode else None
        )
        if ranks.rank:  # user code has set up alike everywhere; from here on ranks draw different dropouts
            _randomness.seed_all(_randomness.mixed(seed, ranks.rank))
        counted = "global_batch_size" in context.get_hparams()
        position = Position(per_epoch, context.get_global_batch_size() if counted else None)
        context._position = position
        goal = _units.goal_of(context.get_experiment_config())
        return Training(trial, context, plan, goal, callbacks, loader, evaluation, position)

    def _batches_per_epoch(self, loader: Any, plan: Plan) -> int:
        """Return the batches of the rank with the fewest: epochs end together. UNKNOWN if a loader has no length."""
        try:
            own: Optional[int] = len(loader)
        except TypeError:
            own = None
        lengths = self._context.distributed.allgather(own)
        if None in lengths:
            if plan.counts_epochs():
                raise ValueError(
                    "The training loader has no length, so nothing can be counted in epochs: use Batch(n)."
                )
            return UNKNOWN
        if min(lengths) < 1:
            raise ValueError(
                f"The training data has fewer batches than there are slots ({len(lengths)}): lower the batch size."
            )
        return int(min(lengths))

    def _validation_loader(self) -> Any:
        """This rank's part of the validation data, or all of it for the chief that evaluates alone."""
        trial, ranks = self._trial, self._context.distributed
        whole = overrides(trial, "evaluate_full_dataset")
        if whole == overrides(trial, "evaluate_batch"):
            raise TypeError(
                f"{type(trial).__name__} must define either evaluate_batch() or evaluate_full_dataset(), "
                f"and has {'both' if whole else 'neither'}."
            )
        data = trial.build_validation_data_loader()
        if whole:
            return self._loader(data, "validation", 0, 1, even=False)
        return self._loader(data, "validation", ranks.rank, ranks.size, even=False)

    def _loader(self, data: Any, kind: str, rank: int, size: int, even: bool) -> Any:
        if isinstance(data, DataLoader):
            return EpochLoader(data, self._context.get_trial_seed(), rank, size, even)
        if self._context.experimental._data_checks:
            raise TypeError(
                f"build_{kind}_data_loader() returned {type(data).__name__}; return a pytorch.DataLoader, or call "
                "context.experimental.disable_dataset_reproducibility_checks() and split the data among ranks yourself."
            )
        return ForeignLoader(data)

    def _length(self, given: Optional[TrainUnit]) -> TrainUnit:
        searcher = self._context.get_experiment_config().get("searcher") or {}
        length = _units.checked_unit(given, "max_length") or _units.unit_of(searcher.get("max_length"))
        if length is None:
            raise ValueError(
                "The training length is unknown: call fit(max_length=pytorch.Epoch(n)), or set searcher.max_length."
            )
        return length

    def _read(self, checkpoint: str) -> _state.State:
        """Every rank reads; the ranks of a host share one download."""
        folder = Path(checkpoint)
        opened: ContextManager[Any] = contextlib.nullcontext(folder)
        if not folder.is_dir():
            opened = self._core.checkpoint.restore_path(checkpoint)
        with opened as path:
            return _state.read(Path(path))
