"""Who still needs a checkpoint: it, and its experiment, cannot be deleted meanwhile."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any, NamedTuple

from django.db.models import QuerySet

from experiments.models import Experiment, Trial
from experiments.states import EXPERIMENT_END_STATES, TRIAL_END_STATES, ExperimentState

_LEAVING = {ExperimentState.DELETING, ExperimentState.DELETE_FAILED}


class Borrowers(NamedTuple):
    """Checkpoint -> one of those that need it."""

    trials: dict[uuid.UUID, int]  # a trial that has not ended goes on from it
    experiments: dict[uuid.UUID, int]  # an experiment that has not ended begins its trials with it


def of(checkpoints: Collection[uuid.UUID] | QuerySet[Any, uuid.UUID]) -> Borrowers:
    """Return who borrows these checkpoints; those that nobody needs are in neither group."""
    living = Trial.objects.filter(latest_checkpoint__in=checkpoints).exclude(state__in=TRIAL_END_STATES)
    going_on = Experiment.objects.exclude(state__in=[*EXPERIMENT_END_STATES, *_LEAVING])
    begun = Trial.objects.filter(source_checkpoint__in=checkpoints, experiment__in=going_on)
    return Borrowers(
        dict(living.order_by("-pk").values_list("latest_checkpoint_id", "pk")),
        dict(begun.order_by("-pk").values_list("source_checkpoint_id", "experiment_id")),
    )
