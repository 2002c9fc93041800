"""The trials of an experiment as a table that its address filters, sorts, and cuts into pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.db.models.fields.json import KeyTransform
from django.http import QueryDict

from experiments import phases
from experiments.models import Experiment, Trial
from experiments.states import ExperimentState, TrialState
from metrics.hparam_axes import Bounds, flat
from metrics.parallel_chart import METRIC
from webui.api.trial_encoding import trials_in_states, trials_with_numbers
from webui.pages import trial_columns, verdicts
from webui.pages.hparams import named
from webui.pages.trial_columns import TRIAL, USUAL, Column, Row

PER_PAGE = 100
#: why a trial of a running search is paused, though nobody paused it
PARKED = "parked by the search until it is chosen to go on"


@dataclass(frozen=True)
class Head:
    """A column's head. `order`: `ascending`, `descending` or nothing; `next`: what a click asks for."""

    key: str
    title: str
    is_number: bool
    order: str
    next: str


@dataclass(frozen=True)
class Table:
    """`total`: the trials of the experiment, also those that a filter leaves out."""

    rows: list[Row]
    heads: list[Head]
    page: Page[Trial]
    total: int

    @property
    def is_comparable(self) -> bool:
        return self.total > 1


def table(
    experiment: Experiment,
    query: QueryDict,
    columns: dict[str, Column] | None = None,
    bounds: dict[str, Bounds] | None = None,
) -> Table:
    """`sort` (a column's key, `-` before it for downwards), `page`, `c` (columns), `state` (these two repeat).

    What makes no sense is left out. `columns`: those there are, unless the usual; `bounds`: see `within`.
    """
    columns = columns or trial_columns.of(experiment, [], [])
    chosen = [columns[key] for key in query.getlist("c") if key in columns and key != TRIAL]
    shown = [columns[TRIAL], *(chosen or [columns[key] for key in USUAL])]
    wanted = query.get("sort", "")
    sort, is_down = wanted.removeprefix("-"), wanted.startswith("-")
    by = columns.get(sort)
    by = by if by and by.by is not None else None
    # the experiment is at hand: with each row would come the whole state of its search
    rows = trials_with_numbers().filter(experiment=experiment).select_related(None)
    rows = rows.select_related("task", "latest_checkpoint")
    rows = trials_in_states(rows, [state for state in query.getlist("state") if state])
    if bounds:
        rows = rows.filter(pk__in=within(experiment, bounds))
    page = Paginator(_ordered(rows, by, is_down), PER_PAGE).get_page(query.get("page"))
    total = experiment.trials.count() if query.get("state") or bounds else page.paginator.count
    found = _rows(experiment, list(page.object_list), shown, total)
    return Table(found, [_head(column, by, is_down) for column in shown], page, total)


def within(experiment: Experiment, bounds: dict[str, Bounds]) -> list[int]:
    """Trials whose hyperparameters, and best value of the searcher's metric (METRIC), lie within all of these."""
    best = KeyTransform("searcher_metric", "best_validation")
    found = []
    for pk, hparams, value in experiment.trials.values_list("pk", "hparams", best):
        tried = flat(hparams)
        if all(
            each.hold_number(float("nan") if value is None else value)
            if name == METRIC
            else each.hold(tried, name)
            for name, each in bounds.items()
        ):
            found.append(pk)
    return found


def _rows(experiment: Experiment, trials: list[Trial], shown: Sequence[Column], total: int) -> list[Row]:
    for trial in trials:
        trial.experiment = experiment
    why = verdicts.of_trials(trials, experiment.job.pool)
    if experiment.state == ExperimentState.ACTIVE:  # nobody else pauses a trial by itself
        why |= {trial.pk: PARKED for trial in trials if trial.state == TrialState.PAUSED}
    wants_hosts = any(column.key == "host" for column in shown)
    hosts = trial_columns.hosts_of([trial.task_id for trial in trials]) if wants_hosts else {}
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


def _ordered(rows: QuerySet[Trial], by: Column | None, is_down: bool) -> QuerySet[Trial]:
    """Trials without a value stand last, either way."""
    if by is None:
        return rows.order_by("pk")
    order = by.by.desc(nulls_last=True) if is_down else by.by.asc(nulls_last=True)
    return rows.order_by(order, "pk")


def _head(column: Column, by: Column | None, is_down: bool) -> Head:
    if column.by is None:
        return Head(column.key, column.title, column.is_number, "", "")
    is_current = column == by or (by is None and column.key == TRIAL)
    downwards = not is_down if is_current else column.is_downwards
    order = ("descending" if is_down else "ascending") if is_current else ""
    return Head(column.key, column.title, column.is_number, order, f"{'-' if downwards else ''}{column.key}")
