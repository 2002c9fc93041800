"""Trials as they are shown: the query with all their numbers, their hosts, and their best checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import Any

from django.db.models import QuerySet

from dispatch.keeping import log_retention
from events.prepared import Prepared
from experiments import failures, phases
from experiments.models import Checkpoint, Experiment, Trial
from experiments.states import USABLE, ExperimentState, TrialState
from jobs.models import Member
from searching.rungs import stopped_at
from shown import checkpoints, verdicts
from shown.hparams import named

#: why a trial of a running search is paused, though nobody paused it
PARKED = "parked by the search until it is promoted"
#: the word (shown.words) of a trial that its search stopped before the last rung
STOPPED_EARLY = "STOPPED_EARLY"
#: trials of an experiment that clients are told of at most: the newest
MOST_TRIALS_READ = 1000


@dataclass(frozen=True)
class TrialRow:
    """`trial`: one of `with_numbers`; `hparams`: name -> text, nested names joined by dots.

    `rung`: from 1, where its search stopped it early.
    """

    trial: Any
    phase: str
    why: str
    is_best: bool
    hparams: dict[str, str]
    hosts: tuple[str, ...] = ()
    rung: int | None = None


def with_numbers() -> QuerySet[Trial]:
    """Trials with checkpoint_count, checkpoint_bytes, has_failed and their phase beside their columns."""
    return _with_numbers().all()


@cache
def _with_numbers() -> QuerySet[Trial]:
    """Resolving the subqueries takes Django 4 ms, as long as all the rest of a short request."""
    # the state of a search may be megabytes
    rows = Trial.objects.select_related("experiment").defer("experiment__search")
    rows = phases.annotated(rows).alias(state_in_words=phases.in_words(Trial))
    return rows.annotate(has_failed=failures.has_failed(), **checkpoints.stored_numbers("trial"))


def whole() -> QuerySet[Trial]:
    """As `with_numbers`, with `log_days` too, which is None where the server's setting holds; configs on request."""
    rows = with_numbers().defer(
        "experiment__config",
        "experiment__original_config",
        "experiment__template_config",
        "experiment__notes",
    )
    return rows.annotate(log_days=log_retention.days_of_trial())


#: the trial with this id, whole
one = Prepared(whole)


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


def rows_of(experiment: Experiment, trials: list[Trial], total: int, *, with_hosts: bool) -> list[TrialRow]:
    """The rows of some of the experiment's `total` trials."""
    for trial in trials:
        trial.experiment = experiment
    why = verdicts.of_trials(trials, experiment.job.pool)
    if experiment.state == ExperimentState.ACTIVE:  # nobody else pauses a trial by itself
        why |= {trial.pk: PARKED for trial in trials if trial.state == TrialState.PAUSED}
    hosts = hosts_of([trial.task_id for trial in trials]) if with_hosts else {}
    rungs = stopped_early(experiment, trials)
    return [
        TrialRow(
            trial=trial,
            phase=STOPPED_EARLY if trial.pk in rungs else phases.of(trial),
            rung=rungs.get(trial.pk),
            why=why.get(trial.pk, ""),
            is_best=trial.pk == experiment.best_trial_id and total > 1,
            hparams=named(trial.hparams),
            hosts=hosts.get(trial.task_id, ()),
        )
        for trial in trials
    ]


def stopped_early(experiment: Experiment, trials: Iterable[Trial]) -> dict[int, int]:
    """Trial id -> the rung, from 1, at which its search stopped it before the last one."""
    rungs = stopped_at(experiment.search)
    ended = [trial for trial in trials if trial.state == TrialState.COMPLETED]
    return {trial.pk: rungs[str(trial.request_id)] for trial in ended if str(trial.request_id) in rungs}


def in_order(rows: QuerySet[Trial], by: Any, kept: Collection[int] | None) -> QuerySet[Trial] | list[int]:
    """Return the rows in order; if `kept` is given, only their ids, since a page of them is read whole."""
    ordered = rows.order_by(by, "pk")
    if kept is None:
        return ordered
    return [pk for pk in ordered.values_list("pk", flat=True) if pk in kept]


def read_whole(rows: QuerySet[Trial], page: Iterable[Any]) -> list[Trial]:
    """The trials of a page, whole."""
    here = list(page)
    ids = [each for each in here if not isinstance(each, Trial)]
    found = {trial.pk: trial for trial in rows.filter(pk__in=ids)} if ids else {}
    return [found[pk] for pk in ids if pk in found] if ids else here


def newest(experiment_id: int) -> list[tuple[int, dict[str, Any]]]:
    """The newest trials with their hyperparameters, the oldest of them first."""
    rows = Trial.objects.filter(experiment_id=experiment_id).order_by("-pk").values_list("pk", "hparams")
    return sorted(rows[:MOST_TRIALS_READ], key=lambda row: row[0])


def best_first(experiment_id: int) -> list[tuple[int, dict[str, Any]]]:
    """By the searcher's metric; those without it last, each in the order of their making."""
    sign = 1 if Experiment.objects.only("config").get(pk=experiment_id).smaller_is_better else -1
    rows = Trial.objects.filter(experiment_id=experiment_id).values_list("pk", "hparams", "best_validation")

    def place(row: tuple[int, dict[str, Any], dict[str, Any] | None]) -> tuple[bool, float, int]:
        value = (row[2] or {}).get("searcher_metric")
        is_number = isinstance(value, (int, float)) and isfinite(value)
        return not is_number, sign * value if is_number and value is not None else 0.0, row[0]

    return [(pk, hparams) for pk, hparams, _ in sorted(rows, key=place)]
