"""The trials of an experiment as a table that its address filters, sorts, and cuts into pages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import QueryDict

from experiments import phases
from experiments.models import Experiment, Trial
from experiments.states import ExperimentState, TrialState
from metrics.hparam_axes import Bounds, Flat
from metrics.parallel_chart import METRIC
from shown import trials as shown_trials
from shown import verdicts
from shown.hparams import named
from webui.pages.table_columns import Column, Head, Sort
from webui.pages.trials import columns as trial_columns
from webui.pages.trials.columns import TRIAL, USUAL, Row

PER_PAGE = 100
#: why a trial of a running search is paused, though nobody paused it
PARKED = "parked by the search until it is promoted"


@dataclass(frozen=True)
class Table:
    """`total`: the trials of the experiment, also those that a filter leaves out."""

    rows: list[Row]
    heads: list[Head]
    page: Page[Any]
    total: int

    @property
    def is_comparable(self) -> bool:
        return self.total > 1


def table(
    experiment: Experiment,
    query: QueryDict,
    columns: dict[str, Column[Row]] | None = None,
    kept: Collection[int] | None = None,
) -> Table:
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
    page: Page[Any] = Paginator(_in_order(rows, sort, kept), PER_PAGE).get_page(query.get("page"))
    total = experiment.trials.count() if query.get("state") or kept is not None else page.paginator.count
    found = _rows(experiment, _read(rows, page), shown, total)
    return Table(found, [sort.head(column) for column in shown], page, total)


def within(tried: Iterable[tuple[int, Flat, float | None]], bounds: dict[str, Bounds]) -> set[int]:
    """Return the trials of (trial, hyperparameters, best searcher metric) that are within all bounds (METRIC)."""
    return {
        pk
        for pk, hparams, best in tried
        if all(
            each.hold_number(float("nan") if best is None else best)
            if name == METRIC
            else each.hold(hparams, name)
            for name, each in bounds.items()
        )
    }


def _read(rows: QuerySet[Trial], page: Iterable[Any]) -> list[Trial]:
    """The trials of a page, whole."""
    here = list(page)
    ids = [each for each in here if not isinstance(each, Trial)]
    found = {trial.pk: trial for trial in rows.filter(pk__in=ids)} if ids else {}
    return [found[pk] for pk in ids if pk in found] if ids else here


def _rows(experiment: Experiment, trials: list[Trial], shown: Sequence[Column[Row]], total: int) -> list[Row]:
    for trial in trials:
        trial.experiment = experiment
    why = verdicts.of_trials(trials, experiment.job.pool)
    if experiment.state == ExperimentState.ACTIVE:  # nobody else pauses a trial by itself
        why |= {trial.pk: PARKED for trial in trials if trial.state == TrialState.PAUSED}
    wants_hosts = any(column.key == "host" for column in shown)
    hosts = shown_trials.hosts_of([trial.task_id for trial in trials]) if wants_hosts else {}
    found = [
        Row(
            trial=trial,
            phase=phases.of(trial),
            why=why.get(trial.pk, ""),
            is_best=trial.pk == experiment.best_trial_id and total > 1,
            hparams=named(trial.hparams),
            hosts=hosts.get(trial.task_id, ()),
        )
        for trial in trials
    ]
    for row in found:
        row.cells.extend(column.cell(row) for column in shown)
    return found


def _in_order(rows: QuerySet[Trial], sort: Sort, kept: Collection[int] | None) -> QuerySet[Trial] | list[int]:
    """Return the rows in order; if `kept` is given, only their ids, since a page of them is read whole."""
    ordered = rows.order_by(sort.expression, "pk")
    if kept is None:
        return ordered
    return [pk for pk in ordered.values_list("pk", flat=True) if pk in kept]
