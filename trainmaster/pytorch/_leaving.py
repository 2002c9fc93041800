"""Whether a trial is to end before its length is reached: one answer for all ranks, and not asked at every batch."""

from __future__ import annotations

import enum
import time
from typing import Optional

from trainmaster.core import Context

#: between two looks of a gang, which exchanges a message for each: short beside the grace of a stop
LOOK_SECONDS = 1.0
_MOST_BATCHES = 1000


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
        """None to go on. `now`: look in any case, as all ranks do after the same batches."""
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
