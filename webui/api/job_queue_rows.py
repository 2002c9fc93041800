"""Rows of the job queue as the dialect has them, read for the jobs of one page alone."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from experiments.models import Experiment
from hosts.models import ResourcePool
from jobs import run_words
from jobs.models import Job, Task
from jobs.states import JobState, TaskState
from webui.api import encoding, job_queue_lines, last_pass
from webui.api.answers import Time, one_of
from webui.api.job_queue_lines import Line
from webui.api.views import Json

STATES = {
    "queued": "STATE_QUEUED",
    "scheduled": "STATE_SCHEDULED",
    "backfilled": "STATE_SCHEDULED_BACKFILLED",
}


class JobSummary(TypedDict):
    state: Annotated[str, one_of(*STATES.values())]
    jobsAhead: Annotated[int, Field(description="-1 where the pool keeps no order")]


@dataclass
class Row:
    """One job of a queue, and what the last pass said of it. `ahead` is -1 where the pool keeps no order."""

    job: Job
    line: Line
    pool: ResourcePool
    wait: Json | None = None
    forecast: list[float] | None = None
    unknown: str | None = None
    workspace_id: int = 1
    experiment_progress: float | None = None

    @property
    def ahead(self) -> int:
        return _ahead(self.pool, self.line)

    @property
    def summary(self) -> JobSummary:
        return _summary(self.pool, self.line)

    @property
    def leaving(self) -> str | None:
        """`pausing`, `saving`, `1 of 20 stopping`; None while nothing of it leaves."""
        if not self.line.leaving:
            return None
        word, some = run_words.together(self.line.leaving), len(self.line.leaving) < self.line.runs
        return f"{len(self.line.leaving)} of {self.line.runs} {word}" if some else word


def _ahead(pool: ResourcePool, line: Line) -> int:
    return line.place if pool.scheduler == ResourcePool.Scheduler.PRIORITY else -1


def _summary(pool: ResourcePool, line: Line) -> JobSummary:
    return {"state": STATES[line.state], "jobsAhead": _ahead(pool, line)}


def rows(pool: ResourcePool, lines: Sequence[Line]) -> list[Row]:
    """What the lines show, in their order, in four queries. A job that has ended meanwhile is left out."""
    ids = [line.job_id for line in lines]
    jobs = Job.objects.select_related("owner").in_bulk(ids)
    found = {line.job_id: Row(jobs[line.job_id], line, pool) for line in lines if line.job_id in jobs}
    _note_plan(found, pool)
    experiments = Experiment.objects.filter(job_id__in=found).values_list(
        "job_id", "project__workspace_id", "progress"
    )
    for job_id, workspace_id, progress in experiments:
        found[job_id].workspace_id, found[job_id].experiment_progress = workspace_id, progress
    return list(found.values())


def rows_of(pool: ResourcePool, job_ids: Sequence[uuid.UUID]) -> list[Row]:
    """The rows of those of the jobs that stand in the pool's queue."""
    return rows(pool, job_queue_lines.page(pool, ids=job_ids)[0])


def _note_plan(found: dict[uuid.UUID, Row], pool: ResourcePool) -> None:
    """The reason of the first task that waits, and the earliest start of any."""
    tasks = Task.objects.filter(job_id__in=found, state=TaskState.WAITING).order_by("created_at")
    job_of = dict(tasks.values_list("pk", "job_id"))
    told = last_pass.told(pool, list(job_of))
    for task_id, job_id in job_of.items():
        row, task = found[job_id], told[task_id]
        row.wait = row.wait or task["reason"]
        when = task["forecast"]
        if when and (row.forecast is None or when[0] < row.forecast[0]):
            row.forecast = when
        row.unknown = row.unknown or task["unknown"]


def summary_of(job: Job) -> JobSummary | None:
    """State and jobs ahead of one job; None when it stands in no queue."""
    if job.state == JobState.ENDED:
        return None
    lines, _ = job_queue_lines.page(job.pool, ids=[job.pk])
    return _summary(job.pool, lines[0]) if lines else None


class QueueSummary(TypedDict):
    """`jobsAhead`: -1 where the pool keeps no order."""

    state: str
    jobsAhead: int


class ReasonRecord(TypedDict):
    """Why something waits: a code, the sentence for people, and the numbers in it."""

    code: str
    sentence: str
    data: Json


#: earliest and latest start, in seconds since 1970
Forecast = Annotated[list[float], Field(min_length=2, max_length=2)]


class JobRecord(TypedDict):
    """Determined's job, and beside it what it never told: the place, the reason, the expected start."""

    jobId: str
    entityId: str
    type: str
    name: str
    username: str
    userId: int
    resourcePool: str
    submissionTime: Time
    requestedSlots: int
    allocatedSlots: int
    isPreemptible: bool
    workspaceId: int
    summary: QueueSummary
    priority: int
    weight: float
    progress: NotRequired[float]
    position: NotRequired[Annotated[int, Field(description="1 is the first")]]
    stopping: bool
    leaving: NotRequired[
        Annotated[str, Field(description="such as `pausing`, then `saving`, or `1 of 20 stopping`")]
    ]
    reason: NotRequired[ReasonRecord]
    forecast: NotRequired[Forecast]
    forecastUnknown: NotRequired[str]


def encode_row(row: Row) -> Json:
    """Determined's job, and beside it what it never told: the place, the reason, the expected start."""
    job, line, pool = row.job, row.line, row.pool
    fair = pool.scheduler == ResourcePool.Scheduler.FAIR_SHARE
    waits = line.held < line.requested or line.state == "queued"
    return encoding.without_none(
        {
            "jobId": str(job.pk),
            "entityId": job.entity_id,
            "type": f"TYPE_{job.kind}",
            "name": job.name,
            "username": job.owner.username,
            "userId": job.owner_id,
            "resourcePool": pool.name,
            "submissionTime": encoding.time(job.submitted_at),
            "requestedSlots": max(line.requested, line.held),
            "allocatedSlots": line.held,
            "isPreemptible": job.preemptible and (fair or pool.preemption),
            "workspaceId": row.workspace_id,
            "summary": row.summary,
            "priority": job.priority,
            "weight": job.weight,
            "progress": row.experiment_progress if row.experiment_progress is not None else job.progress,
            "position": row.ahead + 1 if row.ahead >= 0 else None,
            "stopping": bool(line.leaving),
            "leaving": row.leaving,
            "reason": row.wait if waits else None,
            "forecast": row.forecast if waits else None,
            "forecastUnknown": row.unknown if waits and row.forecast is None else None,
        }
    )
