"""Where ACTIVE trials and experiments stand; `jobs.phases` has the rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from django.db.models import Case, Model, OuterRef, Q, QuerySet

from experiments.models import Experiment, Trial
from jobs.phases import QUEUED as QUEUED
from jobs.phases import RUNNING as RUNNING
from jobs.phases import STARTING as STARTING
from jobs.phases import beside
from jobs.phases import in_words as in_words_of
from jobs.phases import of as of
from jobs.phases import where as where

Rows = TypeVar("Rows", Experiment, Trial)


def annotated(rows: QuerySet[Rows]) -> QuerySet[Rows]:
    """The rows with `running` and `starting` beside their columns, as `of` and `where` read them."""
    return rows.annotate(**_attempts(rows.model))


def in_words(kind: type[Experiment] | type[Trial], words: Mapping[str, str] | None = None) -> Case:
    """The state in words as an expression, to order rows by, with or without annotations."""
    return in_words_of(_attempts(kind), words or {})


def _attempts(kind: type[Model]) -> dict[str, Any]:
    is_experiment = issubclass(kind, Experiment)
    mine = Q(task__trial__experiment=OuterRef("pk")) if is_experiment else Q(task=OuterRef("task_id"))
    # a detached trial waits for nobody but its user, so an unmanaged experiment is never queued
    unmanaged = "unmanaged" if is_experiment else "experiment__unmanaged"
    found = beside(mine)
    return {"running": found["running"], "starting": found["starting"] | Q(**{unmanaged: True})}


def of_trials(trials: Iterable[Trial]) -> dict[int, str]:
    """Trial id -> its state in words, one query for all."""
    rows = annotated(Trial.objects.filter(pk__in=[trial.pk for trial in trials]))
    return {row.pk: of(row) for row in rows}


def of_experiments(experiments: Iterable[Experiment]) -> dict[int, str]:
    """Experiment id -> its state in words, one query for all."""
    rows = annotated(Experiment.objects.filter(pk__in=[experiment.pk for experiment in experiments]))
    rows = rows.only("state")
    return {row.pk: of(row) for row in rows}
