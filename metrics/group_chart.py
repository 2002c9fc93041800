"""What a group held, borrowed, lent and waited for over time, a figure for each pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from metrics.cluster_charts import span_seconds
from metrics.traces import AMBER, BLUE, GRAY, GREEN, LEGEND, PINK, Figure, amounts, over_time
from metrics.units import time_axis

#: field, and how its line is drawn
_LINES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("held", {"color": BLUE, "width": 2}),
    ("guaranteed", {"color": GRAY, "width": 1.5, "dash": "dash"}),
    ("borrowed", {"color": AMBER, "width": 1.5, "dash": "dot"}),
    ("lent", {"color": GREEN, "width": 1.5, "dash": "dashdot"}),
    ("waiting", {"color": PINK, "width": 1.5, "dash": "longdash"}),
)


class GroupSpan(NamedTuple):
    """How a group stood in a pool from `at` (epoch seconds) on, in slots, on average."""

    pool: str
    at: float
    guaranteed: float
    held: float
    borrowed: float
    lent: float
    waiting: float


def figures(spans: Sequence[GroupSpan], first_time: float, last_time: float) -> list[Figure]:
    """A figure for each pool, by its name; what was not counted is a gap. The spans are by time within a pool."""
    of_pool: dict[str, list[GroupSpan]] = {}
    for each in spans:
        of_pool.setdefault(each.pool, []).append(each)
    size = span_seconds(last_time - first_time)
    return [_figure(pool, found, size, (first_time, last_time)) for pool, found in of_pool.items()]


def _figure(pool: str, found: Sequence[GroupSpan], size: int, window: tuple[float, float]) -> Figure:
    times = np.array([each.at + size / 2 for each in found])
    data = [
        over_time(
            name,
            times,
            np.array([getattr(each, name) for each in found]),
            "slots",
            line,
            gap_seconds=2 * size,
        )
        for name, line in _LINES
    ]
    newest = found[-1]
    said = ", ".join(f"{getattr(newest, name):.3g} {name}" for name, _ in _LINES)
    title = f"Slots in {pool}"
    layout = amounts(f"{title} {round(window[1] - window[0])}", time_axis(*window), "slots", legend=LEGEND)
    return {"name": title, "described": f"{title}: {said}", "data": data, "layout": layout}
