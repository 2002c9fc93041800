"""Reports of one group as columns: what the writer merges and chunks hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from metrics.packing import Floats, Integers
from metrics.values import name_of, number

Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp] | Flags | slice

#: Stands for "this report does not have that name".
ABSENT: Any = object()
#: Integers up to this size are floats without loss.
_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class Column:
    """One name over all reports of a table."""

    values: Floats  # NaN where there is no number
    present: Flags  # the report has a number of this name, which may be NaN
    others: dict[
        int, Any
    ]  # row -> what was reported, where a float alone does not say it: text, lists, truth, null
    whole: bool  # the numbers came as integers

    @property
    def has(self) -> Flags:
        """Which reports have this name."""
        if not self.others:
            return self.present
        has = self.present.copy()
        has[list(self.others)] = True
        return has

    def as_reported(self) -> list[Any]:
        """The values as JSON (NaN and infinities by name); ABSENT where the report does not have the name."""
        numbers: list[Any] = self.values.tolist()
        if not np.isfinite(self.values).all():
            numbers = [value if value - value == 0 else name_of(value) for value in numbers]
        if self.whole:
            numbers = [value if isinstance(value, str) else int(value) for value in numbers]
        if not self.present.all():
            numbers = [
                value if there else ABSENT
                for value, there in zip(numbers, self.present.tolist(), strict=True)
            ]
        for row, value in self.others.items():
            numbers[row] = value
        return numbers

    def last(self) -> tuple[int, Any]:
        """The last row that has this name, and its value as JSON; -1 and None where there is none."""
        if not self.others and self.present[-1]:
            value = float(self.values[-1])
            named = name_of(value) if not math.isfinite(value) else int(value) if self.whole else value
            return len(self.values) - 1, named
        rows = np.flatnonzero(self.has)
        at = int(rows[-1]) if len(rows) else -1
        return at, self.taken(slice(at, None)).as_reported()[0] if at >= 0 else None

    def taken(self, rows: Rows) -> Column:
        others = self.others
        if others:
            kept = np.arange(len(self.values))[rows].tolist()
            others = {new: others[old] for new, old in enumerate(kept) if old in others}
        return Column(self.values[rows], self.present[rows], others, self.whole)

    def only(self, kept: Flags) -> Column:
        """Return a column with the same rows that has values only in the kept ones."""
        others = {row: value for row, value in self.others.items() if kept[row]}
        return Column(np.where(kept, self.values, np.nan), self.present & kept, others, self.whole)

    def spread(self, rows: Integers, count: int) -> Column:
        """As a column of `count` reports, of which these are the rows `rows`."""
        values, present = np.full(count, np.nan), np.zeros(count, np.bool_)
        values[rows], present[rows] = self.values, self.present
        return Column(
            values, present, {int(rows[row]): value for row, value in self.others.items()}, self.whole
        )

    def differs(self, other: Column) -> Flags:
        """Rows in which the two do not say the same."""
        same = (self.values == other.values) | (np.isnan(self.values) & np.isnan(other.values))
        differs: Flags = ~same | (self.present != other.present)
        for row in self.others.keys() | other.others.keys():
            mine, theirs = self.others.get(row, ABSENT), other.others.get(row, ABSENT)
            differs[row] = mine != theirs or type(mine) is not type(theirs)
        return differs


def no_column(count: int) -> Column:
    """What a name is that no report has."""
    return Column(np.full(count, np.nan), np.zeros(count, np.bool_), {}, True)


def column_of(values: Sequence[Any]) -> Column:
    """Reported values, one of each report, as a column."""
    kinds = set(map(type, values))
    if kinds == {float} or (kinds == {int} and min(values) >= -_EXACT and max(values) <= _EXACT):
        return Column(np.array(values, np.float64), np.ones(len(values), np.bool_), {}, int in kinds)
    column = no_column(len(values))
    whole = True
    for row, value in enumerate(values):
        if value is ABSENT:
            continue
        found = number(value)
        if found is not None:
            column.values[row], column.present[row] = found, True
        if type(value) is float or (isinstance(value, str) and found is not None):
            whole = whole and found is not None and found - found != 0  # NaN by name is of any kind
        elif type(value) is not int or not -_EXACT <= value <= _EXACT:
            column.others[row] = value
    return Column(column.values, column.present, column.others, whole)


@dataclass(frozen=True, slots=True)
class Table:
    """Reports of one group, one per step, steps ascending."""

    steps: Integers
    times: Integers  # microseconds since the epoch
    runs: Integers
    columns: dict[str, Column]

    def __len__(self) -> int:
        return len(self.steps)

    def taken(self, rows: Rows) -> Table:
        columns = {name: column.taken(rows) for name, column in self.columns.items()}
        columns = {name: column for name, column in columns.items() if column.others or column.present.any()}
        return Table(self.steps[rows], self.times[rows], self.runs[rows], columns)

    def row_of(self, step: int) -> int | None:
        row = int(np.searchsorted(self.steps, step))
        return row if row < len(self) and self.steps[row] == step else None

    def as_reported(self) -> list[dict[str, Any]]:
        """The values of each report."""
        columns = [(name, column.as_reported()) for name, column in self.columns.items()]
        return [
            {name: values[row] for name, values in columns if values[row] is not ABSENT}
            for row in range(len(self))
        ]


def table_of(
    steps: Sequence[int], times: Sequence[int], runs: Sequence[int], rows: Sequence[Mapping[str, Any]]
) -> Table:
    """Reports as a table: steps ascending and all different, values as metrics.values.flat makes them."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if all(len(row) == len(names) for row in rows):
        columns = {name: column_of([row[name] for row in rows]) for name in names}
    else:
        columns = {name: column_of([row.get(name, ABSENT) for row in rows]) for name in names}
    return Table(np.array(steps, np.int64), np.array(times, np.int64), np.array(runs, np.int64), columns)


def joined(tables: Sequence[Table]) -> Table:
    """Tables one after the other; the steps of each lie behind those of the one before."""
    if len(tables) == 1:
        return tables[0]
    count = sum(map(len, tables))
    columns: dict[str, Column] = {}
    for name in dict.fromkeys(name for table in tables for name in table.columns):
        values, present = np.full(count, np.nan), np.zeros(count, np.bool_)
        others: dict[int, Any] = {}
        whole, start = True, 0
        for table in tables:
            column, end = table.columns.get(name), start + len(table)
            if column is not None:
                values[start:end], present[start:end] = column.values, column.present
                others.update({start + row: value for row, value in column.others.items()})
                whole = whole and column.whole
            start = end
        columns[name] = Column(values, present, others, whole)
    return Table(
        np.concatenate([table.steps for table in tables]),
        np.concatenate([table.times for table in tables]),
        np.concatenate([table.runs for table in tables]),
        columns,
    )


def laid_together(tables: Sequence[Table]) -> Table | None:
    """Tables as one, whose steps may lie among each other; None if a step is in two of them."""
    if all(later.steps[0] > earlier.steps[-1] for earlier, later in pairwise(tables)):
        return joined(tables)
    order = np.argsort(np.concatenate([table.steps for table in tables]))
    found = joined(tables).taken(order)
    return found if bool((found.steps[1:] > found.steps[:-1]).all()) else None


@dataclass(frozen=True, slots=True)
class Merged:
    """`table` holds both; `fresh` what the new one brought; `refused` (step, name) pairs that stand otherwise."""

    table: Table
    fresh: Table
    refused: list[tuple[int, str]]


def merged(standing: Table, new: Table) -> Merged:
    """Reports of one step become one (features.md 8.4).

    A name that stands keeps its value, unless a later run reports it anew; an equal value is nothing new.
    """
    steps = np.union1d(standing.steps, new.steps)
    count = len(steps)
    at_old, at_new = np.searchsorted(steps, standing.steps), np.searchsorted(steps, new.steps)
    runs_old, runs_new = (
        _laid(rows, table.runs, count) for rows, table in ((at_old, standing), (at_new, new))
    )
    newer = runs_new > runs_old
    times = np.where(newer, _laid(at_new, new.times, count), _laid(at_old, standing.times, count))
    columns, fresh, refused = {}, {}, []
    for name in dict.fromkeys([*standing.columns, *new.columns]):
        old, brought = (
            table.columns[name].spread(rows, count) if name in table.columns else no_column(count)
            for table, rows in ((standing, at_old), (new, at_new))
        )
        both = brought.has & old.has
        differs = brought.differs(old)
        takes = brought.has & (newer | ~old.has)
        columns[name] = _either(takes, brought, old)
        fresh[name] = brought.only(takes & (differs | ~old.has)).taken(at_new)
        refused += [(int(step), name) for step in steps[both & ~newer & differs]]
    return Merged(
        Table(steps, times, np.maximum(runs_old, runs_new), columns),
        Table(new.steps, new.times, new.runs, fresh),
        refused,
    )


def _laid(rows: Integers, values: Integers, count: int) -> Integers:
    laid = np.full(count, -1, np.int64)
    laid[rows] = values
    return laid


def _either(first: Flags, yes: Column, no: Column) -> Column:
    others = {row: value for row, value in no.others.items() if not first[row]}
    others |= {row: value for row, value in yes.others.items() if first[row]}
    return Column(
        np.where(first, yes.values, no.values),
        np.where(first, yes.present, no.present),
        others,
        yes.whole and no.whole,
    )
