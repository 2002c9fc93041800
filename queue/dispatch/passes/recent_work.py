"""What was submitted to a pool lately: forecasts expect similar work to be submitted again, ahead of what waits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from django.conf import settings

from dispatch.passes.survey import past_runs
from events.presence import database_now
from jobs.models import FirstStart, Task
from scheduling.durations import lasts_of
from scheduling.past_runs import Work
from scheduling.virtual_time import RECENT
from scheduling.world import Request, Snapshot

#: tasks that are read, the newest first
MOST_TASKS = 500

#: pool id -> when this process read it last, by its monotonic clock, and what
_kept: dict[int, tuple[float, list[Request]]] = {}


def of(pool_id: int, snapshot: Snapshot) -> Sequence[Request]:
    """Work of the last day that has started since, and what waits now.

    Read at most once in FORECAST_HISTORY_SECONDS.
    """
    now = time.monotonic()
    kept = _kept.get(pool_id)
    if kept is None or now - kept[0] > settings.FORECAST_HISTORY_SECONDS:
        kept = _kept[pool_id] = (now, _read(pool_id))
    started = {request.task_id for request in kept[1]}
    since = snapshot.now - RECENT
    waiting = (one for one in snapshot.requests if one.running is None and one.submitted_at > since)
    return [*kept[1], *(one for one in waiting if one.task_id not in started)]


def _read(pool_id: int) -> list[Request]:
    since = database_now() - timedelta(seconds=RECENT)
    jobs = FirstStart.objects.filter(pool=pool_id, submitted_at__gt=since).order_by("-submitted_at")
    tasks = Task.objects.filter(job__in=jobs.values("job")[:MOST_TASKS], created_at__gt=since)
    past = past_runs()
    return [
        Request(
            task.pk,
            str(task.job_id),
            task.name,
            task.slots,
            priority=task.job.priority,
            weight=task.job.weight,
            submitted_at=task.created_at.timestamp(),
            preemptible=task.job.preemptible,
            single_host=task.single_host,
            lasts=lasts_of(
                task.max_time_seconds,
                past.like(
                    str(task.job_id), Work(task.job.owner_id, task.job.kind, task.job.name, task.slots)
                ),
            ),
        )
        for task in tasks.select_related("job").order_by("-created_at")[:MOST_TASKS]
    ]
