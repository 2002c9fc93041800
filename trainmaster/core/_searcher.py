"""`core_context.searcher`: the loop over searcher operations, of which there is one per trial, up to
`max_length`.

The searcher stops a trial early by preempting it, so the old loop needs no other answer.
"""

from __future__ import annotations

import enum
from typing import Any, Dict, Iterator, Optional, Tuple

from trainmaster import dialect_log
from trainmaster._info import ClusterInfo
from trainmaster.core._distributed import DistributedContext
from trainmaster.core._records import Records


class Unit(enum.Enum):
    """What a searcher's lengths count."""

    EPOCHS = "EPOCHS"
    RECORDS = "RECORDS"
    BATCHES = "BATCHES"


class SearcherMode(enum.Enum):
    """Who may iterate over the operations: all ranks together, or the chief alone."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"


class SearcherOperation:
    """Train until `length` (an absolute target in the searcher's units), then report the searcher metric."""

    length: int

    def __init__(self, length: int, chief: bool, records: Optional[Records]) -> None:
        self.length = length
        self._chief = chief
        self._records = records
        self._completed = False

    def report_progress(self, length: float) -> None:
        """How far the trial is, in the same units as `length`. RuntimeError unless called by the chief."""
        self._require("report_progress")
        fraction = min(1.0, max(0.0, float(length) / self.length)) if self.length else 1.0
        if self._records is None:
            dialect_log.core.info("progress report: %s/%s", length, self.length)
        else:
            self._records.append("progress", progress=fraction)

    def report_completed(self, searcher_metric: Any) -> None:
        """The operation is done. RuntimeError when called twice or not by the chief.

        The searcher reads its metric from the validation metrics; the value here is only logged.
        """
        self._require("report_completed")
        self._completed = True
        dialect_log.core.info(
            "SearcherOperation Complete: searcher_metric=%s — length %s", searcher_metric, self.length
        )
        if self._records is not None:
            self._records.append("progress", progress=1.0)

    def _require(self, name: str) -> None:
        if not self._chief:
            raise RuntimeError(f"{name}() may only be called by rank 0.")
        if self._completed:
            raise RuntimeError(f"{name}() was called after the operation was completed.")


class SearcherContext:
    """The operations of this trial."""

    def __init__(
        self, info: Optional[ClusterInfo], distributed: DistributedContext, records: Optional[Records]
    ) -> None:
        config: Dict[str, Any] = info._trial._config if info and info._trial else {}
        self._length, self._unit = _max_length(config, on_cluster=info is not None)
        self._distributed = distributed
        self._records = records

    def get_configured_units(self) -> Optional[Unit]:
        """What `max_length` counts; None when it is a plain number."""
        return self._unit

    def operations(
        self, searcher_mode: SearcherMode = SearcherMode.WorkersAskChief, auto_ack: bool = True
    ) -> Iterator[SearcherOperation]:
        """Iterate over the one operation.

        RuntimeError when the config has no `searcher.max_length`, when a rank other than 0 asks in
        ChiefOnly mode,
        or when the chief goes on without `report_completed`. `auto_ack` is accepted for old scripts.
        """
        chief = self._distributed.rank == 0
        if searcher_mode is SearcherMode.ChiefOnly and not chief:
            raise RuntimeError(
                "operations() was called by a rank other than 0 although the mode is ChiefOnly."
            )
        if self._length is None:
            raise RuntimeError(
                "searcher.operations() needs `max_length` in the searcher section of the config; "
                "without it, control the loop with your own hyperparameters and report validation metrics."
            )
        operation = SearcherOperation(self._length, chief, self._records)
        yield operation
        if chief and not operation._completed:
            raise RuntimeError("The searcher operation ended without op.report_completed(metric).")

    def acknowledge_out_of_ops(self) -> None:
        """For old scripts that iterate with auto_ack=False: leaving the loop is all that is needed."""


def _max_length(config: Dict[str, Any], on_cluster: bool) -> Tuple[Optional[int], Optional[Unit]]:
    """(length, unit) of the config; off the cluster one epoch."""
    if not on_cluster:
        return 1, Unit.EPOCHS
    value = (config.get("searcher") or {}).get("max_length")
    if isinstance(value, dict):
        for unit in Unit:
            if unit.value.lower() in value:
                return int(value[unit.value.lower()]), unit
        return None, None
    return (int(value), None) if value is not None else (None, None)
