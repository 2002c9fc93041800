"""Trials of any experiments side by side: what sets them apart, and which is best by its searcher's metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils import timezone

from experiments import phases
from experiments.models import Experiment, Trial
from metrics.comparisons import Metric
from metrics.traces import Look, look
from shown.hparams import Table


@dataclass(frozen=True)
class ComparedTrial:
    """One compared trial; `best`: its searcher's metric, if it has reported one."""

    trial: Trial
    look: Look
    phase: str
    metric: str
    best: float | None
    is_best: bool
    seconds: float
    values: list[tuple[str, str]]


def rows(trials: Sequence[Trial], hparams: Table) -> list[ComparedTrial]:
    """The trials in their order; `hparams` is the table of their hyperparameters."""
    words, now = phases.of_trials(trials), timezone.now()
    values = [(trial.best_validation or {}).get("searcher_metric") for trial in trials]
    best = _best_places(trials, values)
    return [
        ComparedTrial(
            trial=trial,
            look=look(place),
            phase=words[trial.pk],
            metric=trial.experiment.searcher_metric,
            best=values[place],
            is_best=place in best,
            seconds=((trial.ended_at or now) - trial.started_at).total_seconds(),
            values=hparams.differing_of(place),
        )
        for place, trial in enumerate(trials)
    ]


def _best_places(trials: Sequence[Trial], values: Sequence[float | None]) -> set[int]:
    """Which is the best of those that are judged by the same metric in the same direction, if there are several."""
    judged: dict[tuple[str, bool], list[tuple[float, int]]] = {}
    for place, (trial, value) in enumerate(zip(trials, values, strict=True)):
        if value is not None:
            name, smaller = trial.experiment.searcher_metric, trial.experiment.smaller_is_better
            judged.setdefault((name, smaller), []).append((value if smaller else -value, place))
    return {min(rows)[1] for rows in judged.values() if len(rows) > 1}


def searched(trials: Sequence[Trial]) -> list[Metric]:
    """The metrics that the searchers of these trials look at."""
    return list({Metric("validation", trial.experiment.searcher_metric) for trial in trials})


def best_of(experiment_id: int) -> int | None:
    """Its best trial; while none has a validation, its newest."""
    best = Experiment.objects.filter(pk=experiment_id).values_list("best_trial_id", flat=True).first()
    newest = Trial.objects.filter(experiment_id=experiment_id).order_by("-pk").values_list("pk", flat=True)
    return best or newest.first()
