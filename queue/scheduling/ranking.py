"""The order of a priority pool, and who may stop whom in it."""

from __future__ import annotations

from collections.abc import Iterable

from scheduling.world import Request

Standing = tuple[int, float, str, float, str]


def standing(request: Request) -> Standing:
    """Sort key: priority (1 first), then position; tasks of one job stand together, oldest first."""
    return (request.priority, request.position, request.job_id, request.submitted_at, request.task_id)


def in_order(requests: Iterable[Request]) -> list[Request]:
    return sorted(requests, key=standing)


def moved_past(first: Request, run: Request) -> bool:
    """Did a user move either of the two since `run` started? Age alone never stops an equal."""
    assert run.running is not None
    since = run.running.started_at
    return any(moved is not None and moved > since for moved in (first.moved_at, run.moved_at))


def jobs_ahead(requests: Iterable[Request]) -> dict[str, int]:
    """Job id -> number of jobs that stand before it (the queue's `#`)."""
    ahead: dict[str, int] = {}
    for request in in_order(requests):
        ahead.setdefault(request.job_id, len(ahead))
    return ahead
