"""What is shown of a trial over its steps, as JSON has it: where a step goes, each timing, rates, and the slow rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from metrics import step_charts, stragglers
from metrics.packing import Floats
from metrics.step_charts import Spread
from metrics.stragglers import StepMatrix, Straggler
from metrics.timings import TaskTimings
from metrics.traces import plain
from trainmaster.quantities import duration

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
    edges = step_charts.edges(read)
    if edges is None:
        nothing: dict[str, Any] = {name: [] for name in ("ranks", "edges", "timings", "rates")}
        return nothing | {"stack": None, "slow": None, "why_not": ""}
    of_rank = [one for one in read.timings if rank in (None, one.rank)]
    counts = [one for one in read.counts if rank in (None, one.rank)]
    stack = step_charts.stack(of_rank, edges)
    matrix, slow = stragglers.of_timings(read)
    return {
        "ranks": [{"rank": each, "host": host} for each, host in sorted(read.hosts.items())],
        "edges": plain(edges),
        "stack": stack
        and {
            "parts": [
                {"name": part.name + (", rest" if part.of_rest else ""), "seconds": _rounded(part.seconds)}
                for part in stack.parts
            ],
            "overlaps": stack.overlaps,
        },
        "timings": [_spread(each) for each in step_charts.spreads(of_rank, edges)],
        "rates": [
            {"name": each.name, "values": _rounded(each.per_second)}
            for each in step_charts.rates(counts, edges)
        ],
        "slow": _slow(matrix, slow, read.hosts) if matrix and slow else None,
        "why_not": "" if slow else _why_not(read, matrix),
    }


def _spread(each: Spread) -> dict[str, Any]:
    parts = {field: _rounded(getattr(each, field)) for field in ("p50", "p95", "low", "high")}
    return {"name": each.name, "total": each.total, **parts}


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
