"""Which rank is slow, and what the gang loses to it. Pure.

A gang in step is as fast as its slowest rank, so all its ranks take equally long for a step: the slow one works, the
others wait for it. What is compared is therefore each rank's own work, a step without its waiting (`step.work`).

In each interval of steps the loss is (work of the slowest rank - work of the median rank) x steps: what the gang
would have saved if the slowest had been like the median. Of an even number of ranks the median is the lower of the
two in the middle: of two ranks, the faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from metrics.packing import Floats
from metrics.timings import STEP, WORK, TaskTimings, TimingSeries

COLUMNS = 120
#: a rank is called slow when its work exceeds the median's by this part of it
NOTABLE = 0.05


@dataclass(frozen=True)
class StepMatrix:
    """Seconds of a step by rank (rows) and interval of steps (columns): `first_steps` to `last_steps`, both included.

    NaN where a rank has no step. `taken` counts the steps of a column.
    """

    ranks: list[int]
    first_steps: Floats
    last_steps: Floats
    seconds: Floats
    taken: Floats


@dataclass(frozen=True)
class Straggler:
    """The slowest rank and its price, over the steps of the matrix that was looked at.

    `rank` is the one with most work a step, `work` its mean seconds of it and `median_work` those of the median rank;
    `lost` are the seconds lost in each column, `lost_seconds` their sum, `lost_share` the part of all steps' time.
    `is_slow` says that the difference is worth a word.
    """

    rank: int
    work: float
    median_work: float
    lost: Floats
    lost_seconds: float
    lost_share: float

    @property
    def is_slow(self) -> bool:
        return self.work > self.median_work * (1 + NOTABLE)


def matrix(series: Sequence[TimingSeries], columns: int = COLUMNS) -> StepMatrix | None:
    """One timing of steps as a matrix of at most `columns` columns; None without any.

    Ranks end their intervals at steps of their own, so columns are at least as wide as most intervals, and an
    interval across the border of two columns counts in both by its steps.
    """
    if not series:
        return None
    edges = edges_of(series, columns)
    ordered = sorted(series, key=lambda one: one.rank)
    seconds = np.array([spread(one, one.total_seconds, edges) for one in ordered])
    counts = np.array([spread(one, one.count, edges) for one in ordered])
    means = np.divide(seconds, counts, out=np.full_like(seconds, np.nan), where=counts > 1e-6)
    return StepMatrix(
        [one.rank for one in ordered], edges[:-1], edges[1:] - 1, means, counts.max(axis=0, initial=0.0)
    )


def edges_of(series: Sequence[TimingSeries], columns: int) -> Floats:
    """The first step of each column and the step behind the last; `series` must not be empty."""
    first = min(one.first_steps[0] for one in series)
    end = max(one.steps[-1] for one in series) + 1
    widths = np.concatenate([one.steps - one.first_steps + 1 for one in series])
    width = max(1.0, np.ceil((end - first) / columns), np.ceil(np.quantile(widths, 0.9)))
    return np.append(np.arange(first, end, width), end)


def spread(one: TimingSeries, values: Floats, edges: Floats) -> Floats:
    """The values of its intervals, divided among columns as their steps lie in them."""
    ends = np.cumsum(values)
    steps = np.column_stack([one.first_steps, one.steps + 1]).ravel()
    reached = np.column_stack([ends - values, ends]).ravel()
    return np.diff(np.interp(edges, np.maximum.accumulate(steps), reached))


def straggler(work: StepMatrix, whole: StepMatrix | None = None) -> Straggler | None:
    """The slowest of at least two ranks by their work; `whole` are their whole steps, else work is taken for those."""
    seen = ~np.isnan(work.seconds)
    together = seen.sum(axis=0) > 1
    if not together.any():
        return None
    seconds, taken = work.seconds[:, together], work.taken[together]
    highest, median = np.nanmax(seconds, axis=0), lower_median(seconds)
    lost = np.zeros(len(together))
    lost[together] = (highest - median) * taken
    mean = _means(seconds, taken)
    slowest = int(mean.argmax())
    steps = work if whole is None else whole
    spent = float(np.nansum(lower_median(steps.seconds) * steps.taken))
    total = float(lost.sum())
    return Straggler(
        rank=work.ranks[slowest],
        work=float(mean[slowest]),
        median_work=float(lower_median(mean[:, None])[0]),
        lost=lost,
        lost_seconds=total,
        lost_share=min(1.0, total / spent) if spent > 0 else 0.0,
    )


def means(work: StepMatrix) -> Floats:
    """Return each rank's mean seconds per step, over the columns with several ranks."""
    together = (~np.isnan(work.seconds)).sum(axis=0) > 1
    return _means(work.seconds[:, together], work.taken[together])


def of_hosts(work: StepMatrix, hosts: Mapping[int, str]) -> dict[str, float]:
    """How many times as long as the median of the other hosts each took for a step, by its fastest rank.

    The chief, rank 0, has more to do than the others, so it is left out.
    """
    fastest: dict[str, float] = {}
    for rank, mean in zip(work.ranks, means(work), strict=True):
        if rank != 0 and mean > 0 and rank in hosts:
            fastest[hosts[rank]] = min(float(mean), fastest.get(hosts[rank], np.inf))
    found = {}
    for name, own in fastest.items():
        others = np.array([[each] for other, each in fastest.items() if other != name])
        if len(others):
            found[name] = own / float(lower_median(others)[0])
    return found


def _means(seconds: Floats, taken: Floats) -> Floats:
    here = ~np.isnan(seconds)
    found: Floats = np.where(here, seconds, 0.0) @ taken / np.maximum(here @ taken, 1e-9)
    return found


def of_timings(found: TaskTimings) -> tuple[StepMatrix | None, Straggler | None]:
    """The matrix of work and its straggler; of ranks that mark no steps there is neither."""
    work = matrix(found.of(WORK))
    if work is None:
        return None, None
    return work, straggler(work, matrix(found.of(STEP)))


def lower_median(seconds: Floats) -> Floats:
    """Return the lower median of each column over ranks that are not NaN; NaN if all are."""
    ordered = np.sort(seconds, axis=0)  # NaN come last
    here = (~np.isnan(seconds)).sum(axis=0)
    middle = np.maximum(0, (here - 1) // 2)
    answer: Floats = np.take_along_axis(ordered, middle[None, :], axis=0)[0]
    return answer
