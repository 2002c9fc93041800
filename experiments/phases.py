"""Where ACTIVE trials and experiments stand; `jobs.phases` has the rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from django.db.models import OuterRef, Q, QuerySet

from experiments.models import Experiment, Trial
from jobs.phases import QUEUED as QUEUED
from jobs.phases import RUNNING as RUNNING
from jobs.phases import STARTING as STARTING
from jobs.phases import beside
from jobs.phases import of as of
from jobs.phases import where as where

Rows = TypeVar("Rows", Experiment, Trial)


def annotated(rows: QuerySet[Rows]) -> QuerySet[Rows]:
    """The rows with `running` and `starting` beside their columns, as `of` and `where` read them."""
    mine = (
        Q(task__trial__experiment=OuterRef("pk"))
        if issubclass(rows.model, Experiment)
        else Q(task=OuterRef("task_id"))
    )
    # a detached trial waits for nobody but its user, so an unmanaged experiment is never queued
    unmanaged = "unmanaged" if issubclass(rows.model, Experiment) else "experiment__unmanaged"
    found = beside(mine)
    return rows.annotate(running=found["running"], starting=found["starting"] | Q(**{unmanaged: True}))


def of_trials(trials: Iterable[Trial]) -> dict[int, str]:
    """Trial id -> its state in words, one query for all."""
    rows = annotated(Trial.objects.filter(pk__in=[trial.pk for trial in trials]))
    return {row.pk: of(row) for row in rows}


def of_experiments(experiments: Iterable[Experiment]) -> dict[int, str]:
    """Experiment id -> its state in words, one query for all."""
    rows = annotated(Experiment.objects.filter(pk__in=[experiment.pk for experiment in experiments]))
    rows = rows.only("state")
    return {row.pk: of(row) for row in rows}
