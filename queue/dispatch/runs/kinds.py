"""The room of each kind of task: what its attempts run, and what their end means, is said there."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import commands.outcomes
import commands.runs
import experiments.outcomes
import experiments.runs
from jobs.models import Allocation, Task
from jobs.run import RunSpec


class Outcomes(NamedTuple):
    """`lock_for` an allocation's id locks what its end may change; `allocation_ended` decides what follows."""

    lock_for: Callable[[str], object]
    allocation_ended: Callable[[Allocation], None]


_OUTCOMES = {
    Task.Kind.TRIAL: Outcomes(experiments.outcomes.lock_for, experiments.outcomes.allocation_ended),
    Task.Kind.COMMAND: Outcomes(commands.outcomes.lock_for, commands.outcomes.allocation_ended),
}
_DESCRIBE: dict[Task.Kind, Callable[[Allocation, str], RunSpec]] = {
    Task.Kind.TRIAL: experiments.runs.describe,
    Task.Kind.COMMAND: commands.runs.describe,
}


def outcomes_of(allocation_id: str) -> Outcomes:
    """By the allocation's id, before anything of it is locked."""
    return outcomes_of_kind(
        Task.objects.filter(allocations=allocation_id).values_list("kind", flat=True).get()
    )


def outcomes_of_kind(kind: str) -> Outcomes:
    """By the kind of the allocation's task."""
    return _OUTCOMES[Task.Kind(kind)]


def outcomes(task: Task) -> Outcomes:
    return outcomes_of_kind(task.kind)


def describe(allocation: Allocation, slot_kind: str) -> RunSpec:
    """Everything that the host must know to run this attempt. `slot_kind` picks per-device settings."""
    return _DESCRIBE[Task.Kind(allocation.task.kind)](allocation, slot_kind)
