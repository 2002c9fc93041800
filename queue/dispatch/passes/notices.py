"""How long before a window runs are asked to save, so that they are gone when it starts."""

from __future__ import annotations

from django.conf import settings

from experiments.models import Trial
from jobs.states import TaskState


def usual() -> float:
    """Seconds for work whose config sets no time to save."""
    return _notice(settings.PREEMPTION_TIMEOUT_SECONDS)


def of_pool(pool_id: int) -> dict[str, float]:
    """Task id -> seconds, for the trials of a pool whose config says how long they need to save."""
    live = Trial.objects.filter(
        task__job__pool=pool_id, task__state__in=[TaskState.WAITING, TaskState.RUNNING]
    )
    rows = live.values_list("task_id", "experiment__config__preemption_timeout")
    return {task_id: _notice(float(seconds)) for task_id, seconds in rows if seconds is not None}


def after_limit() -> float:
    """Seconds that work may run beyond its time limit."""
    return _notice(settings.TIME_LIMIT_SAVE_SECONDS)


def _notice(saving: float) -> float:
    return (
        saving
        + settings.STOP_GRACE_SECONDS
        + settings.KILL_GRACE_SECONDS
        + settings.CLEANING_GRACE_SECONDS
        + settings.WINDOW_MARGIN_SECONDS
    )
