"""The trials of an experiment on its overview: a table that its address sorts and cuts into pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from django.core.paginator import Page, Paginator
from django.db.models import F, FloatField, QuerySet
from django.db.models.fields.json import KT
from django.db.models.functions import Cast
from django.http import QueryDict

from experiments import phases
from experiments.models import Experiment, Trial
from webui.api.trial_encoding import trials_with_numbers
from webui.pages import verdicts
from webui.pages.hparams import named

PER_PAGE = 100
_NEWEST_LAST = "trial"


class Column(NamedTuple):
    """A column of the table. `by` orders it, nothing where it does not; `sort` is its word in the address."""

    title: str
    sort: str = ""
    by: F | Cast | None = None
    is_number: bool = False
    is_downwards: bool = False  # what people look for stands at the lower end, so that comes first


@dataclass(frozen=True)
class Head:
    """A column's head. `order`: `ascending`, `descending` or nothing; `next`: what a click asks for."""

    title: str
    is_number: bool
    order: str
    next: str


@dataclass(frozen=True)
class Row:
    trial: Any  # with checkpoint_count beside its columns
    phase: str
    why: str
    is_best: bool
    hparams: dict[str, str]  # nested names joined by dots


@dataclass(frozen=True)
class Table:
    rows: list[Row]
    heads: list[Head]
    page: Page[Trial]

    @property
    def is_comparable(self) -> bool:
        return self.page.paginator.count > 1


def table(experiment: Experiment, query: QueryDict) -> Table:
    """`sort` (a word of a column, `-` before it for downwards) and `page`; what makes no sense is left out."""
    columns = _columns(experiment)
    wanted = query.get("sort", "")
    sort, is_down = wanted.removeprefix("-"), wanted.startswith("-")
    chosen = next((column for column in columns if column.sort == sort and column.by is not None), None)
    rows = trials_with_numbers().filter(experiment=experiment).select_related("task", "latest_checkpoint")
    page = Paginator(_ordered(rows, chosen, is_down), PER_PAGE).get_page(query.get("page"))
    trials = list(page.object_list)
    for trial in trials:
        trial.experiment = experiment
    why = verdicts.of_trials(trials, experiment.job.pool)
    found = [
        Row(
            trial=trial,
            phase=phases.of(trial),
            why=why.get(trial.pk, ""),
            is_best=trial.pk == experiment.best_trial_id,
            hparams=named(trial.hparams),
        )
        for trial in trials
    ]
    return Table(found, [_head(column, chosen, is_down) for column in columns], page)


def _columns(experiment: Experiment) -> list[Column]:
    searcher = experiment.config.get("searcher") or {}
    larger = not searcher.get("smaller_is_better", True)
    return [
        Column("Trial", _NEWEST_LAST, F("pk")),
        Column("State", "state", F("state")),
        Column("Hyperparameters"),
        Column("Progress", "progress", F("progress"), True, True),
        Column("Steps", "steps", F("steps_completed"), True, True),
        Column("Best", "best", _metric("best_validation"), True, larger),
        Column("Latest", "latest", _metric("latest_validation"), True, larger),
        Column("Checkpoints", "checkpoints", F("checkpoint_count"), True, True),
        Column("Restarts", "restarts", F("restarts"), True, True),
        Column("Created"),
    ]


def _metric(field: str) -> Cast:
    return Cast(KT(f"{field}__searcher_metric"), FloatField())


def _ordered(rows: QuerySet[Trial], chosen: Column | None, is_down: bool) -> QuerySet[Trial]:
    """Trials without a value stand last, either way."""
    if chosen is None or chosen.by is None:
        return rows.order_by("pk")
    order = chosen.by.desc(nulls_last=True) if is_down else chosen.by.asc(nulls_last=True)
    return rows.order_by(order, "pk")


def _head(column: Column, chosen: Column | None, is_down: bool) -> Head:
    if column.by is None:
        return Head(column.title, column.is_number, "", "")
    is_current = column == chosen or (chosen is None and column.sort == _NEWEST_LAST)
    downwards = not is_down if is_current else column.is_downwards
    order = ("descending" if is_down else "ascending") if is_current else ""
    return Head(column.title, column.is_number, order, f"{'-' if downwards else ''}{column.sort}")
