"""`core_context.train`: metrics, progress, status."""

from __future__ import annotations

import enum
import logging
import math
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from trainmaster import dialect_log
from trainmaster._info import ClusterInfo
from trainmaster.core._distributed import DistributedContext
from trainmaster.core._media import MediaReports
from trainmaster.core._records import Records, encode_metrics, encode_strict
from trainmaster.core._server import patiently
from trainmaster.core._tensorboard import Mangles, Selects, TensorboardFiles

logger = logging.getLogger("trainmaster.core")

GROUP_CHARACTERS = 128


class EarlyExitReason(enum.Enum):
    """Why a trial ends before its searcher wants it to."""

    INVALID_HP = "EXITED_REASON_INVALID_HP"
    USER_REQUESTED_STOP = "EXITED_REASON_USER_REQUESTED_STOP"


class TrainContext:
    """Reports of a trial; by convention only the chief (rank 0) reports.

    Off the cluster the reports are logged, and nothing else happens.
    """

    _any_rank_reports = False  # as in detached runs, whose tutorials do so

    def __init__(
        self,
        info: Optional[ClusterInfo],
        distributed: DistributedContext,
        records: Optional[Records],
        tensorboard: TensorboardFiles,
    ) -> None:
        self._info = info
        self._distributed = distributed
        self._records = records
        self._tensorboard = tensorboard
        self._exit_reported = False
        self._metadata: Optional[Dict[str, Any]] = None  # set here, on its way to the server
        self._latest: Dict[str, Tuple[int, Dict[str, Any]]] = {}  # of each group, to see what is said twice
        self._warned_of_another_value = False
        self._warned_of_rank = False
        self._media = MediaReports(self._append_media if records is not None else None)
        #: of what a cluster shows on its pages
        self._level = logging.INFO if records is None else logging.DEBUG

    def report_training_metrics(
        self,
        steps_completed: int,
        metrics: Dict[str, Any],
        batch_metrics: Optional[List[Dict[str, Any]]] = None,
    ) -> None:
        """Report metrics of the group `training`, with those of single batches if wanted."""
        self._report("training", steps_completed, metrics, batch_metrics, call="report_training_metrics(")

    def report_validation_metrics(self, steps_completed: int, metrics: Dict[str, Any]) -> None:
        """Report metrics of the group `validation`, for the searcher too; RuntimeError for a None in them."""
        empty = [name for name, value in metrics.items() if value is None]
        if empty:
            raise RuntimeError(
                f"Validation metrics must have values; None was given for: {', '.join(map(str, empty))}."
            )
        self._report("validation", steps_completed, metrics, call="report_validation_metrics(")

    def report_metrics(self, group: str, steps_completed: int, metrics: Dict[str, Any]) -> None:
        """Report metrics of any group; its name has no dot in it and at most 128 characters (ValueError).

        Reports for the same group and step merge; of a key that is reported twice the first value stands, and an
        error in the log names it.
        """
        if not isinstance(group, str) or not group or "." in group:
            raise ValueError(f"The metric group {group!r} must be a name without '.'.")
        if len(group) > GROUP_CHARACTERS:
            raise ValueError(
                f"The metric group {group[:40]!r}… has {len(group)} characters, allowed: {GROUP_CHARACTERS}."
            )
        self._report(group, steps_completed, metrics, call=f"report_metrics(group={group}, ")

    def _report(
        self,
        group: str,
        steps_completed: int,
        metrics: Dict[str, Any],
        batch_metrics: Optional[List[Dict[str, Any]]] = None,
        *,
        call: str,
    ) -> None:
        steps = self._step(steps_completed)
        where = f"{group} metrics at step {steps}"
        kept = encode_metrics(metrics, where)
        dialect_log.core.info("%ssteps_completed=%d, metrics=%s)", call, steps, kept)
        self._warn_of_doubles(group, steps, kept)
        fields: Dict[str, Any] = {"metrics": kept}
        if batch_metrics is not None:
            fields["batch_metrics"] = [encode_metrics(batch, f"batch {where}") for batch in batch_metrics]
        if self._records is not None:
            self._records.append(
                "metrics", group=group, steps_completed=steps, run_id=self._run_id(), **fields
            )

    def _run_id(self) -> Optional[int]:
        return self._info.trial._trial_run_id if self._info and self._info._trial else None

    def _step(self, steps_completed: int) -> int:
        """The step as a number, which is this rank's sign of life, too. ValueError for what is none."""
        if isinstance(steps_completed, bool) or not hasattr(steps_completed, "__index__"):
            raise ValueError(f"steps_completed is {steps_completed!r}; it must be a whole number.")
        steps = int(steps_completed)
        if steps < 0:
            raise ValueError(f"steps_completed is {steps}; it must be 0 or more.")
        self._distributed._sign.step(steps)
        return steps

    def _warn_of_doubles(self, group: str, steps: int, metrics: Dict[str, Any]) -> None:
        """Say once that a value will not count, because this rank has said another, or others may."""
        known, standing = self._latest.get(group, (-1, {}))
        if known != steps:
            self._latest[group] = (steps, metrics)
        else:
            said = [name for name, value in metrics.items() if standing.get(name, value) != value]
            if said and not self._warned_of_another_value:
                self._warned_of_another_value = True
                logger.error(
                    "%s of %s at step %d was already reported with another value. The first value is kept: overwriting "
                    "existing metric keys is not supported. Further cases are not logged.",
                    ", ".join(said), group, steps,
                )  # fmt: skip
            self._latest[group] = (steps, {**metrics, **standing})
        self._warn_of_rank("metrics", "a metric")

    def _warn_of_rank(self, what: str, one: str) -> None:
        is_unusual = self._distributed.rank != 0 and not self._any_rank_reports
        if is_unusual and self._records is not None and not self._warned_of_rank:
            self._warned_of_rank = True
            logger.warning(
                "Rank %d reports %s; usually only rank 0 (the chief) does. They are kept. If several ranks "
                "report %s for the same step, the first value is kept.",
                self._distributed.rank, what, one,
            )  # fmt: skip

    def report_images(
        self,
        steps_completed: int,
        images: Mapping[str, Any],
        captions: Optional[Mapping[str, Any]] = None,
    ) -> None:
        """Report images by name, each one or a list of them, for the Media page of the trial.

        An image is an array or tensor (its axes HW, HWC or CHW; uint8, or floats from 0 to 1), an image of PIL, a
        figure of matplotlib, or a PNG, JPEG, GIF or WebP file as bytes or by its path: at most 5 MB, 64 of a name.
        `captions` has a text, or one for each image, by the same names. What was reported first for a step stays.
        """
        self._media.images(self._step(steps_completed), images, captions)

    def report_histograms(self, steps_completed: int, values: Mapping[str, Any]) -> None:
        """Report how the numbers of arrays, tensors or lists are spread, by name: they are counted here in 64 bins."""
        self._media.histograms(self._step(steps_completed), values)

    def report_text(self, steps_completed: int, texts: Mapping[str, str]) -> None:
        """Report texts by name, such as samples of a language model; of each the first 100,000 characters are kept."""
        self._media.texts(self._step(steps_completed), texts)

    def report_table(
        self, steps_completed: int, name: str, columns: Sequence[Any], rows: Sequence[Sequence[Any]]
    ) -> None:
        """Report a table; ValueError for a row of another length. At most 50 columns and 1,000 rows are kept."""
        self._media.table(self._step(steps_completed), name, columns, rows)

    def _append_media(self, type_: str, **fields: Any) -> None:
        self._warn_of_rank("images, histograms, texts or tables", "one of a name")
        if self._records is not None:
            self._records.append(type_, run_id=self._run_id(), **fields)

    def report_progress(self, progress: float) -> None:
        """Report how much of the training is done, 0 to 1 (ValueError)."""
        value = float(progress)
        if math.isnan(value) or not 0 <= value <= 1:
            raise ValueError(f"The progress is {progress!r}; it must be between 0 and 1.")
        self._distributed._sign.beat()
        dialect_log.core.log(self._level, "report_progress with progress=%s", value)
        if self._records is not None:
            self._records.append("progress", progress=value)

    def set_status(self, status: str) -> None:
        """Say in a few words what the trial is doing; shown beside its state."""
        dialect_log.core.log(self._level, "status: %s", status)
        if self._records is not None:
            self._records.append("status", text=str(status))

    def set_metadata(self, metadata: Dict[str, Any]) -> Dict[str, Any]:
        """Replace all metadata of the trial's run, and return them; ValueError for what is no object of JSON."""
        plain: Dict[str, Any] = encode_strict(metadata, "The metadata")
        if not isinstance(plain, dict):
            raise ValueError(f"The metadata is of type {type(metadata).__name__}; it must be a dict.")
        self._metadata = plain
        dialect_log.core.log(self._level, "set_metadata(%s)", plain)
        if self._records is not None:
            self._records.append("metadata", metadata=plain)
        return plain

    def get_metadata(self) -> Optional[Dict[str, Any]]:
        """The metadata of the trial: as this rank set them, else as the server has them; None without any.

        While the server is away this waits for it.
        """
        if self._metadata is not None or self._info is None:
            return self._metadata
        path = f"/api/v1/trials/{self._info.trial.trial_id}"
        answer = patiently(self._info, "The metadata", lambda client: client.get(path).json())
        metadata: Optional[Dict[str, Any]] = answer["trial"].get("metadata")
        return metadata

    def get_tensorboard_path(self) -> Path:
        """A folder of this rank for files of TensorBoard, for example of a SummaryWriter.

        Unless `tensorboard_mode` is MANUAL, event files come to the server while they grow, or are copied beside the
        checkpoints where those lie in `shared_fs` or `directory` storage. `trainmaster trial download-tensorboard` has
        those on the server, and event files of all reported metrics, which need no files of their own.
        """
        return self._tensorboard.path()

    def upload_tensorboard_files(
        self, selector: Optional[Selects] = None, mangler: Optional[Mangles] = None
    ) -> None:
        """Copy the files that are new or have changed beside the checkpoints; RuntimeError but in MANUAL mode.

        `selector(relative path)` picks files, `mangler(relative path, rank)` names them.
        """
        self._tensorboard.upload(selector, mangler)

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        """Say why the trial ends early; only the first reason counts."""
        if self._exit_reported:
            logger.warning("The early exit %s is ignored: an early exit was already reported.", reason.name)
            return
        self._exit_reported = True
        dialect_log.core.info("report_early_exit(%s)", reason)
        if self._records is not None:
            self._records.append("early_exit", reason=reason.name)

    def get_experiment_best_validation(self) -> Optional[float]:
        """The searcher metric's best value in the experiment so far, None when there is none yet.

        While the server is away this waits for it.
        """
        if self._info is None:
            return None
        from trainmaster.http import Answered  # not paid for by a training that never asks

        path = (
            f"/api/v1/experiments/{self._info.trial.experiment_id}/searcher/best_searcher_validation_metric"
        )
        try:
            answer = patiently(
                self._info, "The best validation", lambda client: client.get(path).json() or {}
            )
        except Answered as error:
            if error.status == 404:
                return None
            raise
        metric = answer.get("metric")
        return None if metric is None else float(metric)
