"""What a searcher is told, and what it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ExitReason(StrEnum):
    """How a trial ended, as far as a searcher cares."""

    COMPLETED = "completed"
    CANCELED = "canceled"
    ERRORED = "errored"
    INVALID_HP = "invalid_hp"


@dataclass(frozen=True, slots=True)
class TrialCreated:
    request_id: str


@dataclass(frozen=True, slots=True)
class ValidationReported:
    """`metric`: the searcher's metric. `time`: the value of its time_metric; None: `steps_completed` counts."""

    request_id: str
    metric: float
    steps_completed: int
    time: float | None = None


@dataclass(frozen=True, slots=True)
class TrialExited:
    request_id: str
    reason: ExitReason


Event = TrialCreated | ValidationReported | TrialExited


@dataclass(frozen=True, slots=True)
class Create:
    """Make a trial. `request_id`: a UUID, unique within the experiment."""

    request_id: str
    hparams: dict[str, Any]
    seed: int


@dataclass(frozen=True, slots=True)
class Again:
    """Run a trial that has ended once more; with other `hparams` unless they are None."""

    request_id: str
    hparams: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Stop:
    """This trial has done enough: stop it, it counts as completed."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The search is over. `failure`: every trial failed; `cancel`: every trial was canceled."""

    failure: bool = False
    cancel: bool = False


Operation = Create | Again | Stop | Shutdown
