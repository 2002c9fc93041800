"""Watches the time that tasks run: a warning ahead of the limit, a preemption at it, then the stop."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings

from dispatch.going_on import going_on
from jobs import transitions
from jobs.models import Allocation, Task
from jobs.states import AllocationState, Reason, StopKind
from jobs.time_limits import time_used

_ACTOR = "server"
#: of a short limit the warning comes when this part of it is left
WARNING_PART = 0.1


def watch(now: datetime) -> None:
    """Look at every attempt that runs under a limit; each is warned once and stopped once.

    One that is being preempted for another reason is among them: at its limit it has no longer to save than others.
    A run that waits for its members' launch has not begun; what its host did not let begin costs it no time.
    """
    limited = list(
        Allocation.objects.filter(task__max_time_seconds__isnull=False, started_at__isnull=False)
        .exclude(state=AllocationState.TERMINATED)
        .exclude(stop_kind=StopKind.STOP)
        .select_related("task")
    )
    used = time_used([allocation.task_id for allocation in limited])
    for allocation in limited:
        with going_on(f"the time limit of {allocation.pk}"):
            _look(allocation, used.get(allocation.task_id, 0.0), now)


def _look(allocation: Allocation, used: float, now: datetime) -> None:
    """`used`: seconds that earlier attempts of the task have run."""
    assert allocation.started_at is not None and allocation.task.max_time_seconds is not None
    limit = allocation.task.max_time_seconds
    ran = used + (now - allocation.started_at).total_seconds()
    if ran >= limit:
        _stop(allocation)
    elif ran >= limit - min(settings.TIME_WARNING_SECONDS, WARNING_PART * limit):
        transitions.warn_of_limit(allocation.pk, seconds_left=limit - ran)


def _stop(allocation: Allocation) -> None:
    """A trial may save first; a command cannot be asked to, and gets the grace of any stop."""
    kind = StopKind.STOP if allocation.task.kind == Task.Kind.COMMAND else StopKind.PREEMPT
    transitions.request_stop(
        allocation.pk,
        kind,
        reason=Reason.TIME_LIMIT,
        actor=_ACTOR,
        preemption_timeout_seconds=settings.TIME_LIMIT_SAVE_SECONDS,
    )
