"""The event row of what happens to an allocation, and who is told of it."""

from __future__ import annotations

from typing import Any

from events.announce import announce
from events.models import Event
from events.record import record
from jobs.job_transitions import announce_task
from jobs.models import Allocation


def record_allocation(
    allocation: Allocation,
    from_state: str,
    to_state: str,
    reason: str,
    actor: str,
    detail: dict[str, Any] | None = None,
) -> None:
    """In the transaction of the change, by the writers of states alone; `detail` as its reason has it."""
    task = allocation.task
    record(
        Event.Kind.ALLOCATION,
        allocation.pk,
        from_state=from_state,
        to_state=to_state,
        reason=reason,
        actor=actor,
        detail=detail,
        job_id=task.job_id,
        task_id=task.pk,
    )
    announce(f"allocation:{allocation.pk}")
    announce_task(task)
    announce(f"pool:{allocation.pool_id}", "hosts")
