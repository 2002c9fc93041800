"""Which trials an experiment makes and stops: events in, operations out. Pure Python, state in plain JSON.

state, operations = start(config["searcher"], config["hyperparameters"], seed)
state, operations = on_event(state, TrialExited(request_id, ExitReason.COMPLETED))
"""

from searching.errors import BadSearch
from searching.events import (
    Again,
    Create,
    Event,
    ExitReason,
    Operation,
    Shutdown,
    Stop,
    TrialCreated,
    TrialExited,
    ValidationReported,
)
from searching.search import on_event, progress, revive, start

__all__ = [
    "Again",
    "BadSearch",
    "Create",
    "Event",
    "ExitReason",
    "Operation",
    "Shutdown",
    "Stop",
    "TrialCreated",
    "TrialExited",
    "ValidationReported",
    "on_event",
    "progress",
    "revive",
    "start",
]
