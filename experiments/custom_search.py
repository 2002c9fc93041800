"""A search that its user's program runs: what it is told over the API, and what it asks for (features.md 10.2)."""

from __future__ import annotations

from typing import Any

from django.db import transaction

import searching
from accounts.refusals import Code, Refusal
from events.announce import announce
from experiments import search
from experiments.models import Experiment
from experiments.states import GOING_ON
from experiments.transitions import lock
from searching import custom


def events_of(experiment_id: int) -> list[dict[str, Any]]:
    """What the program has not answered yet, the oldest first; the last says so once the experiment is over.

    Raises Refusal for a search that the server runs.
    """
    experiment = Experiment.objects.get(pk=experiment_id)
    _check(experiment)
    found = custom.events(experiment.search)
    if experiment.state not in GOING_ON:
        over = {"experimentState": f"STATE_{experiment.state}"}
        found.append({"id": experiment.search["custom"]["next"], "experimentInactive": over})
    return found


@transaction.atomic
def operate(experiment_id: int, wanted: list[custom.Wanted], event_id: int, *, actor: str) -> None:
    """Do what the program asks for in answer to an event; once, however often it asks.

    Raises BadSearch for what cannot be done, and Refusal for an experiment that is over.
    """
    experiment = lock(experiment_id)
    _check(experiment)
    if experiment.state not in GOING_ON:
        raise Refusal(f"experiment {experiment_id} is {experiment.state}: its search has ended.", Code.ENDED)
    state = searching.upgraded(experiment.search)
    operations = custom.operate(state, wanted, event_id)
    search.carry_on(experiment, state, operations, actor=actor)
    announce(f"experiment:{experiment_id}")


def _check(experiment: Experiment) -> None:
    if not custom.is_custom(experiment.search):
        name = experiment.searcher.get("name")
        raise Refusal(
            f"experiment {experiment.pk} has a {name} search, which the server runs; you run only custom searches.",
            Code.CONFLICT,
        )
