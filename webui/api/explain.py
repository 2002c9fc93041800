"""Why a job waits: the reason that the last pass stored for each of its tasks, and every blocker as of now."""

from __future__ import annotations

from django.utils import timezone
from rest_framework.request import Request

from accounts.refusals import Code, refused_as
from accounts.rights import Right
from dispatch.passes import last_plan
from dispatch.passes.last_plan import Plan
from dispatch.passes.preview import blockers
from jobs import queue_edits, queue_history
from jobs.models import Job, Task
from jobs.states import TaskState
from scheduling.reasons import Reason
from shown.queue import rows
from webui.api.answers import Answer, Maybe, Stored, Time
from webui.api.job_queue_rows import (
    DeadlineOutlook,
    Forecast,
    JobSummary,
    ReasonRecord,
    deadline_outlook,
    summary,
)
from webui.api.views import ApiView

#: edits that are told with an explanation; all of them have a list of their own
RECENT_EDITS = 5
MOST_EDITS = 200


class WaitRecord(Answer):
    """One task: its reason in the last pass and, while it waits, everything that blocks it now.

    `forecastBy`: as in JobRecord.
    """

    task_id: str
    name: str
    slots: int
    state: str
    reason: Maybe[Stored[ReasonRecord]] = None
    blockers: Maybe[Stored[list[ReasonRecord]]] = None
    forecast: Maybe[Forecast] = None
    forecast_by: Maybe[str] = None
    forecast_said_at: Maybe[float] = None
    forecast_unknown: Maybe[str] = None
    not_before: Maybe[Time] = None


class EditRecord(Answer):
    """`change` is a sentence; `undo` is present if it undid another edit."""

    at: Time
    user: str
    change: str
    undo: Maybe[bool] = None


class EditsAnswer(Answer):
    edits: list[EditRecord]


class ExplainAnswer(Answer):
    """`summary` is present while the job is in the queue. `plannedAt`: time of the last pass; null before the first."""

    job_id: str
    state: str
    resource_pool: str
    priority: int
    weight: float
    deadline: Maybe[Time] = None
    deadline_outlook: Maybe[Stored[DeadlineOutlook]] = None
    planned_at: Time | None
    explained_at: Time
    tasks: list[WaitRecord]
    edits: list[EditRecord]
    summary: Maybe[JobSummary] = None
    leaving: Maybe[str] = None


def encode_wait(task: Task, plan: Plan, reasons: list[Reason] | None) -> WaitRecord:
    """One task: while it waits, what the last pass told of it (nothing yet of a newer one), and all blockers."""
    told = plan if task.state == TaskState.WAITING else Plan()
    return WaitRecord.of(
        task,
        task_id=task.pk,
        reason=told.waits.get(task.pk),
        blockers=None if reasons is None else [reason.record() for reason in reasons],
        forecast=told.forecast.get(task.pk),
        forecast_by=(told.by or None) if task.pk in told.forecast else None,
        forecast_said_at=told.said_at.get(task.pk) if task.pk in told.forecast else None,
        forecast_unknown=told.why_unknown(task.pk),
    )


def found_job(job_id: str) -> Job:
    """The job whose id begins so. Raises Missing."""
    with refused_as(Code.NOT_FOUND):
        return queue_edits.find(job_id)


class Explain(ApiView):
    """A job's place in its queue, the reasons why each waiting task waits, and the job's last edits."""

    rights = {"GET": Right.READ}

    def get(self, request: Request, job_id: str) -> ExplainAnswer:
        job = found_job(job_id)
        now = timezone.now()
        found = blockers(job, now)
        live = list(job.tasks.filter(state__in=[TaskState.WAITING, TaskState.RUNNING]).order_by("created_at"))
        plan = last_plan.of(job.pool)
        row = rows.one(job)
        return ExplainAnswer.of(
            job,
            job_id=str(job.pk),
            resource_pool=job.pool.name,
            deadline=job.deadline_at,
            deadline_outlook=deadline_outlook(job, plan),
            planned_at=job.pool.planned_at,
            explained_at=now,
            tasks=[encode_wait(task, plan, found.get(task.pk)) for task in live],
            edits=[encode_edit(one) for one in queue_history.edits_of(job, RECENT_EDITS)],
            summary=summary(row.pool, row) if row else None,
            leaving=row.leaving if row else None,
        )


class JobEdits(ApiView):
    """Who changed what about a job in the queue, and when; newest first."""

    rights = {"GET": Right.READ}

    def get(self, request: Request, job_id: str) -> EditsAnswer:
        job = found_job(job_id)
        return EditsAnswer(edits=[encode_edit(one) for one in queue_history.edits_of(job, MOST_EDITS)])


def encode_edit(edit: queue_history.JobEdit) -> EditRecord:
    return EditRecord.of(edit, undo=edit.undo or None)
