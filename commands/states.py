"""States of commands, in the words that experiments have, and the legal steps."""

from __future__ import annotations

from django.db import models


class CommandState(models.TextChoices):
    ACTIVE = "ACTIVE"
    STOPPING_KILLED = "STOPPING_KILLED"
    COMPLETED = "COMPLETED"  # ended with exit code 0
    CANCELED = "CANCELED"  # killed by a person
    ERROR = "ERROR"


_C = CommandState
END_STATES = frozenset({_C.COMPLETED, _C.CANCELED, _C.ERROR})
STEPS: dict[CommandState, frozenset[CommandState]] = {
    _C.ACTIVE: frozenset({_C.STOPPING_KILLED}) | END_STATES,
    _C.STOPPING_KILLED: frozenset({_C.CANCELED}),
    _C.COMPLETED: frozenset(),
    _C.CANCELED: frozenset(),
    _C.ERROR: frozenset(),
}
