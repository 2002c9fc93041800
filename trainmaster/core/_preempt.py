"""`core_context.preempt`: should this trial save and leave its slots?"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Callable, Optional, Set

from trainmaster.core._distributed import DistributedContext
from trainmaster.core._records import Records


class PreemptMode(enum.Enum):
    """Who looks for the order, and what the others learn of it."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"
    WorkersAskMaster = "WORKERS_ASK_MASTER"


class PreemptContext:
    """Answers `should_preempt` from the order that the runner leaves in the run folder.

    WorkersAskChief: the chief looks and all ranks get its answer; every rank must call at the same places.
    ChiefOnly: only the chief may call (RuntimeError). WorkersAskMaster: each rank looks for itself; their
    answers may differ in time. `before_leaving` is called when the answer is yes.
    """

    def __init__(
        self,
        run_dir: Optional[str],
        distributed: DistributedContext,
        mode: PreemptMode,
        records: Optional[Records],
        before_leaving: Optional[Callable[[], None]] = None,
    ) -> None:
        self._order = Path(run_dir, "control", "preempt.json") if run_dir else None
        self._distributed = distributed
        self._mode = mode
        self._records = records
        self._before_leaving = before_leaving
        self._started = False
        self._told: Set[str] = set()

    def start(self) -> PreemptContext:
        self._started = True
        return self

    def close(self) -> None:
        self._started = False

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """True when the trial is to save a checkpoint and return. RuntimeError before `start`.

        With `auto_ack` the first True also tells the server that the trial has heard.
        """
        if not self._started:
            raise RuntimeError(
                "should_preempt() was called before the context was started or after it was closed."
            )
        self._tell_once("preempt_asked")  # what asks can save when told to: it is stopped before others
        self._distributed._sign.beat()
        answer = self._ask()
        if answer and self._before_leaving is not None:
            self._before_leaving()
        if answer and auto_ack:
            self.acknowledge_preemption_signal()
        return answer

    def acknowledge_preemption_signal(self) -> None:
        """Tell the server that the trial is going to stop; needed after `should_preempt(auto_ack=False)`."""
        self._tell_once("preempt_ack")

    def _tell_once(self, type_: str) -> None:
        if type_ not in self._told and self._distributed.rank == 0 and self._records is not None:
            self._records.append(type_)
        self._told.add(type_)

    def _ask(self) -> bool:
        if self._mode is PreemptMode.WorkersAskMaster:
            return self._ordered()
        if self._distributed.rank != 0:
            if self._mode is PreemptMode.ChiefOnly:
                raise RuntimeError(
                    "should_preempt() was called by a rank other than 0 although the mode is ChiefOnly."
                )
            return bool(self._distributed.broadcast(None))
        answer = self._ordered()
        if self._mode is PreemptMode.WorkersAskChief:
            self._distributed.broadcast(answer)
        return answer

    def _ordered(self) -> bool:
        return self._order is not None and self._order.exists()
