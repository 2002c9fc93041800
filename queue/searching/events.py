"""What a searcher is told, what it asks for, and how it refuses a config."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from searching.state import Outcome


class BadSearch(ValueError):
    """The search cannot be made; the text says which field, what was found and what is allowed."""

    def __init__(self, field: str, found: object, allowed: str) -> None:
        self.field = field
        super().__init__(f"{field}: found {found!r}, allowed: {allowed}")


class ExitReason(StrEnum):
    """How a trial ended, as far as a searcher cares."""

    COMPLETED = "completed"
    CANCELED = "canceled"
    ERRORED = "errored"
    INVALID_HP = "invalid_hp"


@dataclass(frozen=True, slots=True)
class ValidationReported:
    """`metric`: the searcher's metric. `time`: the value of its time_metric; None: `steps_completed` counts.

    `at`, here and in the other event: when, in seconds since the epoch. A search decides nothing by it.
    """

    request_id: str
    metric: float
    steps_completed: int
    time: float | None = None
    at: float | None = None


@dataclass(frozen=True, slots=True)
class TrialExited:
    request_id: str
    reason: ExitReason
    at: float | None = None


Event = ValidationReported | TrialExited


@dataclass(frozen=True, slots=True)
class Judgment:
    """Why a trial goes on or does not: its `place` from 1 `among` those that reached the rung, of which `keeps` go on.

    `bracket` and `rung`: from 0. `units`: the length of the rung. `metric`: as it was reported, None: not a number.
    """

    outcome: Outcome
    bracket: int
    rung: int
    units: int
    metric: float | None
    place: int
    among: int
    keeps: int


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
class Park:
    """This trial has reached a rung and must wait there: let it save, and take its slots, but keep it."""

    request_id: str
    why: Judgment | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Promote:
    """This trial goes on to the next rung. One that was parked runs again; any other just runs on."""

    request_id: str
    why: Judgment | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Stop:
    """This trial has done enough: stop it, it counts as completed."""

    request_id: str
    why: Judgment | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The search is over. `failure`: every trial failed; `cancel`: every trial was canceled."""

    failure: bool = False
    cancel: bool = False


Operation = Create | Again | Park | Promote | Stop | Shutdown
