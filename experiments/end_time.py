"""When an experiment ended whose last trial may have ended long before the server learned of it."""

from __future__ import annotations

from datetime import datetime

from events.models import Event
from experiments.models import Experiment, Trial
from experiments.states import ExperimentState
from searching import custom

_BY_A_PERSON = {ExperimentState.STOPPING_CANCELED, ExperimentState.STOPPING_KILLED}


def end_after(experiment: Experiment, last: Trial | None) -> datetime | None:
    """The end of the last trial of a stopping experiment, but not before a person or a program has told it to end.

    None: now.
    """
    if last is None or last.ended_at is None:
        return None
    if experiment.state not in _BY_A_PERSON and not custom.is_custom(experiment.search):
        return last.ended_at
    wish = Event.objects.filter(
        kind=Event.Kind.EXPERIMENT, subject=str(experiment.pk), to_state=experiment.state
    ).last()
    return max(last.ended_at, wish.at) if wish else last.ended_at
