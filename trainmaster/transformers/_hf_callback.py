"""`DetCallback`: metrics, checkpoints, progress and pauses of a Hugging Face `Trainer`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Optional

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainmaster import core, dialect_log
from trainmaster._info import get_cluster_info
from trainmaster._searcher_length import check_length

USER_DATA_FILE = "my_data.json"  # Determined's name
#: prefix of the Trainer's metrics -> their group
_GROUPS = {"eval_": "validation", "test_": "test"}
_SPEEDS = ("_runtime", "_per_second", "_compilation_time")


class DetCallback(TrainerCallback):
    """Give it to the Trainer in `callbacks`, and `args.resume_from_checkpoint` to `trainer.train`.

    `args` are the Trainer's own: where the trial has a checkpoint, their `resume_from_checkpoint` is set to its files,
    which are brought to `output_dir`. `filter_metrics` are parts of names of the metrics to report, all by default;
    `user_data` is stored with each checkpoint. ValueError when the searcher's length is not the Trainer's, and at a
    validation that lacks the searcher's metric. Off the cluster reports are logged.
    """

    def __init__(
        self,
        core_context: core.Context,
        args: TrainingArguments,
        filter_metrics: Optional[List[str]] = None,
        user_data: Optional[Dict[str, Any]] = None,
    ) -> None:
        super().__init__()
        self.core_context = core_context
        self.info = get_cluster_info()
        self.user_data = user_data
        trial = self.info._trial if self.info else None
        searcher: Dict[str, Any] = (trial._config.get("searcher") or {}) if trial else {}
        check_length(searcher, args.max_steps, args.num_train_epochs, ("max_steps", "num_train_epochs"))
        self.searcher_metric: Optional[str] = searcher.get("metric")
        self.time_metric: Optional[str] = searcher.get("time_metric")
        wanted = [name for name in (self.searcher_metric, self.time_metric) if name]
        self.filter_metrics = [*filter_metrics, *wanted] if filter_metrics else None
        self.last_train_metrics = -1
        self.last_eval_metrics = -1
        self.last_save = -1
        self.last_progress = 0
        self._leaves = False
        self._force_final_save = True
        self._force_final_evaluate = True
        self.load_last_checkpoint(args)

    def load_last_checkpoint(self, args: TrainingArguments) -> None:
        """Bring the trial's newest checkpoint to `args.output_dir`, on every host."""
        newest = self.info.latest_checkpoint if self.info else None
        if newest is None:
            return
        if getattr(args, "overwrite_output_dir", False):  # an argument until transformers 5
            dialect_log.transformers.info(
                "Skipping downloading last checkpoint from Determined due to overwrite_output_dir=True. — The trial "
                "starts over, without checkpoint %s.",
                newest,
            )
            return
        self.core_context.checkpoint.download(newest, args.output_dir)
        metadata: Dict[str, Any] = {}
        if self.core_context.distributed.rank == 0:
            metadata = self.core_context.checkpoint.get_metadata(newest)
        steps = self.core_context.distributed.broadcast(metadata)["steps_completed"]
        folder = Path(args.output_dir, f"checkpoint-{steps}")
        if not folder.is_dir():
            raise ValueError(f"Checkpoint {newest} has no {folder.name}: it was not written by a Trainer.")
        self.last_save = steps
        args.resume_from_checkpoint = str(folder)
        dialect_log.transformers.info(
            "Latest checkpoint downloaded to %s. — The trial continues from checkpoint %s at step %s.",
            folder, newest, steps,
        )  # fmt: skip

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Optional[Dict[str, Any]] = None,
        **_: Any,
    ) -> None:
        """Report what the Trainer logs, a step once: at the end it logs a summary, which at a pause is of a part."""
        if not logs or not state.is_world_process_zero or (self._leaves and "train_runtime" in logs):
            return
        group, step = _group_of(logs), state.global_step
        metrics = _reported(logs, self.filter_metrics, step, state.epoch)
        if group == "training":
            if self.last_train_metrics != step:
                self.last_train_metrics = step
                self.core_context.train.report_training_metrics(step, metrics)
        elif group != "validation":
            self.core_context.train.report_metrics(group, step, metrics)
        elif self.last_eval_metrics != step:
            self._require_searched(metrics)
            self.last_eval_metrics = step
            self.core_context.train.report_validation_metrics(step, metrics)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """After each step all ranks learn together whether the slots are wanted: then it is the last one."""
        self._report_progress(state)
        over = state.global_step >= state.max_steps
        if not over and self.core_context.preempt.should_preempt():
            self._leaves = True
            control.should_training_stop = True
            control.should_evaluate = False
        if self._leaves or (over and self._force_final_save):
            control.should_save = state.global_step != self.last_save

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """At the end, whatever brought it, there is a checkpoint and, unless the slots are wanted, a validation."""
        if not (control.should_training_stop or state.global_step >= state.max_steps):
            return
        if self._leaves:
            control.should_evaluate = False
        elif (
            self._force_final_evaluate
            and self._validates(args)
            and state.global_step != self.last_eval_metrics
        ):
            control.should_evaluate = True
        if self._leaves or self._force_final_save:
            control.should_save = state.global_step != self.last_save

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """On every rank, of which only the first logs."""
        self.last_eval_metrics = state.global_step

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Store what the Trainer has saved, the files of all ranks as one checkpoint."""
        step = state.global_step
        self.last_save = step
        name = f"checkpoint-{step}"
        folder = Path(args.output_dir, name)
        if state.is_world_process_zero and self.user_data is not None:
            self._on_save_user_data(str(folder))
        self.core_context.distributed.allgather(None)  # all have written
        self.core_context.checkpoint.upload(
            args.output_dir if folder.is_dir() else None,
            {"steps_completed": step},
            shard=True,
            selector=lambda path: path.startswith(f"{name}/"),
        )

    def _on_save_user_data(self, save_path: str) -> None:
        """Programs that keep more than `user_data` override this; what is in the folder is in the checkpoint."""
        Path(save_path, USER_DATA_FILE).write_text(json.dumps(self.user_data), encoding="utf-8")

    def _report_progress(self, state: TrainerState) -> None:
        percent = state.global_step * 100 // max(1, state.max_steps)
        if state.is_world_process_zero and percent > self.last_progress:
            self.last_progress = percent
            self.core_context.train.report_progress(min(1.0, state.global_step / state.max_steps))

    def _validates(self, args: TrainingArguments) -> bool:
        """Where a searcher waits for its metric, in any case."""
        return bool(args.do_eval) or self.searcher_metric is not None

    def _require_searched(self, metrics: Dict[str, Any]) -> None:
        for name, field in ((self.searcher_metric, "metric"), (self.time_metric, "time_metric")):
            if name and name not in metrics:
                known = ", ".join(sorted(metrics))
                raise ValueError(
                    f"searcher.{field} in the config is {name!r}, which is not among the validation metrics: {known}."
                )


def _group_of(logs: Dict[str, Any]) -> str:
    """`validation` or `test` by the prefix that the Trainer gives such metrics, else `training`."""
    for prefix, group in _GROUPS.items():
        if any(name.startswith(prefix) for name in logs):
            return group
    return "training"


def _reported(
    logs: Dict[str, Any], filters: Optional[List[str]], step: int, epoch: Optional[float]
) -> Dict[str, Any]:
    """The metrics to report: without speeds, those that a filter is part of, and `batches` and `epochs`.

    The Trainer's own `epoch` is rounded, `epochs` is not.
    """
    kept = {
        name: value
        for name, value in logs.items()
        if name != "epoch"
        and not name.endswith(_SPEEDS)
        and (not filters or any(part in name for part in filters))
    }
    return {"batches": step, "epochs": epoch, **kept}


def overwrite_arguments(
    args: TrainingArguments, hparams: Optional[Dict[str, Any]] = None
) -> TrainingArguments:
    """Set the fields of `args` that hyperparameters name, at the top or under `training_arguments`, and return it.

    By default they are the trial's own; off the cluster there are none. Call it before anything else uses `args`.
    ValueError for a name under `training_arguments` that `args` has no field for; others at the top are the script's.
    """
    if hparams is None:
        info = get_cluster_info()
        hparams = info._trial.hparams if info and info._trial else {}
    nested = dict(hparams.get("training_arguments") or {})
    unknown = sorted(name for name in nested if not hasattr(args, name))
    if unknown:
        raise ValueError(
            f"training_arguments has {', '.join(unknown)}, which TrainingArguments does not support."
        )
    for name, value in {**hparams, **nested}.items():
        if hasattr(args, name):
            before = getattr(args, name)
            setattr(args, name, float(value) if isinstance(before, float) else value)
    return args
