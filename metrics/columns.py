"""Reports as runners ship them: columns of one group, as tables where nothing about them is odd.

Everything else becomes single reports, as training code wrote them, so what a report may hold is checked in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from metrics.table import Table, column_of
from metrics.values import are_numbers, group_name, is_safe

#: PostgreSQL's bigint.
MOST_STEPS = 2**63 - 1
#: Times beyond this second, in the year 9000, are no clock's.
MOST_SECONDS = 221_845_392_000.0
_RUNS = 2**31


class Columns(NamedTuple):
    """Reports of one group and run with the same names, as many as the table has rows."""

    group: str
    run_id: int
    table: Table

    @property
    def steps_completed(self) -> int:
        """The last step."""
        return int(self.table.steps[-1])

    @property
    def names(self) -> Sequence[str]:
        return list(self.table.columns)


def columns_of(data: Any) -> Columns | None:
    """One table of a `reports` record (docs/protocol.md); None: its reports have to be looked at one by one."""
    if not isinstance(data, dict):
        return None
    group, run_id, values = data.get("group"), data.get("run_id"), data.get("values")
    if not (isinstance(group, str) and group and group == group_name(group)):
        return None
    if type(run_id) is not int or not 0 < run_id < _RUNS or not isinstance(values, dict) or not values:
        return None
    steps, times = _steps(data.get("steps")), _times(data.get("times"))
    if steps is None or times is None or len(times) != len(steps):
        return None
    for name, column in values.items():
        if not is_safe(name) or not isinstance(column, list) or len(column) != len(steps):
            return None
        if not are_numbers(column):
            return None
    columns = {name: column_of(column) for name, column in values.items()}
    return Columns(group, run_id, Table(steps, times, np.full(len(steps), run_id, np.int64), columns))


def _steps(steps: Any) -> Any:
    """The steps, which ascend, as an array; None for any others."""
    if not isinstance(steps, list) or set(map(type, steps)) != {int}:
        return None
    if min(steps) < 0 or max(steps) > MOST_STEPS:
        return None
    found = np.array(steps, np.int64)
    return found if bool((found[1:] > found[:-1]).all()) else None


def _times(times: Any) -> Any:
    """Epoch seconds as an array of microseconds; None for what is no time."""
    if not isinstance(times, list) or not {float, int}.issuperset(map(type, times)):
        return None
    try:
        seconds = np.array(times, np.float64)
    except OverflowError:
        return None
    if not bool((np.abs(seconds) < MOST_SECONDS).all()):
        return None
    return np.rint(seconds * 1e6).astype(np.int64)


def reports_of(data: Any) -> list[dict[str, Any]]:
    """The reports of one table as training code wrote them. Raises ValueError for what is no table."""
    if not isinstance(data, dict) or not isinstance(data.get("values"), dict):
        raise ValueError("a table of reports must be an object with lists: steps, times, and values by name")
    steps, times, values = data.get("steps"), data.get("times"), data["values"]
    lists = {
        "steps": steps,
        "times": times,
        **{f"values of {name[:80]!r}": each for name, each in values.items()},
    }
    for what, each in lists.items():
        if not isinstance(each, list):
            raise ValueError(f"{what} of a table of reports is {type(each).__name__}; it must be a list")
        if len(each) != count_of(data):
            raise ValueError(
                f"{what} of a table of reports has {len(each):,} entries, steps has {count_of(data):,}; "
                "each list must have one for each report"
            )
    assert isinstance(steps, list) and isinstance(times, list)
    common = {"type": "metrics", "group": data.get("group"), "run_id": data.get("run_id")}
    rows = zip(*values.values(), strict=True) if values else iter([()] * len(steps))
    return [
        {**common, "steps_completed": step, "t": at, "metrics": dict(zip(values, row, strict=True))}
        for step, at, row in zip(steps, times, rows, strict=True)
    ]


def count_of(data: Any) -> int:
    """How many reports a table says it holds."""
    steps = data.get("steps") if isinstance(data, dict) else None
    return len(steps) if isinstance(steps, list) else 0
