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
    Judgment,
    Operation,
    Park,
    Promote,
    Shutdown,
    Stop,
    TrialCreated,
    TrialExited,
    ValidationReported,
)
from searching.search import advance, compares, on_event, parked, partly_done, progress, revive, start
from searching.state import upgraded

__all__ = [
    "Again",
    "BadSearch",
    "Create",
    "Event",
    "ExitReason",
    "Judgment",
    "Operation",
    "Park",
    "Promote",
    "Shutdown",
    "Stop",
    "TrialCreated",
    "TrialExited",
    "ValidationReported",
    "advance",
    "compares",
    "on_event",
    "parked",
    "partly_done",
    "progress",
    "revive",
    "start",
    "upgraded",
]
