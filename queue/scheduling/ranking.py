"""The order of a priority pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

from scheduling.world import Request

#: where a request stands; what compares lower stands before
Standing = tuple[float | str, ...]

#: priority (1 first), then position; tasks of one job stand together, oldest first
standing: Callable[[Request], Standing] = attrgetter(
    "priority", "position", "job_id", "submitted_at", "task_id"
)


def in_order(requests: Iterable[Request]) -> list[Request]:
    return sorted(requests, key=standing)
