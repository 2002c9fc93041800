"""Where an ACTIVE trial or experiment stands, read from its attempts: queued, starting or running (features.md 4.2).

One rule for the pages, the API's records and its filters. What has started reads RUNNING until the attempt is
over, while it is being stopped too; an attempt that is stopped before it started holds slots but starts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from django.db.models import Exists, OuterRef, Q, QuerySet

from experiments.models import Experiment, Trial
from jobs.models import Allocation
from jobs.states import AllocationState

QUEUED, STARTING, RUNNING = "QUEUED", "STARTING", "RUNNING"
_ACTIVE = "ACTIVE"  # of experiments and of trials

Rows = TypeVar("Rows", Experiment, Trial)


def annotated(rows: QuerySet[Rows]) -> QuerySet[Rows]:
    """The rows with `running` and `starting` beside their columns, as `of` and `where` read them."""
    mine = (
        Q(task__trial__experiment=OuterRef("pk"))
        if issubclass(rows.model, Experiment)
        else Q(task=OuterRef("task_id"))
    )
    attempts = Allocation.objects.filter(mine).exclude(state=AllocationState.TERMINATED)
    begun = attempts.filter(started_at__isnull=False)
    coming = attempts.filter(started_at=None).exclude(state=AllocationState.TERMINATING)
    return rows.annotate(running=Exists(begun), starting=Exists(coming))


def of(row: Any) -> str:
    """The state in words of one row of `annotated`: an experiment is as far as its farthest trial."""
    if row.state != _ACTIVE:
        return str(row.state)
    return RUNNING if row.running else STARTING if row.starting else QUEUED


def where(word: str) -> Q:
    """Which rows of `annotated` have this state in words; ACTIVE itself means all three phases."""
    shares = {
        QUEUED: Q(running=False, starting=False),
        STARTING: Q(running=False, starting=True),
        RUNNING: Q(running=True),
    }
    return Q(state=_ACTIVE) & shares[word] if word in shares else Q(state=word)


def of_trials(trials: Iterable[Trial]) -> dict[int, str]:
    """Trial id -> its state in words, one query for all."""
    rows = annotated(Trial.objects.filter(pk__in=[trial.pk for trial in trials]))
    return {row.pk: of(row) for row in rows}


def of_experiments(experiments: Iterable[Experiment]) -> dict[int, str]:
    """Experiment id -> its state in words, one query for all."""
    rows = annotated(Experiment.objects.filter(pk__in=[experiment.pk for experiment in experiments]))
    return {row.pk: of(row) for row in rows}
