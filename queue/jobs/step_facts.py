"""The reports of an attempt in the form in which `jobs.time_parts` needs them: exact, and few. Pure.

Only reports that brought a new step say something, and of those only the ones between which the time is divided: the
ends of long gaps, and those on both sides of a step that an earlier attempt had reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SECOND = 1_000_000
#: No new step for so long, and for so many times the usual time between two of them, is a stall.
STALL_SECONDS = 600
STALL_GAPS = 10
#: The usual time is known from so many.
_LEAST_GAPS = 3

Integers = npt.NDArray[np.int64]


class Fact(NamedTuple):
    """At this time the attempt was known to have completed this step."""

    at: int
    step: int


@dataclass(frozen=True)
class Steps:
    """Facts that rise in time and step.

    `gap`: the usual time between two reports that brought a new step, None if unknown; `pace`: that of one step.
    """

    facts: Sequence[Fact] = ()
    gap: float | None = None
    pace: float | None = None

    def is_long(self, time: int) -> bool:
        """Whether it is too long to be usual, as far as is known."""
        return time > max(STALL_SECONDS * SECOND, STALL_GAPS * (self.gap or 0))


def steps_of(times: Integers, steps: Integers, begin: int, end: int, borders: Iterable[int] = ()) -> Steps:
    """Of reports in any order, whose times are taken into the attempt. `borders`: steps that others had reached."""
    times, steps = _risen(np.clip(times, begin, end)[steps >= 0], steps[steps >= 0])
    if not len(times):
        return Steps()
    gaps = np.diff(times)
    ends_long = np.flatnonzero(gaps > STALL_SECONDS * SECOND) + 1
    beyond = np.searchsorted(steps, np.array([step for step in borders if step <= steps[-1]], np.int64))
    ends = np.concatenate([ends_long, beyond])
    kept = np.unique(np.concatenate([[0, len(times) - 1], ends, np.maximum(ends - 1, 0)]).astype(np.intp))
    return Steps(
        [Fact(at, step) for at, step in zip(times[kept].tolist(), steps[kept].tolist(), strict=True)],
        float(np.median(gaps)) if len(gaps) >= _LEAST_GAPS else None,
        float(np.median(gaps / np.diff(steps))) if len(gaps) else None,
    )


def _risen(times: Integers, steps: Integers) -> tuple[Integers, Integers]:
    """By time, without those whose step an earlier one had reached; of one time the highest step."""
    order = np.lexsort((steps, times))
    times, steps = times[order], steps[order]
    last_of_time = np.append(times[1:] != times[:-1], True)[: len(times)]
    times, steps = times[last_of_time], steps[last_of_time]
    highest = np.maximum.accumulate(steps) if len(steps) else steps
    has_risen = np.append(True, highest[1:] > highest[:-1])[: len(times)]
    return times[has_risen], steps[has_risen]
