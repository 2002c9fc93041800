"""Reads what the ranks of a task have timed and counted, as series over steps."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from metrics.models import TimingChunk
from metrics.timing_frames import FIELDS, Frame, unpack

Floats = npt.NDArray[np.float64]

DEFAULT_POINTS = 500
#: what the SDK times by itself (trainmaster/core/_profiler.py)
STEP, WORK = "step", "step.work"
_N, _SUM, _MIN, _MAX, _P50, _P95 = range(len(FIELDS))


@dataclass(frozen=True)
class TimingSeries:
    """One name on one rank. A point is an interval that ends with the step of `steps`, at epoch seconds `times`.

    All in seconds. Where neighbours were joined (`total` counts the points before), n, sums and extremes stay exact,
    `p50` is the mean of theirs, weighted by n, and `p95` the highest of theirs. A timing whose name is that of
    another, a dot and more is a part of it.
    """

    rank: int
    name: str
    steps: Floats
    mean: Floats
    p50: Floats
    p95: Floats
    total_seconds: Floats
    low: Floats
    high: Floats
    count: Floats
    first_steps: Floats
    times: Floats
    total: int

    @property
    def is_reduced(self) -> bool:
        return len(self.steps) < self.total


@dataclass(frozen=True)
class CountSeries:
    """What one rank counted, as a rate: `per_second` over the `seconds` that end at `times`."""

    rank: int
    name: str
    steps: Floats
    times: Floats
    per_second: Floats
    seconds: Floats
    total: int


@dataclass(frozen=True)
class TaskTimings:
    """All that is known of a task's timings; `hosts` says where each rank ran last."""

    timings: list[TimingSeries]
    counts: list[CountSeries]
    hosts: dict[int, str]

    def of(self, name: str) -> list[TimingSeries]:
        return [series for series in self.timings if series.name == name]


def of_task(
    task_id: str,
    names: Collection[str] | None = None,
    *,
    ranks: Collection[int] | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
    points: int = DEFAULT_POINTS,
) -> list[TimingSeries]:
    """The timings of a task by rank and name, each reduced to at most `points` (ValueError under 1)."""
    return read(
        task_id, names, ranks=ranks, first_step=first_step, last_step=last_step, points=points
    ).timings


def read(
    task_id: str,
    names: Collection[str] | None = None,
    *,
    ranks: Collection[int] | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
    points: int = DEFAULT_POINTS,
) -> TaskTimings:
    """As `of_task`, with what was counted. Steps that a restart went back behind are left out."""
    if points < 1:
        raise ValueError(f"A series cannot be reduced to {points} points; allowed: 1 or more.")
    rows = TimingChunk.objects.filter(task_id=task_id)
    if ranks is not None:
        rows = rows.filter(rank__in=ranks)
    # of a window later chunks are needed too: they say what a restart went back behind
    if first_step is not None:
        rows = rows.filter(last_step__gte=first_step)
    known: dict[bytes, tuple[tuple[str, ...], ...]] = {}
    frames: dict[int, list[Frame]] = {}
    hosts: dict[int, str] = {}
    for rank, host, data in rows.order_by("rank", "slot").values_list("rank", "host", "data"):
        frames.setdefault(rank, []).extend(unpack(rank, bytes(data), known))
        hosts[rank] = host
    timings: list[TimingSeries] = []
    counts: list[CountSeries] = []
    for rank, said in frames.items():
        kept = [frame for frame in _standing(said) if _inside(frame, first_step, last_step)]
        timings += _timings(rank, kept, names, points)
        counts += _counts(rank, kept, names, points)
    return TaskTimings(timings, counts, hosts)


def _standing(frames: list[Frame]) -> list[Frame]:
    """Without those whose steps were taken once more, by an attempt that went on from an earlier checkpoint."""
    standing = []
    earliest_later, taken_again = math.inf, math.inf
    for frame in sorted(frames, key=lambda frame: frame.last_time, reverse=True):
        if frame.first_step > earliest_later:  # the attempt before
            taken_again = earliest_later
        if frame.last_step < taken_again:
            standing.append(frame)
            earliest_later = min(earliest_later, frame.first_step)
    return standing[::-1]


def _inside(frame: Frame, first_step: int | None, last_step: int | None) -> bool:
    after = first_step is None or frame.last_step >= first_step
    return after and (last_step is None or frame.first_step <= last_step)


def _timings(
    rank: int, frames: list[Frame], names: Collection[str] | None, points: int
) -> list[TimingSeries]:
    rows: dict[str, list[tuple[Frame, npt.NDArray[np.float32]]]] = {}
    for frame in frames:
        for name, row in zip(frame.names, frame.values, strict=True):
            if names is None or name in names:
                rows.setdefault(name, []).append((frame, row))
    return [_timing(rank, name, rows[name], points) for name in sorted(rows)]


def _timing(
    rank: int, name: str, rows: list[tuple[Frame, npt.NDArray[np.float32]]], points: int
) -> TimingSeries:
    values = np.array([row for _, row in rows], dtype=np.float64)
    starts = _starts(len(rows), points)
    ends = np.append(starts[1:], len(rows)) - 1
    count = np.add.reduceat(values[:, _N], starts)
    seconds = np.add.reduceat(values[:, _SUM], starts)
    return TimingSeries(
        rank=rank,
        name=name,
        steps=np.array([rows[end][0].last_step for end in ends], dtype=np.float64),
        mean=seconds / count,
        p50=np.add.reduceat(values[:, _P50] * values[:, _N], starts) / count,
        p95=np.maximum.reduceat(values[:, _P95], starts),
        total_seconds=seconds,
        low=np.minimum.reduceat(values[:, _MIN], starts),
        high=np.maximum.reduceat(values[:, _MAX], starts),
        count=count,
        first_steps=np.array([rows[start][0].first_step for start in starts], dtype=np.float64),
        times=np.array([rows[end][0].last_time for end in ends], dtype=np.float64),
        total=len(rows),
    )


def _counts(rank: int, frames: list[Frame], names: Collection[str] | None, points: int) -> list[CountSeries]:
    rows: dict[str, list[tuple[Frame, float]]] = {}
    for frame in frames:
        for name, total in zip(frame.counted, frame.counts, strict=True):
            if names is None or name in names:
                rows.setdefault(name, []).append((frame, float(total)))
    return [_count(rank, name, rows[name], points) for name in sorted(rows)]


def _count(rank: int, name: str, rows: list[tuple[Frame, float]], points: int) -> CountSeries:
    starts = _starts(len(rows), points)
    ends = np.append(starts[1:], len(rows)) - 1
    taken = np.array([frame.last_time - frame.first_time for frame, _ in rows])
    seconds = np.add.reduceat(taken, starts)
    totals = np.add.reduceat(np.array([total for _, total in rows]), starts)
    return CountSeries(
        rank=rank,
        name=name,
        steps=np.array([rows[end][0].last_step for end in ends], dtype=np.float64),
        times=np.array([rows[end][0].last_time for end in ends], dtype=np.float64),
        per_second=np.divide(totals, seconds, out=np.zeros_like(totals), where=seconds > 0),
        seconds=seconds,
        total=len(rows),
    )


def _starts(count: int, points: int) -> npt.NDArray[np.intp]:
    """Where the joined points begin: as many as fit, of equally many neighbours but for the last."""
    return np.arange(0, count, -(-count // points), dtype=np.intp)


@dataclass(frozen=True)
class NameSummary:
    """A timing over all that was read, all ranks together, in seconds; `share` is its part of all steps' time.

    `p50` and `p95` are the means of those of the intervals, weighted by n. `share` is None where no step is marked.
    """

    name: str
    count: float
    seconds: float
    mean: float
    p50: float
    p95: float
    share: float | None


def summaries(found: Collection[TimingSeries]) -> list[NameSummary]:
    """One for each name, the one that takes most time first."""
    steps = sum(float(one.total_seconds.sum()) for one in found if one.name == STEP)
    answer = []
    for name in {one.name for one in found}:
        same = [one for one in found if one.name == name]
        count = np.concatenate([one.count for one in same])
        seconds = float(sum(one.total_seconds.sum() for one in same))
        answer.append(
            NameSummary(
                name=name,
                count=float(count.sum()),
                seconds=seconds,
                mean=seconds / float(count.sum()),
                p50=float(np.average(np.concatenate([one.p50 for one in same]), weights=count)),
                p95=float(np.average(np.concatenate([one.p95 for one in same]), weights=count)),
                share=seconds / steps if steps else None,
            )
        )
    return sorted(answer, key=lambda one: (-one.seconds, one.name))


def throughput(found: Collection[CountSeries]) -> dict[str, float]:
    """What was counted a second, by name: the sum of its ranks' mean rates."""
    rates: dict[str, float] = {}
    for one in found:
        seconds = float(one.seconds.sum())
        if seconds > 0:
            rates[one.name] = rates.get(one.name, 0.0) + float(one.per_second @ one.seconds) / seconds
    return dict(sorted(rates.items()))
