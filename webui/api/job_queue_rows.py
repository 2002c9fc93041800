"""Rows of the job queue: one per job, in the order in which the pool considers them (features.md 2.6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q

from experiments.models import Experiment
from hosts.models import ResourcePool
from jobs.models import Allocation, Job, Task
from jobs.states import AllocationState, JobState, StopKind, TaskState
from webui.api import encoding
from webui.api.views import Json

STATES = {
    "queued": "STATE_QUEUED",
    "scheduled": "STATE_SCHEDULED",
    "backfilled": "STATE_SCHEDULED_BACKFILLED",
}


@dataclass
class Row:
    """One job of a queue. `ahead` is -1 where the pool keeps no order."""

    job: Job
    ahead: int
    requested: int = 0
    held: int = 0
    state: str = "queued"
    stopping: bool = False
    waits: list[Json] = field(default_factory=list)
    forecast: list[float] | None = None
    workspace_id: int = 1
    experiment_progress: float | None = None

    @property
    def summary(self) -> Json:
        return {"state": STATES[self.state], "jobsAhead": self.ahead}


def queued_jobs(pool: ResourcePool) -> list[Job]:
    """Jobs that want or hold something in the pool: a paused one stands here only while its slots are being freed.

    In a priority pool the order is (priority, position) by definition, so it is right even before the next pass.
    """
    holds = Q(pk__in=Allocation.objects.exclude(state=AllocationState.TERMINATED).values("task__job_id"))
    wants = Q(state=JobState.ACTIVE, tasks__state__in=[TaskState.WAITING, TaskState.RUNNING])
    jobs = list(
        Job.objects.filter(Q(pool=pool) & (wants | holds))
        .exclude(state=JobState.ENDED)
        .select_related("owner", "pool")
        .order_by("priority", "position", "id")
        .distinct()
    )
    if pool.scheduler != ResourcePool.Scheduler.PRIORITY:
        place = {job_id: index for index, job_id in enumerate(pool.plan.get("order", []))}
        jobs.sort(key=lambda job: place.get(str(job.pk), len(place)))
    return jobs


def rows(pool: ResourcePool) -> list[Row]:
    """The pool's queue with everything that a row shows, in three queries."""
    ordered = pool.scheduler == ResourcePool.Scheduler.PRIORITY
    found = {job.pk: Row(job, ahead=index if ordered else -1) for index, job in enumerate(queued_jobs(pool))}
    _count_tasks(found, pool)
    _count_allocations(found)
    experiments = Experiment.objects.filter(job_id__in=found).values_list(
        "job_id", "project__workspace_id", "progress"
    )
    for job_id, workspace_id, progress in experiments:
        found[job_id].workspace_id, found[job_id].experiment_progress = workspace_id, progress
    return list(found.values())


def _count_tasks(found: dict[Any, Row], pool: ResourcePool) -> None:
    waits, forecast = pool.plan.get("waits", {}), pool.plan.get("forecast", {})
    live = Task.objects.filter(job_id__in=found, state__in=[TaskState.WAITING, TaskState.RUNNING])
    for task_id, job_id, slots, state in live.order_by("created_at").values_list(
        "pk", "job_id", "slots", "state"
    ):
        row = found[job_id]
        row.requested += slots
        if state == TaskState.WAITING and task_id in waits:
            row.waits.append(waits[task_id])
        when = forecast.get(task_id)
        if state == TaskState.WAITING and when and (row.forecast is None or when[0] < row.forecast[0]):
            row.forecast = when


def _count_allocations(found: dict[Any, Row]) -> None:
    backfilled: dict[Any, list[bool]] = defaultdict(list)
    held = Allocation.objects.filter(task__job_id__in=found).exclude(state=AllocationState.TERMINATED)
    for job_id, slots, sufferance, state, stop in held.values_list(
        "task__job_id", "slots", "on_sufferance", "state", "stop_kind"
    ):
        row = found[job_id]
        row.held += slots
        backfilled[job_id].append(sufferance)
        row.stopping = row.stopping or state == AllocationState.TERMINATING or stop != StopKind.NONE
    for job_id, sufferances in backfilled.items():
        found[job_id].state = "backfilled" if all(sufferances) else "scheduled"


def summary_of(job: Job) -> Json | None:
    """State and jobs ahead of one job; None when it stands in no queue."""
    if job.state == JobState.ENDED:
        return None
    return next((row.summary for row in rows(job.pool) if row.job.pk == job.pk), None)


def encode_row(row: Row) -> Json:
    """Determined's job, and beside it what it never told: the place, the reason, the expected start."""
    job = row.job
    fair = job.pool.scheduler == ResourcePool.Scheduler.FAIR_SHARE
    reason = None if row.held >= row.requested or not row.waits else row.waits[0]
    return encoding.without_none(
        {
            "jobId": str(job.pk),
            "entityId": job.entity_id,
            "type": f"TYPE_{job.kind}",
            "name": job.name,
            "username": job.owner.username,
            "userId": job.owner_id,
            "resourcePool": job.pool.name,
            "submissionTime": encoding.time(job.submitted_at),
            "requestedSlots": max(row.requested, row.held),
            "allocatedSlots": row.held,
            "isPreemptible": job.preemptible and (fair or job.pool.preemption),
            "workspaceId": row.workspace_id,
            "summary": row.summary,
            "priority": job.priority,
            "weight": job.weight,
            "progress": row.experiment_progress,
            "position": row.ahead + 1 if row.ahead >= 0 else None,
            "stopping": row.stopping,
            "reason": reason,
            "forecast": row.forecast,
        }
    )


def with_state(found: Iterable[Row], states: list[str]) -> list[Row]:
    """The rows whose state is named; all when none is."""
    return [row for row in found if not states or STATES[row.state] in states]
