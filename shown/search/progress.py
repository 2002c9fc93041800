"""How far a search is: trials, units of training, slot-hours, and what is left of them at the pace so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, F, Sum
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from experiments import phases
from experiments.models import Experiment
from experiments.states import TRIAL_END_STATES, ExperimentState, TrialState
from jobs.models import Allocation
from searching.rungs import Bracket, units_expected
from searching.state import TIME, upgraded

#: less of a search says nothing of its pace
_LEAST_SHARE = 0.02


@dataclass(frozen=True)
class Progress:
    """`units`, `units_expected`: trained so far, and by all trials if the rungs keep what they should; None: no length
    is known. `slot_hours` were held so far. `hours_left`, `slot_hours_left`: at the pace so far, where there is one.
    """

    made: int
    most: int
    running: int
    waiting: int
    paused: int
    ended: int
    failed: int
    units: int | None
    units_expected: int | None
    slot_hours: float
    hours_left: float | None
    slot_hours_left: float | None


def living(experiment: Experiment) -> dict[int, str]:
    """Trial -> where it stands, of those that have not ended."""
    rows = phases.annotated(experiment.trials.exclude(state__in=TRIAL_END_STATES).defer("hparams"))
    return {trial.pk: phases.of(trial) for trial in rows}


def of(experiment: Experiment, brackets: Sequence[Bracket], living: Mapping[int, str]) -> Progress:
    ends = dict(
        experiment.trials.filter(state__in=TRIAL_END_STATES).order_by().values_list("state").annotate(Count("pk"))
    )  # fmt: skip
    words = Counter(living.values())
    waiting, paused = words[phases.QUEUED], words[TrialState.PAUSED]
    units, expected = _units(experiment, brackets)
    held = _slot_seconds(experiment) / 3600
    left = _left(experiment, units, expected)
    return Progress(
        made=sum(bracket.made for bracket in brackets),
        most=sum(bracket.trials for bracket in brackets),
        running=sum(words.values()) - waiting - paused,
        waiting=waiting,
        paused=paused,
        ended=sum(ends.values()),
        failed=ends.get(TrialState.ERROR, 0),
        units=units,
        units_expected=expected,
        slot_hours=held,
        hours_left=left * _hours(experiment) if left is not None else None,
        slot_hours_left=left * held if left is not None and held else None,
    )


def _units(experiment: Experiment, brackets: Sequence[Bracket]) -> tuple[int | None, int | None]:
    longest = _longest(experiment)
    expected = units_expected(brackets, longest)
    if not experiment.search or not expected:
        return None, None
    trials = upgraded(experiment.search)["trials"]
    done = sum(int(trial[TIME]) if longest is None else min(int(trial[TIME]), longest) for trial in trials)
    return done, max(round(expected), done)


def _longest(experiment: Experiment) -> int | None:
    searcher = experiment.searcher
    length: Any = searcher.get("max_time") or searcher.get("max_length")
    if isinstance(length, dict):
        length = next(iter(length.values()), None)
    return int(length) if length else None


def _slot_seconds(experiment: Experiment) -> float:
    held = Allocation.objects.filter(task__job_id=experiment.job_id).annotate(
        lasted=Coalesce(F("ended_at"), Now()) - F("assigned_at")
    )
    rows = held.values("slots").annotate(total=Sum("lasted")).order_by()
    return float(sum(row["slots"] * row["total"].total_seconds() for row in rows))


def _left(experiment: Experiment, units: int | None, expected: int | None) -> float | None:
    """What is left as a multiple of what is done; None where that says nothing."""
    if experiment.state != ExperimentState.ACTIVE or not units or not expected:
        return None
    return (expected - units) / units if units >= _LEAST_SHARE * expected else None


def _hours(experiment: Experiment) -> float:
    return (timezone.now() - experiment.started_at).total_seconds() / 3600
