"""The training loop: batches, what is due after them, and whether to end before the length is reached."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import itertools
import logging
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import torch

from trainmaster.core import Context, EarlyExitReason
from trainmaster.pytorch import _state
from trainmaster.pytorch._evaluation import Evaluation, held, to_numbers
from trainmaster.pytorch._randomness import state as random_state
from trainmaster.pytorch._trial import Callbacks, PyTorchTrial
from trainmaster.pytorch._trial_context import PyTorchTrialContext
from trainmaster.pytorch._units import UNKNOWN, Goal, Plan, Position

logger = logging.getLogger("trainmaster.pytorch")

_NOTHING = object()
#: between two looks of a gang, which exchanges a message for each: short beside the grace of a stop
LOOK_SECONDS = 1.0
_MOST_BATCHES = 1000


@dataclasses.dataclass(eq=False)
class Training:
    """One trial's way from where it stands to its length, or until it has to leave.

    All ranks run the same steps in the same order, since most of them are exchanges between all.
    """

    trial: PyTorchTrial
    context: PyTorchTrialContext
    plan: Plan
    goal: Goal
    callbacks: Callbacks
    loader: Any
    evaluation: Evaluation
    position: Position

    def __post_init__(self) -> None:
        self._core = self.context._core
        self._leaving = Leaving(self._core)
        self._window: List[Dict[str, Any]] = []
        self._best: Optional[float] = None
        self._validated_at = -1
        self._saved_at = -1
        self._save_due = False
        self._counts = True

    def resume(self, state: _state.State) -> None:
        """Go on from the state of a checkpoint; from one of another trial, as this trial's step 0."""
        self.callbacks.call("on_checkpoint_load_start", state)
        context, position = self.context, self.position
        _state.restore(context, state)
        self.callbacks.load_state_dict(state["callbacks"])
        if not _state.is_own(context, state):
            return
        kept = state["trainer"]
        position.batches, position.epochs = kept["batches"], kept["epochs"]
        position.batch_in_epoch = kept["batch_in_epoch"]
        if kept["per_epoch"] != position.per_epoch:
            position.batch_in_epoch = position.batch_in_epoch * position.per_epoch // kept["per_epoch"]
            logger.warning(
                "An epoch had %d batches and now has %d: the trial continues at batch %d of epoch %d.",
                kept["per_epoch"],
                position.per_epoch,
                position.batch_in_epoch,
                position.epochs,
            )
        self._best, self._validated_at = kept["best"], kept["validated_at"]
        self._saved_at = position.batches
        ranks = context.distributed
        _state.restore_randomness(
            state["rng_state"], ranks.rank, ranks.size, context.get_trial_seed(), position.batches
        )

    def run(self) -> None:
        """Train, validate, save; returns when the length is reached or the trial has saved and is to leave."""
        for model in self.context.models:
            model.train()
        self.callbacks.call("on_training_start")
        if self.plan.step_zero_validation and self.position.batches == 0:
            self._validate()
        if self.plan.max_length.reached(self.position):
            self._finish()
            return
        with self._profiled() as step:
            while not self._epoch(step):
                pass

    def _epoch(self, step: Any) -> bool:
        """Train the rest of the current epoch; True when the training is over."""
        position, profiler = self.position, self._core.profiler
        if position.batch_in_epoch == 0:
            self.callbacks.call("on_training_epoch_start", position.epochs)
        batches = self._batches()
        for _ in range(position.per_epoch - position.batch_in_epoch):
            with profiler.step(position.batches + 1):
                with profiler.timing("dataloader_next"):
                    batch = next(batches, _NOTHING)
                if batch is _NOTHING:
                    raise RuntimeError(
                        f"The training loader ended early in epoch {position.epochs}, "
                        f"after {position.batch_in_epoch} batches."
                    )
                self._train(batch)
            step()
            if position.batch_in_epoch == 0:
                self.callbacks.call("on_training_epoch_end", position.epochs - 1)
            if self._after_batch():
                return True
        return False

    def _batches(self) -> Iterator[Any]:
        """The rest of the current epoch; pass after pass of a loader that has no length."""
        position = self.position
        yield from self.loader.epoch(position.epochs, position.batch_in_epoch)
        for number in itertools.count(1):
            begun = position.batches
            if position.per_epoch == UNKNOWN:
                yield from self.loader.epoch(number)
            if position.batches == begun:  # nothing more comes
                return

    def _train(self, batch: Any) -> None:
        context, position, profiler = self.context, self.position, self._core.profiler
        self._count(batch)
        if context.experimental._auto_to_device:
            with profiler.timing("to_device"):
                batch = context.to_device(batch)
        exchanges = context._exchanges()
        with profiler.timing("train_batch"), context._gathering(), context._precision():
            metrics = self.trial.train_batch(batch, position.epochs, position.batches)
        if exchanges and context.experimental._auto_amp:
            context._scaler.update()
        self._window.append(held(metrics))
        position.advance()
        with profiler.timing("step_lr_schedulers"):
            self._step_schedulers()

    def _count(self, batch: Any) -> None:
        """Count its samples, if they can be: a training does not end for a rate."""
        if not self._counts:
            return
        try:
            self._core.profiler.count("samples", self.trial.get_batch_length(batch))
        except TypeError as error:
            self._counts = False
            logger.warning("Samples are not counted. %s", error)

    def _step_schedulers(self) -> None:
        position, aggregation = self.position, self.context._optimizations.aggregation_frequency
        for scheduler in self.context.lr_schedulers:
            scheduler.after_batch(
                position.batches, aggregation, position.epochs, position.batch_in_epoch == 0
            )

    def _after_batch(self) -> bool:
        """Report, validate and save what is due; True when the training is over."""
        plan, position = self.plan, self.position
        over = plan.max_length.reached(position)
        validate = plan.validation_period is not None and plan.validation_period.due(position)
        if plan.checkpoint_period is not None and plan.checkpoint_period.due(position):
            self._save_due = True
        report = over or validate or plan.reporting_period.due(position)
        if report:
            self._report()
        if over:
            self._finish()
            return True
        if validate:
            self._validate()
        # in the middle of an aggregation there are gradients that no checkpoint holds
        whole = position.batches % self.context._optimizations.aggregation_frequency == 0
        if self._save_due and whole:
            self._save()
        if not whole:
            return False
        leave = self._leaving.ask(position.batches, self.context._stop_requested, now=report)
        if leave is not None:
            self._leave(leave)
        return leave is not None

    def _finish(self) -> None:
        if self._validated_at != self.position.batches:
            self._validate()
        if self._saved_at != self.position.batches:
            self._save()
        if self._chief:
            self._core.train.report_progress(1.0)

    def _leave(self, why: Leave) -> None:
        self._report()
        if self._saved_at != self.position.batches:
            self._save()
        if not self._chief:
            return
        if why is Leave.STOP_REQUESTED:
            logger.info("The trial requested to stop at batch %d.", self.position.batches)
            self._core.train.report_early_exit(EarlyExitReason.USER_REQUESTED_STOP)
        else:
            logger.info(
                "The trial stops at batch %d to free its slots; its state is saved.", self.position.batches
            )

    def _report(self) -> None:
        """The metrics of the window's batches, averaged over them, and over the ranks unless that is switched off."""
        if not self._window:
            return
        context, profiler, batches = self.context, self._core.profiler, self.position.batches
        with profiler.timing("from_device"):
            each = [to_numbers(metrics) for metrics in self._window]
        self._window = []
        averages = _averages(each)
        with profiler.timing("reduce_metrics"):
            if context._optimizations.average_training_metrics:
                averages = _averages(context.distributed.allgather(averages))
            averages.update(context.experimental.reduce_metrics(for_training=True))
        context._reset_for(training=True)
        self.callbacks.call("on_training_workload_end", averages, each)
        if self._chief:
            if averages:
                self._core.train.report_training_metrics(batches, self._with_epoch(averages))
            whole = self.plan.max_length.in_batches(self.position)
            self._core.train.report_progress(min(1.0, batches / whole))

    def _validate(self) -> None:
        batches = self.position.batches
        metrics = self.evaluation.run()
        self._validated_at = batches
        if self._chief and metrics:
            self._core.train.report_validation_metrics(batches, self._with_lengths(metrics))
        # the chief's word counts: numbers that reducers or callbacks make may differ among ranks, saving together not
        value = self.context.distributed.broadcast(self._judged(metrics) if self._chief else None)
        is_best = value is not None and self.goal.better(value, self._best)
        if is_best:
            self._best = value
        policy = self.plan.checkpoint_policy
        if batches and (policy == "all" or (policy == "best" and is_best)):
            self._save_due = True

    def _judged(self, metrics: Dict[str, Any]) -> Optional[float]:
        """The searcher's metric among these; None, with a word, when it is not there or no number."""
        name = self.goal.name
        if name is None:
            return None
        value = to_numbers({name: metrics[name]}, keep_others=True)[name] if name in metrics else None
        if isinstance(value, float):
            return value
        logger.warning(
            "The searcher's metric %r is %s the validation metrics (%s): no checkpoint can be the best by it.",
            name,
            "no number among" if name in metrics else "not among",
            ", ".join(sorted(map(str, metrics))) or "there are none",
        )
        return None

    def _save(self) -> None:
        """Store a checkpoint: the chief writes, with the random numbers of all ranks."""
        self._save_due = False
        position, context = self.position, self.context
        states = context.distributed.gather(random_state())
        uuid: Optional[str] = None
        if states is not None:
            state = _state.collect(context, states)
            state["callbacks"] = self.callbacks.state_dict()
            state["trainer"] = {
                "trial_id": context.get_trial_id(),
                "batches": position.batches,
                "epochs": position.epochs,
                "batch_in_epoch": position.batch_in_epoch,
                "per_epoch": position.per_epoch,
                "best": self._best,
                "validated_at": self._validated_at,
            }
            self.callbacks.call("on_checkpoint_save_start", state)
            uuid = self._store(state)
        self._saved_at = position.batches
        self.callbacks.call("on_checkpoint_upload_end", context.distributed.broadcast(uuid))

    def _store(self, state: _state.State) -> str:
        metadata = {
            "steps_completed": self.position.batches,
            "framework": f"torch-{torch.__version__}",
            "format": "pickle",
        }
        with self._core.checkpoint.store_path(metadata) as (folder, uuid):
            _state.write(Path(folder), state)
            _state.describe(Path(folder), self.context, type(self.trial))
            self.callbacks.call("on_checkpoint_write_end", str(folder))
            self.callbacks.call("on_checkpoint_end", str(folder))
        return uuid

    def _with_epoch(self, metrics: Dict[str, Any]) -> Dict[str, Any]:
        """With `epoch`, by which charts can be drawn, unless the trial has a metric of that name."""
        position = self.position
        if position.per_epoch == UNKNOWN:
            return metrics
        return {"epoch": position.epochs + position.batch_in_epoch / position.per_epoch, **metrics}

    def _with_lengths(self, metrics: Dict[str, Any]) -> Dict[str, Any]:
        """A validation's also with `batches` and `epochs`, which a search can have as its `time_metric`.

        Nothing is in epochs where the loader has no length, and a trial's own metrics of these names stand.
        """
        position = self.position
        epochs = {} if position.per_epoch == UNKNOWN else {"epochs": position.epochs}
        return {"batches": position.batches, **epochs, **self._with_epoch(metrics)}

    @contextlib.contextmanager
    def _profiled(self) -> Iterator[Any]:
        """The step of the trial's torch profiler, if it has one."""
        profiler = self.context._torch_profiler
        if profiler is None:
            yield lambda: None
            return
        with profiler:
            yield profiler.step

    @property
    def _chief(self) -> bool:
        return self.context.distributed.rank == 0


def _averages(metrics: List[Dict[str, Any]]) -> Dict[str, float]:
    """Return the average of each metric over the dicts that have it."""
    values: Dict[str, List[float]] = {}
    for each in metrics:
        for name, value in each.items():
            values.setdefault(name, []).append(value)
    return {name: sum(found) / len(found) for name, found in values.items()}


class Leave(enum.Enum):
    """Why: the slots are wanted, or the trial's own code asked for it."""

    PREEMPTED = 1
    STOP_REQUESTED = 2


class Leaving:
    """Asked after every batch, by every rank alike.

    The chief says after each look at how many batches from there the next one is, by how fast they go.
    """

    def __init__(self, core_context: Context) -> None:
        self._core = core_context
        self._next_look = 0
        self._looked_at = -1
        self._looked = time.monotonic()

    def ask(self, batches: int, stop_requested: bool, now: bool) -> Optional[Leave]:
        """None to continue. `now`: look in any case, as all ranks do after the same batches."""
        alone = self._core.distributed.size == 1
        if not (alone or now or batches >= self._next_look):
            return None
        asked = stop_requested if alone else self._any(batches, stop_requested)
        if self._core.preempt.should_preempt():
            return Leave.PREEMPTED
        return Leave.STOP_REQUESTED if asked else None

    def _any(self, batches: int, stop_requested: bool) -> bool:
        answers = self._core.distributed.allgather((stop_requested, self._batches_to_next(batches)))
        self._next_look = batches + answers[0][1]
        return any(asked for asked, _ in answers)

    def _batches_to_next(self, batches: int) -> int:
        now = time.monotonic()
        done, taken = batches - self._looked_at, now - self._looked
        first = self._looked_at < 0
        self._looked_at, self._looked = batches, now
        if first or taken <= 0 or done <= 0:
            return 1
        return max(1, min(_MOST_BATCHES, int(done / taken * LOOK_SECONDS)))
