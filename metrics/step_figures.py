"""What is shown of a trial over its steps, as JSON has it: where a step goes, each timing, rates, and the slow rank.

All share their columns, intervals of steps; `edges` are the first step of each and, at the end, the one behind the
last. A timing that spans two columns counts in both by its steps. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from metrics import stragglers
from metrics.packing import Floats
from metrics.stragglers import COLUMNS, StepMatrix, Straggler, edges_of, spread
from metrics.timings import STEP, WORK, CountSeries, TaskTimings, TimingSeries
from metrics.traces import plain
from trainmaster.quantities import duration

#: timings of one step that are together so much longer than it ran beside each other
_OVERLAP = 1.02
REST = "not timed"
#: with more ranks than this the heat map begins with the slowest
IN_ORDER_UP_TO = 32
#: ranks that the table names
NAMED = 10
_SECONDS_DIGITS, _RATIO_DIGITS = 9, 4


def of(read: TaskTimings, rank: int | None) -> dict[str, Any]:
    """The figures of a rank, or of all ranks; all times are seconds.

    {"ranks": [{rank, host}], "edges": first steps of the columns and the step behind the last, "stack": {parts:
    [{name, seconds}], overlaps} or null, "timings": [{name, p50, p95, low, high, total}], "rates": [{name, values}],
    "slow": see `_slow`, or null, "why_not": a sentence in its place}.
    """
    if not read.timings:
        nothing: dict[str, Any] = {name: [] for name in ("ranks", "edges", "timings", "rates")}
        return nothing | {"stack": None, "slow": None, "why_not": ""}
    edges = edges_of(read.timings, COLUMNS)
    of_rank = [one for one in read.timings if rank in (None, one.rank)]
    counts = [one for one in read.counts if rank in (None, one.rank)]
    matrix, slow = stragglers.of_timings(read)
    return {
        "ranks": [{"rank": each, "host": host} for each, host in sorted(read.hosts.items())],
        "edges": plain(edges),
        "stack": stack(of_rank, edges),
        "timings": spreads(of_rank, edges),
        "rates": rates(counts, edges),
        "slow": _slow(matrix, slow, read.hosts) if matrix and slow else None,
        "why_not": "" if slow else _why_not(read, matrix),
    }


def stack(timings: Sequence[TimingSeries], edges: Floats) -> dict[str, Any] | None:
    """Where the steps of these ranks went, on average; None where no step is marked.

    {"parts": mean seconds of a step by name, the largest first, REST last, which are together the whole step; a part's
    name says that it is the rest if its own parts stand beside it. "overlaps": what was timed is longer than the steps,
    as where threads work at once}
    """
    taken = _sums([one for one in timings if one.name == STEP], "count", edges)
    whole = _sums([one for one in timings if one.name == STEP], "total_seconds", edges)
    if not taken.any():
        return None
    names = {one.name for one in timings} - {STEP, WORK}
    seconds = {
        name: _sums([one for one in timings if one.name == name], "total_seconds", edges) for name in names
    }
    parents = {name: _parent(name, names) for name in names}
    own = {name: _per(_own(name, seconds), taken) for name in names}
    timed = sum((seconds[name] for name in names if parents[name] is None), np.zeros(len(taken)))
    parts = [
        (name + (", rest" if name in parents.values() else ""), own[name])
        for name in sorted(names, key=lambda name: (-np.nansum(own[name] * taken), name))
    ]
    parts.append((REST, _per(np.maximum(whole - timed, 0.0), taken)))
    return {
        "parts": [{"name": name, "seconds": _rounded(of_step)} for name, of_step in parts],
        "overlaps": bool(timed.sum() > whole.sum() * _OVERLAP),
    }


def _own(name: str, seconds: dict[str, Floats]) -> Floats:
    inside = [seconds[other] for other in seconds if _parent(other, seconds) == name]
    found: Floats = np.maximum(seconds[name] - sum(inside, np.zeros(len(seconds[name]))), 0.0)
    return found


def _parent(name: str, names: Collection[str]) -> str | None:
    """The nearest timing that this one is a part of: `a` of `a.b.c`, if there is no `a.b`."""
    words = name.split(".")
    ahead = (".".join(words[:count]) for count in range(len(words) - 1, 0, -1))
    return next((each for each in ahead if each in names), None)


def _sums(series: Sequence[TimingSeries], field: str, edges: Floats) -> Floats:
    parts = (spread(one, getattr(one, field), edges) for one in series)
    return sum(parts, np.zeros(len(edges) - 1))


def _per(seconds: Floats, taken: Floats) -> Floats:
    return np.divide(seconds, taken, out=np.full_like(seconds, np.nan), where=taken > 1e-6)


def spreads(timings: Sequence[TimingSeries], edges: Floats) -> list[dict[str, Any]]:
    """Each timing over its ranks, the one that takes most time first.

    In seconds, null where there was none: p50 is the mean of the ranks', p95 and high their highest, low their lowest.
    """
    found = []
    for name in {one.name for one in timings}:
        same = [one for one in timings if one.name == name]
        column = np.concatenate([_column(one.steps, edges) for one in same])
        count, size = np.concatenate([one.count for one in same]), len(edges) - 1
        p50 = np.concatenate([one.p50 for one in same])
        weight = _per_column(column, count, size)
        low, p95, high = (np.full(size, start) for start in (np.inf, -np.inf, -np.inf))
        np.minimum.at(low, column, np.concatenate([one.low for one in same]))
        np.maximum.at(p95, column, np.concatenate([one.p95 for one in same]))
        np.maximum.at(high, column, np.concatenate([one.high for one in same]))
        for values in (low, p95, high):
            values[~np.isfinite(values)] = np.nan
        median = _per(_per_column(column, p50 * count, size), weight)
        seconds = sum(float(one.total_seconds.sum()) for one in same)
        total = sum(one.total for one in same)
        columns = {"p50": median, "p95": p95, "low": low, "high": high}
        rounded = {field: _rounded(values) for field, values in columns.items()}
        found.append((-seconds, name, {"name": name, "total": total, **rounded}))
    return [each for *_, each in sorted(found, key=lambda one: one[:2])]


def rates(counts: Sequence[CountSeries], edges: Floats) -> list[dict[str, Any]]:
    """What was counted a second in each column: the mean rate of a rank over its time there, summed over ranks."""
    found = []
    for name in sorted({one.name for one in counts}):
        same = [one for one in counts if one.name == name]
        total = np.full(len(edges) - 1, np.nan)
        for one in same:
            column = _column(one.steps, edges)
            seconds = _per_column(column, one.seconds, len(total))
            rate = _per(_per_column(column, one.per_second * one.seconds, len(total)), seconds)
            total = np.where(np.isnan(rate), total, np.nan_to_num(total) + rate)
        found.append({"name": name, "values": _rounded(total)})
    return found


def _per_column(column: npt.NDArray[np.intp], values: Floats, columns: int) -> Floats:
    return np.bincount(column, values, columns).astype(np.float64)


def _column(steps: Floats, edges: Floats) -> npt.NDArray[np.intp]:
    """The column in which each interval ends."""
    place = np.searchsorted(edges, steps, side="right") - 1
    return np.clip(place, 0, len(edges) - 2)


def _slow(matrix: StepMatrix, slow: Straggler, hosts: dict[int, str]) -> dict[str, Any]:
    """The heat map's rows, the slowest first where there are many, and what it says in words.

    `over`: how much of the column's median a rank is above it; `worst`: the ranks with most work a step.
    """
    medians = stragglers.lower_median(matrix.seconds)
    over = np.divide(matrix.seconds, medians, out=np.full_like(matrix.seconds, np.nan), where=medians > 0) - 1
    means = stragglers.means(matrix)
    worst = sorted(range(len(means)), key=lambda place: -means[place])
    rows = worst if len(means) > IN_ORDER_UP_TO else list(range(len(means)))
    median = slow.median_work
    return {
        "rows": [{"rank": matrix.ranks[row], "host": hosts[matrix.ranks[row]]} for row in rows],
        "edges": plain(np.append(matrix.first_steps, matrix.last_steps[-1] + 1)),
        "over": [plain(np.round(over[row], _RATIO_DIGITS)) for row in rows],
        "seconds": [_rounded(matrix.seconds[row]) for row in rows],
        "lost": _rounded(slow.lost),
        "is_slow": slow.is_slow,
        "sentences": _sentences(slow, hosts),
        "worst": [
            {
                "rank": matrix.ranks[row],
                "host": hosts[matrix.ranks[row]],
                "work": float(means[row]),
                "over": float(means[row] / median - 1) if median > 0 else None,
            }
            for row in worst[:NAMED]
        ],
    }  # fmt: skip


def _sentences(slow: Straggler, hosts: dict[int, str]) -> list[str]:
    work, median = _spelled(slow.work), _spelled(slow.median_work)
    who = f"rank {slow.rank} on {hosts[slow.rank]}"
    if slow.is_slow and slow.median_work > 0:
        more = f"{_percent(slow.work / slow.median_work - 1)} more than the median rank's {median}"
        first = f"{who.capitalize()} is the slowest: {work} of work per step, {more}."
    else:
        first = f"No rank is slow: {who} has the most work, {work} per step; the median rank has {median}."
    lost = (
        f"The slowest rank of each interval cost the gang {_spelled(slow.lost_seconds)}, "
        f"{_percent(slow.lost_share)} of its step time."
    )
    return [first, lost]


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %" if share < 0.0995 else f"{share * 100:.0f} %"


def _spelled(seconds: float) -> str:
    """`1.24 ms`, `312 ms`, `4.1 s`, `2 min 5 s`, `2 h 5 min`."""
    if 60 <= seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    if seconds >= 60:
        return duration(seconds)
    size, unit = (1, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")
    return f"{seconds * size:.3g} {unit}"


def _why_not(read: TaskTimings, matrix: StepMatrix | None) -> str:
    if matrix is None:
        return (
            "Slow ranks are found by comparing steps, and the code marks no steps. "
            "Wrap each step in `with core_context.profiler.step(steps_completed):`."
        )
    if len(read.hosts) < 2:
        return "A single rank waits for no other."
    return "No two ranks have reported the same steps yet."


def _rounded(values: Floats) -> list[float | int | None]:
    return plain(np.round(values, _SECONDS_DIGITS))
