"""What was submitted to a pool lately: forecasts expect similar work to be submitted again, ahead of what waits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from django.conf import settings

from dispatch.passes.survey import past_runs, yields
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
            task_id,
            str(job_id),
            name,
            slots,
            priority=priority,
            weight=weight,
            submitted_at=created.timestamp(),
            preemptible=preemptible,
            single_host=single_host,
            yields=yields(preemptible, kind),
            lasts=lasts_of(max_time, past.like(str(job_id), Work(owner_id, kind, job_name, slots))),
        )
        for (
            task_id, job_id, name, slots, created, single_host, max_time, priority, weight, preemptible, owner_id, kind,
            job_name,
        ) in tasks.order_by("-created_at").values_list(
            "pk", "job_id", "name", "slots", "created_at", "single_host", "max_time_seconds", "job__priority",
            "job__weight", "job__preemptible", "job__owner_id", "job__kind", "job__name",
        )[:MOST_TASKS]
    ]  # fmt: skip
