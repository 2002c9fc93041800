"""Trials as they are shown: the query with all their numbers, their hosts, and their best checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from django.db.models import QuerySet

from experiments import phases
from experiments.models import Checkpoint, Trial
from experiments.states import USABLE
from jobs.models import Member
from shown import checkpoints


def with_numbers() -> QuerySet[Trial]:
    """Trials with checkpoint_count, checkpoint_bytes and their phase beside their columns."""
    return _with_numbers().all()


@cache
def _with_numbers() -> QuerySet[Trial]:
    """Resolving the subqueries takes Django 4 ms, as long as all the rest of a short request."""
    # the state of a search may be megabytes
    rows = Trial.objects.select_related("experiment").defer("experiment__search")
    return phases.annotated(rows).annotate(**checkpoints.stored_numbers("trial"))


def in_states(rows: QuerySet[Trial], states: list[str] | None) -> QuerySet[Trial]:
    """Those in any of these states or phases, in our words or the dialect's; all rows for none."""
    if not states:
        return rows
    return rows.filter(phases.where(*(name.removeprefix("STATE_") for name in states)))


def best_checkpoint(trial: Trial) -> Checkpoint | None:
    """The checkpoint of the best validation, when one was saved at that step."""
    steps = (trial.best_validation or {}).get("steps_completed")
    if steps is None:
        return None
    return trial.checkpoints.filter(steps_completed=steps, state__in=USABLE).first()


def hosts_of(task_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Task -> the hosts of its newest attempt, by their place in the gang."""
    rows = Member.objects.filter(allocation__task_id__in=task_ids).order_by("allocation__number", "index")
    newest: dict[str, tuple[int, list[str]]] = {}
    for task, attempt, host in rows.values_list("allocation__task_id", "allocation__number", "host__name"):
        known = newest.get(task)
        if known is None or attempt > known[0]:
            newest[task] = (attempt, [host])
        else:
            known[1].append(host)
    return {task: tuple(names) for task, (_, names) in newest.items()}
