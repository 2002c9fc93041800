"""The one writer of reported metrics. Everything here may be repeated without harm."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
from django.db import transaction

from events import prepared
from metrics import chunks
from metrics.columns import Columns
from metrics.models import Chunk, Group
from metrics.table import Table, joined, laid_together, merged, table_of
from metrics.values import flat, group_name

log = logging.getLogger(__name__)


class Report(NamedTuple):
    """One report of a group at a step; `at` in epoch seconds; values may nest and may be no numbers."""

    run_id: int
    group: str
    steps_completed: int
    at: float
    values: Mapping[str, Any]

    @property
    def names(self) -> Collection[str]:
        return flat(self.values)


#: In memory a table has a cell of 9 bytes for each name and report, also where a report lacks the name.
CELLS = 4_000_000


@dataclass
class Stored:
    """What was new, by group, and the names that were refused: (group, step, name)."""

    fresh: dict[str, Table] = field(default_factory=dict)
    refused: list[tuple[str, int, str]] = field(default_factory=list)


@transaction.atomic(savepoint=False)
def store(trial_id: int, reports: Iterable[Report | Columns]) -> Stored:
    """Store reports of a trial in one go, in the caller's transaction, with its groups locked in order of their names.

    Reports of one step merge. A repeated equal value is fine; a name that stands with another value keeps
    it when the same run reported both ("overwriting existing metric keys is not supported"), and takes the
    new one from a later run. The answer names what was refused so; nothing raises: a stream must go on.
    """
    stored = Stored()
    came: dict[str, list[Report | Columns]] = {}
    for report in reports:
        came.setdefault(group_name(report.group), []).append(report)
    for name in sorted(came):
        new = together(came[name], stored)
        if len(new) <= chunks.FULL and _append_whole(trial_id, name, new):
            stored.fresh[name] = new
            continue
        group = _locked(trial_id, name)
        if group.last_step is None or new.steps[0] > group.last_step:
            _append(group, new)
            group.reports += len(new)
            stored.fresh[name] = new
        else:
            fresh, refused = _merge(group, new)
            stored.fresh[name] = fresh
            stored.refused += [(name, step, metric) for step, metric in refused]
        group.last_step = max(group.last_step or 0, int(new.steps[-1]))
        with chunks.cursor() as cursor:
            cursor.execute(_COUNT, [group.reports, group.last_step, group.pk])
    if stored.refused:
        log.info(
            "trial %s: overwriting existing metric keys is not supported (%s)",
            trial_id, ", ".join(f"{name} of {group} at step {step}" for group, step, name in stored.refused[:10]),
        )  # fmt: skip
    return stored


def parts(reports: Sequence[Report | Columns | None]) -> list[Sequence[Report | Columns | None]]:
    """The reports cut, in their order, into parts that have at most CELLS in each group if every name is a column.

    A table that is larger by itself, which takes as many numbers on the wire, is a part of its own.
    """
    sizes = [(1 if isinstance(each, Report) else len(each.table), each) for each in reports if each]
    if sum(size for size, _ in sizes) * sum(len(each.names) for _, each in sizes) <= CELLS:
        return [reports]
    found, start = [], 0
    rows: dict[str, int] = {}
    names: dict[str, set[str]] = {}
    for place, each in enumerate(reports):
        if each is None:
            continue
        size = 1 if isinstance(each, Report) else len(each.table)
        count = rows.get(each.group, 0) + size
        if place > start and count * len(names.get(each.group, set()).union(each.names)) > CELLS:
            found.append(reports[start:place])
            start, rows, names, count = place, {}, {}, size
        rows[each.group] = count
        names.setdefault(each.group, set()).update(each.names)
    return [*found, reports[start:]]


def together(came: Sequence[Report | Columns], stored: Stored) -> Table:
    """What came of one group as one table."""
    tables = [each.table for each in came if isinstance(each, Columns)]
    alone = [each for each in came if isinstance(each, Report)]
    refused: list[tuple[str, int, str]] = []
    if alone:
        tables.append(_laid(alone, refused))
    found = laid_together(tables)
    if found is None:  # a step came twice: the first report of it counts, wherever it stood
        refused.clear()
        found = _laid([report for each in came for report in _alone(each)], refused)
    stored.refused += refused
    return found


def _alone(came: Report | Columns) -> Sequence[Report]:
    if isinstance(came, Report):
        return [came]
    table = came.table
    rows = zip(table.steps.tolist(), table.times.tolist(), table.as_reported(), strict=True)
    return [Report(came.run_id, came.group, step, at / 1e6, values) for step, at, values in rows]


def _laid(reports: Iterable[Report], refused: list[tuple[str, int, str]]) -> Table:
    rows: dict[int, Report] = {}
    for report in reports:
        _lay(rows, report, refused)
    return _table(rows)


def _lay(rows: dict[int, Report], report: Report, refused: list[tuple[str, int, str]]) -> None:
    """Put a report to those of its group that came with it; those of one step merge."""
    values = flat(report.values)
    if values is not report.values:
        report = report._replace(values=values)
    standing = rows.setdefault(report.steps_completed, report)
    if standing is report:
        return
    older, newer = sorted((standing, report), key=lambda each: each.run_id)
    both = report.values.keys() & standing.values.keys()
    if report.run_id <= standing.run_id:
        same = [name for name in both if _is_same(report.values[name], standing.values[name])]
        refused += [(report.group, report.steps_completed, name) for name in sorted(both.difference(same))]
        older, newer = report, standing
    rows[report.steps_completed] = newer._replace(values={**older.values, **newer.values})


def _is_same(one: Any, other: Any) -> bool:
    """A whole number equals the float that a column of both keeps for it."""
    return repr(one) == repr(other) or (
        type(one) in (int, float) and type(other) in (int, float) and one == other
    )


def _table(rows: Mapping[int, Report]) -> Table:
    steps = sorted(rows)
    chosen = [rows[step] for step in steps]
    return table_of(
        steps,
        [round(each.at * 1e6) for each in chosen],
        [each.run_id for each in chosen],
        [each.values for each in chosen],
    )


_LOCK = """INSERT INTO metrics_group AS known (trial_id, name, reports) VALUES (%s, %s, 0)
ON CONFLICT (trial_id, name) DO UPDATE SET reports = known.reports RETURNING id, reports, last_step"""


#: Written out, as the others of each batch are: Django's own cost several times as much.
_COUNT = "UPDATE metrics_group SET reports = %s, last_step = %s WHERE id = %s"
#: So many small chunks are put together.
_FEW = 16
_TAIL = f"""SELECT id, reports FROM metrics_chunk WHERE group_id = %s AND NOT archived
ORDER BY first_step DESC LIMIT {2 * _FEW}"""
#: The sizes of the chunks before the new one, the newest first; null most times, since they are rarely needed.
_BEFORE = f"""CASE WHEN reports / {_FEW} <> (reports - %(count)s) / {_FEW} THEN ARRAY(
  SELECT chunk.reports FROM metrics_chunk chunk WHERE chunk.group_id = known.id AND NOT chunk.archived
  ORDER BY chunk.first_step DESC LIMIT {_FEW}) END"""
_APPEND = f"""WITH guard AS (SELECT 1), known AS (
  INSERT INTO metrics_group AS known (trial_id, name, reports, last_step)
  SELECT %(trial)s::bigint, %(name)s::text, %(count)s::bigint, %(last)s::bigint FROM guard
  ON CONFLICT (trial_id, name) DO UPDATE SET reports = known.reports + excluded.reports, last_step = excluded.last_step
    WHERE known.last_step IS NULL OR known.last_step < %(first)s
  RETURNING id, reports
), written AS (
  INSERT INTO metrics_chunk ({chunks.COLUMNS}) SELECT id, {chunks.VALUES} FROM known
)
SELECT id, {_BEFORE} FROM known"""


def _append_whole(trial_id: int, name: str, new: Table) -> bool:
    """Append reports as a chunk; return False and do nothing if they are not behind all others of the group."""
    with prepared.cursor() as cursor:
        cursor.execute(_APPEND, {"trial": trial_id, "name": name, **chunks.values(new)})
        known = cursor.fetchone()
    if known is None:
        return False
    pk, before = known
    if _are_many(before, len(new)):
        _put_together(pk)
    return True


def append_alone(
    trial_id: int,
    reports: Sequence[Report | Columns],
    statement: str,
    parameters: Callable[[Table], Mapping[str, Any]],
) -> bool:
    """Append reports of one group by a `statement` of `appending`; False if it has done nothing.

    That is in a transaction of its own, if the caller has none.
    """
    stored = Stored()
    name, new = group_name(reports[0].group), together(reports, stored)
    if stored.refused or len(new) > chunks.FULL:
        return False
    with prepared.cursor() as cursor:
        cursor.execute(statement, {"trial": trial_id, "name": name, **chunks.values(new), **parameters(new)})
        known = cursor.fetchone()
    if known is None:
        return False
    pk, before = known
    if _are_many(before, len(new)):
        with transaction.atomic():
            _locked(trial_id, name)
            _put_together(pk)
    return True


def appending(guard: str, changes: str) -> str:
    """The statement that appends a chunk of reports if `guard` finds a row, and then makes the `changes`.

    `guard` is a SELECT that locks what it finds; `changes` are UPDATEs from `known`, the group, which is there if the
    reports are behind all others of it, each as `name AS (UPDATE …)`. They may use the parameter `trial`, and what
    `append_alone` is given.
    """
    assert _APPEND.count("(SELECT 1)") == 1
    guarded = _APPEND.replace("(SELECT 1)", f"MATERIALIZED ({guard})")
    return guarded.replace("\nSELECT id, CASE", f", {changes}\nSELECT id, CASE")


def _are_many(before: Sequence[int] | None, new: int) -> bool:
    """Whether small chunks are to be put together, when a chunk of `new` reports has come behind these."""
    small = sum(1 for _ in takewhile(lambda size: size < chunks.FULL, before or ()))
    return small >= (2 if new >= chunks.FULL else _FEW - 1)


def _put_together(group_id: int) -> None:
    if len(small := _small(group_id, 0)) > 1:
        _replace(group_id, small, joined(_read(small)), at_the_tail=True)


def _locked(trial_id: int, name: str) -> Group:
    """The group's row, made where there is none."""
    with chunks.cursor() as cursor:
        cursor.execute(_LOCK, [trial_id, name])
        ((pk, reports, last_step),) = cursor.fetchall()
    return Group(id=pk, trial_id=trial_id, name=name, reports=reports, last_step=last_step)


def _append(group: Group, new: Table) -> None:
    """Reports behind all others of the group. Small chunks before them are filled up."""
    small = _small(group.pk, len(new))
    _replace(group.pk, small, joined([*_read(small), new]), at_the_tail=True)


def _small(group_id: int, total: int) -> list[int]:
    """The small chunks at the end of a group that are to be written again, together with the reports behind them.

    Those are taken in while they hold less than twice as much as what follows them, so that a report is written
    again a few times only, and few small chunks remain however the reports come. Full chunks behind them stay.
    """
    with chunks.cursor() as cursor:
        tail = cursor.execute(_TAIL, [group_id]).fetchall()
    found = []
    for pk, count in tail:
        if count >= chunks.FULL and not total:
            continue
        if count >= chunks.FULL or 0 < 2 * total <= count:
            break
        found.append(pk)
        total += count
    return found


def _merge(group: Group, new: Table) -> tuple[Table, list[tuple[int, str]]]:
    """Reports of which some come late, or again: each goes to the chunk whose steps it lies among or behind."""
    live = list(
        _live(group).filter(last_step__gte=int(new.steps[0])).values_list("pk", "first_step", "reports")
    )
    starts = np.array([first for _, first, _ in live])
    places = np.clip(np.searchsorted(starts, new.steps, "right") - 1, 0, None)
    fresh, refused = [], []
    for place in np.unique(places).tolist():
        pk, _, count = live[place]
        part = new.taken(places == place)
        (standing,) = _read([pk])
        found = merged(standing, part)
        if found.fresh.columns or len(found.table) > count or (found.table.runs.sum() != standing.runs.sum()):
            _replace(group.pk, [pk], found.table, at_the_tail=place == len(live) - 1)
        group.reports += len(found.table) - count
        fresh.append(found.fresh)
        refused += found.refused
    return joined(fresh), refused


def _live(group: Group) -> Any:
    return Chunk.objects.filter(group_id=group.pk, archived=False)


def _read(ids: Sequence[int]) -> list[Table]:
    """The tables of these chunks, in order of their steps."""
    if not ids:
        return []
    rows = chunks.select("chunk.id = ANY(%s)", [list(ids)], None)
    return [chunks.unpack(count, head, columns) for _, _, count, head, columns in rows]


def _replace(group_id: int, ids: Sequence[int], table: Table, *, at_the_tail: bool) -> None:
    if ids:
        with chunks.cursor() as cursor:
            cursor.execute("DELETE FROM metrics_chunk WHERE id = ANY(%s)", [list(ids)])
    chunks.insert(group_id, chunks.pieces(table, at_the_tail=at_the_tail))


@transaction.atomic
def archive_after(trial_id: int, steps_completed: int) -> int:
    """A restart goes on from this step: put aside what was reported beyond it, and say how many reports."""
    beyond = 0
    for group in Group.objects.select_for_update().filter(trial_id=trial_id, last_step__gt=steps_completed):
        live = _live(group).filter(last_step__gt=steps_completed)
        for pk in live.filter(first_step__lte=steps_completed).values_list("pk", flat=True):
            (table,) = _read([pk])
            at = int(np.searchsorted(table.steps, steps_completed, "right"))
            Chunk.objects.filter(pk=pk).delete()
            chunks.insert(group.pk, [table.taken(slice(0, at))])
            chunks.insert(group.pk, [table.taken(slice(at, None))], archived=True)
            beyond += len(table) - at
            group.reports -= len(table) - at
        whole = sum(live.values_list("reports", flat=True))
        live.update(archived=True)
        beyond += whole
        last = _live(group).order_by("-first_step").values_list("last_step", flat=True).first()
        Group.objects.filter(pk=group.pk).update(reports=group.reports - whole, last_step=last)
    return beyond
