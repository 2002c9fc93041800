"""Rows of the job queue as the dialect has them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dispatch.passes import last_plan
from dispatch.passes.last_plan import Plan
from hosts.models import ResourcePool
from jobs.models import Job
from jobs.states import JobState
from shown.queue import lines
from shown.queue import rows as queue_rows
from shown.queue.rows import JobRow
from shown.queue.standing import StandingJob
from trainmaster import dialect_words
from webui.api.answers import Answer, Maybe, Time, one_of, time_text
from webui.api.views import Json

STATES = {
    "queued": "STATE_QUEUED",
    "scheduled": "STATE_SCHEDULED",
    "backfilled": "STATE_SCHEDULED_BACKFILLED",
}


class JobSummary(Answer):
    state: Annotated[str, one_of(*STATES.values())]
    jobs_ahead: Annotated[int, Field(description="-1 if jobs in the pool have no positions")]


def summary(pool: ResourcePool, line: JobRow | StandingJob) -> JobSummary:
    """State and jobs ahead of a job of the pool."""
    state, ahead = _standing(pool, line)
    return JobSummary(state=state, jobs_ahead=ahead)


def _standing(pool: ResourcePool, line: JobRow | StandingJob) -> tuple[str, int]:
    ahead = queue_rows.ahead(pool, line.place)
    return STATES[line.state], -1 if ahead is None else ahead


def summary_of(job: Job) -> JobSummary | None:
    """State and jobs ahead of one job; None if it stands in no queue."""
    if job.state == JobState.ENDED:
        return None
    found, _ = lines.page(job.pool, ids=[job.pk])
    return summary(job.pool, found[0]) if found else None


class ReasonRecord(Answer):
    """Why something waits: a code, a sentence, and the numbers in it."""

    code: str
    sentence: str
    data: Json


#: earliest and latest start, in seconds since 1970
Forecast = Annotated[list[float], Field(min_length=2, max_length=2)]


class DeadlineOutlook(Answer):
    """What the last forecast says of a deadline. `latestStart`: epoch seconds; absent if nobody knows how long it runs.

    `movedAhead`: the deadline has moved the job ahead in the queue.
    """

    outcome: Literal["met", "at_risk", "late", "unknown"]
    sentence: str
    latest_start: Maybe[float] = None
    moved_ahead: bool


def deadline_outlook(job: Job, plan: Plan) -> Json | None:
    """A DeadlineOutlook; None without a deadline, or before the first forecast."""
    found = plan.deadlines.get(str(job.pk)) if job.deadline_at else None
    if not found:
        return None
    record = {
        "outcome": found["outcome"],
        "sentence": found["sentence"],
        "latestStart": found["latest_start"],
        "movedAhead": job.usual_position is not None,
    }
    return {name: value for name, value in record.items() if value is not None}


class JobRecord(Answer):
    """Determined's job record, extended by the place, the reason and the expected start.

    `forecastBy`: another scheduler (`Slurm`) that expects this start, both ends of which are then the same, as it said
    at `forecastSaidAt` (seconds since 1970); absent if the forecast is the queue's own.
    """

    job_id: str
    entity_id: str
    type: str
    name: str
    username: str
    user_id: int
    resource_pool: str
    submission_time: Time
    deadline: Maybe[Time] = None
    deadline_outlook: Maybe[DeadlineOutlook] = None
    requested_slots: int
    allocated_slots: int
    is_preemptible: bool
    workspace_id: int
    summary: JobSummary
    priority: int
    weight: float
    progress: float | None = None
    position: Maybe[Annotated[int, Field(description="1 is the first")]] = None
    stopping: bool
    leaving: Maybe[
        Annotated[str, Field(description="such as `pausing`, then `saving`, or `1 of 20 stopping`")]
    ] = None
    reason: Maybe[ReasonRecord] = None
    forecast: Maybe[Forecast] = None
    forecast_by: Maybe[str] = None
    forecast_said_at: Maybe[float] = None
    forecast_unknown: Maybe[str] = None


def encode_row(row: JobRow) -> Json:
    """A JobRecord, written by hand: of a page of rows, a model for each would take a sixth of the request."""
    state, jobs_ahead = _standing(row.pool, row)
    job, ahead, leaving = row.job, row.ahead, row.leaving
    record = {
        "jobId": str(job.pk),
        "entityId": job.entity_id,
        "type": f"TYPE_{dialect_words.kind_of(job.kind)}",
        "name": job.name,
        "username": job.owner.username,
        "userId": job.owner_id,
        "resourcePool": row.pool.name,
        "submissionTime": time_text(job.submitted_at),
        "deadline": time_text(job.deadline_at) if job.deadline_at else None,
        "deadlineOutlook": deadline_outlook(job, last_plan.of(row.pool)) if job.deadline_at else None,
        "requestedSlots": row.needed,
        "allocatedSlots": row.held,
        "isPreemptible": row.preemptible,
        "workspaceId": row.workspace_id,
        "summary": {"state": state, "jobsAhead": jobs_ahead},
        "priority": job.priority,
        "weight": job.weight,
        "progress": row.progress,
        "position": None if ahead is None else ahead + 1,
        "stopping": leaving is not None,
        "leaving": leaving,
        "reason": row.wait if row.waits else None,
        "forecast": row.forecast if row.waits else None,
        "forecastBy": (row.forecast_by or None) if row.waits else None,
        "forecastSaidAt": row.said_at if row.waits else None,
        "forecastUnknown": row.unknown if row.waits and row.forecast is None else None,
    }
    return {name: value for name, value in record.items() if value is not None or name == "progress"}
