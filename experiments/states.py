"""States of experiments, trials and checkpoints, in Determined's words, and the legal steps (features.md 4.2)."""

from __future__ import annotations

from django.db import models


class ExperimentState(models.TextChoices):
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_KILLED = "STOPPING_KILLED"
    STOPPING_ERROR = "STOPPING_ERROR"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"
    DELETING = "DELETING"
    DELETE_FAILED = "DELETE_FAILED"


class TrialState(models.TextChoices):
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_KILLED = "STOPPING_KILLED"
    STOPPING_ERROR = "STOPPING_ERROR"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"


class CheckpointState(models.TextChoices):
    PARTIAL = "PARTIAL"  # complete on the host, being uploaded
    COMPLETED = "COMPLETED"
    PARTIALLY_DELETED = "PARTIALLY_DELETED"  # some files were removed, the others stay
    DELETING = "DELETING"  # nothing starts from it any more, its files go
    DELETED = "DELETED"
    ERROR = "ERROR"  # its files never came in full


#: a trial can start from it, and people can fetch it
USABLE = frozenset({CheckpointState.COMPLETED, CheckpointState.PARTIALLY_DELETED})
#: nothing of it is, or will be, there
GONE = frozenset({CheckpointState.DELETING, CheckpointState.DELETED})

_C = CheckpointState
CHECKPOINT_STEPS: dict[CheckpointState, frozenset[CheckpointState]] = {
    _C.PARTIAL: frozenset({_C.COMPLETED, _C.ERROR}),
    _C.COMPLETED: frozenset({_C.PARTIALLY_DELETED, _C.DELETING}),
    _C.PARTIALLY_DELETED: frozenset({_C.DELETING}),
    _C.ERROR: frozenset({_C.DELETING}),  # never PARTIALLY_DELETED, from which a trial could start
    _C.DELETING: frozenset({_C.DELETED}),
    _C.DELETED: frozenset(),
}

_E = ExperimentState
_STOPPING = frozenset({_E.STOPPING_COMPLETED, _E.STOPPING_CANCELED, _E.STOPPING_KILLED, _E.STOPPING_ERROR})
EXPERIMENT_END_STATES = frozenset({_E.COMPLETED, _E.CANCELED, _E.ERROR})
#: its search is told of what happens; in any other state no new trial may come
GOING_ON = frozenset({_E.ACTIVE, _E.PAUSED})
EXPERIMENT_STEPS: dict[ExperimentState, frozenset[ExperimentState]] = {
    _E.ACTIVE: frozenset({_E.PAUSED}) | _STOPPING | EXPERIMENT_END_STATES,
    _E.PAUSED: frozenset({_E.ACTIVE}) | _STOPPING | EXPERIMENT_END_STATES,
    _E.STOPPING_COMPLETED: frozenset({_E.COMPLETED, _E.STOPPING_KILLED, _E.ERROR}),
    _E.STOPPING_CANCELED: frozenset({_E.CANCELED, _E.STOPPING_KILLED, _E.ERROR}),
    _E.STOPPING_KILLED: frozenset({_E.CANCELED}),
    _E.STOPPING_ERROR: frozenset({_E.ERROR, _E.STOPPING_KILLED}),
    _E.COMPLETED: frozenset({_E.DELETING, _E.ACTIVE}),
    _E.CANCELED: frozenset({_E.DELETING, _E.ACTIVE}),
    _E.ERROR: frozenset({_E.DELETING, _E.ACTIVE}),
    _E.DELETING: frozenset({_E.DELETE_FAILED}),
    _E.DELETE_FAILED: frozenset({_E.DELETING}),
}

TRIAL_END_STATES = frozenset(map(TrialState, EXPERIMENT_END_STATES))
#: the same steps as those of experiments, as far as trials have the states: no trial is deleted by itself
TRIAL_STEPS: dict[TrialState, frozenset[TrialState]] = {
    TrialState(state): frozenset(TrialState(step) for step in steps if step in TrialState.values)
    for state, steps in EXPERIMENT_STEPS.items()
    if state in TrialState.values
}
