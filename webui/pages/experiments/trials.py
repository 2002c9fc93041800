"""The trials of an experiment as a table that its address filters, sorts, and cuts into pages."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page, Paginator
from django.http import QueryDict

from experiments.models import Experiment
from shown import trials as shown_trials
from shown.trials import TrialRow
from webui.pages.table_columns import Cell, Column, Head, Sort
from webui.pages.trials import columns as trial_columns
from webui.pages.trials.columns import TRIAL, USUAL

PER_PAGE = 100


@dataclass(frozen=True)
class TrialTable:
    """`total`: the trials of the experiment, also those that a filter leaves out."""

    rows: list[tuple[TrialRow, list[Cell]]]
    heads: list[Head]
    page: Page[Any]
    total: int

    @property
    def is_comparable(self) -> bool:
        return self.total > 1


def table(
    experiment: Experiment,
    query: QueryDict,
    columns: dict[str, Column[TrialRow]] | None = None,
    kept: Collection[int] | None = None,
) -> TrialTable:
    """`sort` (a column's key, `-` before it for downwards), `page`, `c` (columns), `state` (these two repeat).

    What makes no sense is left out. `columns`: those there are, unless the usual; `kept`: these trials alone.
    """
    columns = columns or trial_columns.of(experiment, [], [])
    chosen = [columns[key] for key in query.getlist("c") if key in columns and key != TRIAL]
    shown = [columns[TRIAL], *(chosen or [columns[key] for key in USUAL])]
    sort = Sort.read(query.get("sort", ""), columns.get, TRIAL)
    # the experiment is at hand: with each row would come the whole state of its search
    rows = shown_trials.with_numbers().filter(experiment=experiment).select_related(None)
    rows = rows.select_related("task", "latest_checkpoint")
    rows = shown_trials.in_states(rows, [state for state in query.getlist("state") if state])
    ordered = shown_trials.in_order(rows, sort.expression, kept)
    page: Page[Any] = Paginator(ordered, PER_PAGE).get_page(query.get("page"))
    total = experiment.trials.count() if query.get("state") or kept is not None else page.paginator.count
    trials = shown_trials.read_whole(rows, page)
    found = shown_trials.rows_of(
        experiment, trials, total, with_hosts=any(column.key == "host" for column in shown)
    )
    cells = [(row, [column.cell(row) for column in shown]) for row in found]
    return TrialTable(cells, [sort.head(column) for column in shown], page, total)
