"""Reads reports as they were reported, for tables: one after the other, with all that is no number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from metrics import chunks
from metrics.models import Chunk
from metrics.series import envelope, window
from metrics.table import Rows, Table, joined

#: Fewer points than these show no curve, nor hold what the envelope has to keep.
_LEAST_OF_A_CURVE = 7
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Reported:
    """One live report; `values` as JSON: number, "NaN", "Infinity", "-Infinity", text or what else came."""

    trial_id: int
    run_id: int
    group: str
    steps_completed: int
    reported_at: datetime
    values: dict[str, Any]


def read(
    trial_ids: Sequence[int],
    groups: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    *,
    first_step: int | None = None,
    last_step: int | None = None,
) -> Iterator[Reported]:
    """Live reports by trial, group and step; None: of all groups, with all their names.

    With `names`, reports that have none of them are left out.
    """
    for trial_id, group, table in _tables(trial_ids, groups, names, first_step, last_step):
        for report in _reports(trial_id, group, table):
            if report.values or names is None:
                yield report


def tables(trial_id: int) -> Iterator[tuple[str, Table]]:
    """All live reports of a trial, (group, table) of some 1,000 at a time, in order within a group."""
    for _, group, table in _tables([trial_id], None, None, None, None):
        yield group, table


def windows(trial_id: int, group: str) -> list[tuple[int, int]]:
    """First and last step of parts of a group's live history, each some 1,000 reports at most, in their order."""
    live = Chunk.objects.filter(group__trial_id=trial_id, group__name=group, archived=False)
    return list(live.order_by("first_step").values_list("first_step", "last_step"))


def telling(
    trial_id: int,
    group: str,
    names: Sequence[str] | None = None,
    *,
    first_step: int | None = None,
    last_step: int | None = None,
    most: int,
) -> Table | None:
    """At most `most` of them, the first and the last among them, and of each metric the extremes of its window.

    Where there are too many metrics for that, evenly chosen ones. None where there is none.
    """
    tables = [table for _, _, table in _tables([trial_id], [group], names, first_step, last_step)]
    if not tables:
        return None
    table = joined(tables)
    if names is not None and table.columns:
        has = np.logical_or.reduce([column.has for column in table.columns.values()])
        table = table if has.all() else table.taken(has)
    return table.taken(_chosen(table, most))


def _chosen(table: Table, most: int) -> Rows:
    if len(table) <= most:
        return slice(None)
    curves = [column for column in table.columns.values() if column.present.any()]
    each = (most - 2) // max(1, len(curves))
    if each < _LEAST_OF_A_CURVE:
        return np.unique(np.linspace(0, len(table) - 1, most).astype(np.intp))
    rows = [np.array([0, len(table) - 1])]
    for column in curves:
        present = np.flatnonzero(column.present)
        rows.append(present[envelope(column.values[present], each)])
    return np.unique(np.concatenate(rows))


def _tables(
    trial_ids: Sequence[int],
    groups: Sequence[str] | None,
    names: Sequence[str] | None,
    first_step: int | None,
    last_step: int | None,
) -> Iterator[tuple[int, str, Table]]:
    where, parameters = "metric_group.trial_id = ANY(%s)", [list[Any](trial_ids)]
    if groups is not None:
        where, parameters = f"{where} AND metric_group.name = ANY(%s)", [*parameters, list(groups)]
    found = chunks.live(where, parameters, names, first_step, last_step)
    for trial_id, group, count, head, columns in found:
        table = chunks.unpack(count, head, columns)
        rows = window(table.steps, first_step, last_step)
        whole = rows == slice(0, len(table))  # as nearly all chunks are
        yield trial_id, group, table if whole else table.taken(rows)


def _reports(trial_id: int, group: str, table: Table) -> Iterator[Reported]:
    rows = zip(
        table.runs.tolist(), table.steps.tolist(), table.times.tolist(), table.as_reported(), strict=True
    )
    for run, step, time, values in rows:
        yield Reported(trial_id, run, group, step, _EPOCH + timedelta(microseconds=time), values)
