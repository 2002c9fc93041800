"""Reads what the ranks of a task have timed and counted, as series over steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from metrics.models import TimingChunk
from metrics.packing import Floats
from metrics.timing_frames import FIELDS, Frames, Known, unpack

_Spans = Floats  # rows: first step, last step, begin and end in epoch seconds; a column is an interval

DEFAULT_POINTS = 500
#: what the SDK times by itself (trainmaster/core/_profiler.py)
STEP, WORK = "step", "step.work"
_LEVELS = np.linspace(0, 1, 41)
_LEVEL_SHARES = np.array([0.5, *[1] * 39, 0.5]) / 40
#: what least, median, 95th percentile and most count at each of the levels
_LAID_OUT = np.array([np.interp(_LEVELS, [0, 0.5, 0.95, 1], one) for one in np.eye(4)])
_N, _SUM, _MIN, _MAX, _P50, _P95 = range(len(FIELDS))


@dataclass(frozen=True)
class TimingSeries:
    """One name on one rank. A point is an interval that ends with the step of `steps`, at epoch seconds `times`.

    All in seconds. Where neighbors were joined (`total` counts the points before), n, sums and extremes stay exact,
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


def ranks_of(task_id: str) -> list[int]:
    """The ranks that have timed or counted something, in order."""
    rows = TimingChunk.objects.filter(task_id=task_id).order_by("rank")
    return list(rows.values_list("rank", flat=True).distinct())


def read(
    task_id: str,
    names: Collection[str] | None = None,
    *,
    ranks: Collection[int] | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
    points: int = DEFAULT_POINTS,
) -> TaskTimings:
    """What a task's ranks timed and counted, by rank and name, each reduced to at most `points` (ValueError under 1).

    Steps that a restart went back behind are left out.
    """
    if points < 1:
        raise ValueError(f"A series cannot be reduced to {points} points; allowed: 1 or more.")
    rows = TimingChunk.objects.filter(task_id=task_id)
    if ranks is not None:
        rows = rows.filter(rank__in=ranks)
    # of a window later chunks are needed too: they say what a restart went back behind
    if first_step is not None:
        rows = rows.filter(last_step__gte=first_step)
    known: Known = {}
    of_ranks: dict[int, list[Frames]] = {}
    hosts: dict[int, str] = {}
    for rank, host, data in rows.order_by("rank", "slot").values_list("rank", "host", "data"):
        of_ranks.setdefault(rank, []).extend(unpack(bytes(data), known))
        hosts[rank] = host
    found = TaskTimings([], [], hosts)
    for rank, frames in of_ranks.items():
        said = _Said(frames, first_step, last_step)
        for name, values in said.columns(lambda one: one.names, lambda one: one.values, names):
            found.timings.append(_timing(rank, name, *values, points))
        for name, values in said.columns(lambda one: one.counted, lambda one: one.counts, names):
            found.counts.append(_count(rank, name, *values, points))
    return found


class _Said:
    """What one rank said, in the order of time, without what a restart took again or lies outside of the window."""

    def __init__(self, frames: list[Frames], first_step: int | None, last_step: int | None) -> None:
        self._frames = frames
        first, last, end = (
            np.concatenate([getattr(one, field) for one in frames])
            for field in ("first_step", "last_step", "last_time")
        )
        order = np.argsort(end, kind="stable")
        kept = order[_standing(first[order].tolist(), last[order].tolist())]
        after = True if first_step is None else last[kept] >= first_step
        before = True if last_step is None else first[kept] <= last_step
        kept = kept[np.broadcast_to(after & before, kept.shape)]
        #: of each frame, where it stands among those that are kept, or -1
        self._place = np.full(len(end), -1)
        self._place[kept] = np.arange(len(kept))

    def columns(
        self,
        names_of: Callable[[Frames], tuple[str, ...]],
        values_of: Callable[[Frames], npt.NDArray[np.float32]],
        wanted: Collection[str] | None,
    ) -> Iterator[tuple[str, tuple[_Spans, Floats]]]:
        """Name after name: when and in which steps it was, and its values, in the order of time."""
        parts: dict[str, list[tuple[_Spans, Floats, npt.NDArray[np.intp]]]] = {}
        start = 0
        for one in self._frames:
            place = self._place[start : start + len(one.last_time)]
            start += len(place)
            kept = place >= 0
            if not kept.any():
                continue
            spans = np.array([one.first_step, one.last_step, one.first_time, one.last_time])[:, kept]
            values = values_of(one)[kept].astype(np.float64)
            for index, name in enumerate(names_of(one)):
                if wanted is None or name in wanted:
                    parts.setdefault(name, []).append((spans, values[:, index], place[kept]))
        for name in sorted(parts):
            of_spans, of_values, places = zip(*parts[name], strict=True)
            order = np.argsort(np.concatenate(places), kind="stable")
            yield name, (np.concatenate(of_spans, axis=1)[:, order], np.concatenate(of_values)[order])


def _standing(first: list[int], last: list[int]) -> list[bool]:
    """Which of these frames count: not those whose steps were taken again, from an earlier checkpoint."""
    standing = [False] * len(first)
    earliest_later, taken_again = math.inf, math.inf
    for index in reversed(range(len(first))):
        if first[index] > earliest_later:  # the attempt before
            taken_again = earliest_later
        if last[index] < taken_again:
            standing[index] = True
            earliest_later = min(earliest_later, first[index])
    return standing


def _timing(rank: int, name: str, spans: _Spans, values: Floats, points: int) -> TimingSeries:
    first_steps, last_steps, _, end_times = spans
    starts = _starts(len(values), points)
    ends = np.append(starts[1:], len(values)) - 1
    count = np.add.reduceat(values[:, _N], starts)
    seconds = np.add.reduceat(values[:, _SUM], starts)
    return TimingSeries(
        rank=rank,
        name=name,
        steps=last_steps[ends],
        mean=seconds / count,
        p50=np.add.reduceat(values[:, _P50] * values[:, _N], starts) / count,
        p95=np.maximum.reduceat(values[:, _P95], starts),
        total_seconds=seconds,
        low=np.minimum.reduceat(values[:, _MIN], starts),
        high=np.maximum.reduceat(values[:, _MAX], starts),
        count=count,
        first_steps=first_steps[starts],
        times=end_times[ends],
        total=len(values),
    )


def _count(rank: int, name: str, spans: _Spans, values: Floats, points: int) -> CountSeries:
    _, last_steps, begin_times, end_times = spans
    starts = _starts(len(values), points)
    ends = np.append(starts[1:], len(values)) - 1
    seconds = np.add.reduceat(end_times - begin_times, starts)
    totals = np.add.reduceat(values, starts)
    return CountSeries(
        rank=rank,
        name=name,
        steps=last_steps[ends],
        times=end_times[ends],
        per_second=np.divide(totals, seconds, out=np.zeros_like(totals), where=seconds > 0),
        seconds=seconds,
        total=len(values),
    )


def _starts(count: int, points: int) -> npt.NDArray[np.intp]:
    """Where the joined points begin: as many as fit, of equally many neighbors but for the last."""
    return np.arange(0, count, -(-count // points), dtype=np.intp)


@dataclass(frozen=True)
class NameSummary:
    """A timing over all that was read, all ranks together, in seconds; `share` is its part of all steps' time.

    `p50` and `p95` are estimated from what is known of the intervals: in each, values are taken to lie evenly between
    its least, median, 95th percentile and most. `share` is None where no step is marked.
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
        p50, p95 = _quantiles(same, count)
        answer.append(
            NameSummary(
                name=name,
                count=float(count.sum()),
                seconds=seconds,
                mean=seconds / float(count.sum()),
                p50=p50,
                p95=p95,
                share=seconds / steps if steps else None,
            )
        )
    return sorted(answer, key=lambda one: (-one.seconds, one.name))


def _quantiles(same: Collection[TimingSeries], count: Floats) -> tuple[float, float]:
    """Median and 95th percentile of all intervals together: their values are laid out at _LEVELS and sorted."""
    known = np.array(
        [np.concatenate([getattr(one, of) for one in same]) for of in ("low", "p50", "p95", "high")]
    )
    values = (known.T @ _LAID_OUT).ravel()
    weights = np.outer(count, _LEVEL_SHARES).ravel()
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) - weights[order] / 2
    p50, p95 = np.interp(np.array([0.5, 0.95]) * count.sum(), reached, values[order])
    return float(p50), float(p95)


def throughput(found: Collection[CountSeries]) -> dict[str, float]:
    """What was counted a second, by name: the sum of its ranks' mean rates."""
    rates: dict[str, float] = {}
    for one in found:
        seconds = float(one.seconds.sum())
        if seconds > 0:
            rates[one.name] = rates.get(one.name, 0.0) + float(one.per_second @ one.seconds) / seconds
    return dict(sorted(rates.items()))
