"""The steps of an allocation, the event rows of what else happens to it, and who is told of it."""

from __future__ import annotations

from typing import Any

from events.announce import announce
from events.models import Event
from events.steps import Table, step
from jobs.job_transitions import announce_task, event_of
from jobs.models import Allocation
from jobs.states import ALLOCATION_STEPS, AllocationState


def step_allocation(
    allocation: Allocation,
    to: AllocationState,
    reason: str,
    actor: str,
    detail: dict[str, Any] | None = None,
    *,
    table: Table = ALLOCATION_STEPS,
    **values: Any,
) -> bool:
    """One guarded step of a locked allocation, by the writers of states alone; `detail` as its reason has it."""
    event = event_of(Event.Kind.ALLOCATION, allocation.pk, allocation.task, reason, actor, detail)
    if not step(allocation, table, to, event, **values):
        return False
    _tell(allocation)
    return True


def record_allocation(
    allocation: Allocation,
    reason: str,
    actor: str,
    detail: dict[str, Any] | None = None,
    *,
    is_new: bool = False,
) -> None:
    """The event row of a new allocation, or of what leaves the state as it is; `detail` as its reason has it."""
    event = event_of(Event.Kind.ALLOCATION, allocation.pk, allocation.task, reason, actor, detail)
    event.from_state, event.to_state = "" if is_new else allocation.state, allocation.state
    event.save(force_insert=True)
    _tell(allocation)


def _tell(allocation: Allocation) -> None:
    announce(f"allocation:{allocation.pk}")
    announce_task(allocation.task)
    announce(f"pool:{allocation.pool_id}", "hosts")
