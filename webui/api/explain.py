"""Why a job waits: the reason that the last pass stored for each of its tasks, and every blocker as of now."""

from __future__ import annotations

from typing import Any, NotRequired

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import TypedDict

from accounts.refusals import Code, refused_as
from dispatch.explain import blockers
from jobs import queue_edits, queue_history
from jobs.models import Job, Task
from jobs.states import TaskState
from scheduling.reasons import Reason
from shown.queue import rows
from webui.api import encoding, last_pass
from webui.api.answers import Time
from webui.api.job_queue_rows import Forecast, QueueSummary, ReasonRecord, summary
from webui.api.views import ApiView, Json

#: edits that are told with an explanation; all of them have a list of their own
RECENT_EDITS = 5
MOST_EDITS = 200


class WaitRecord(TypedDict):
    """One task: what the last pass told of it, and while it waits all that blocks it as of now."""

    taskId: str
    name: str
    slots: int
    state: str
    reason: NotRequired[ReasonRecord]
    blockers: NotRequired[list[ReasonRecord]]
    forecast: NotRequired[Forecast]
    forecastUnknown: NotRequired[str]
    notBefore: NotRequired[Time]


class EditRecord(TypedDict):
    """`change` is a sentence; `undo` is there when it took another edit back."""

    at: Time
    user: str
    change: str
    undo: NotRequired[bool]


class EditsAnswer(TypedDict):
    edits: list[EditRecord]


class ExplainAnswer(TypedDict):
    """`summary` is there while the job stands in the queue. `plannedAt`: the last pass; null before the first."""

    jobId: str
    state: str
    resourcePool: str
    priority: int
    weight: float
    plannedAt: Time | None
    explainedAt: Time
    tasks: list[WaitRecord]
    edits: list[EditRecord]
    summary: NotRequired[QueueSummary]
    leaving: NotRequired[str]


def encode_wait(task: Task, told: Json, reasons: list[Reason] | None) -> Json:
    """One task: what the last pass told of it (nothing yet of a newer one), and all blockers while it waits."""
    return encoding.without_none(
        {
            "taskId": task.pk,
            "name": task.name,
            "slots": task.slots,
            "state": task.state,
            "reason": told.get("reason"),
            "blockers": None if reasons is None else [reason.record() for reason in reasons],
            "forecast": told.get("forecast"),
            "forecastUnknown": told.get("unknown"),
            "notBefore": encoding.time(task.not_before),
        }
    )


def found_job(job_id: str) -> Job:
    """The job whose id begins so. Raises Missing."""
    with refused_as(Code.NOT_FOUND):
        return queue_edits.find(job_id)


class Explain(ApiView):
    """The place of a job in its queue, for each task that waits the reasons, and the last edits of the job."""

    answers = {"GET": ExplainAnswer}

    def get(self, request: Request, job_id: str) -> Response:
        job = found_job(job_id)
        now = timezone.now()
        found = blockers(job, now)
        live = list(job.tasks.filter(state__in=[TaskState.WAITING, TaskState.RUNNING]).order_by("created_at"))
        told = last_pass.told(job.pool, [task.pk for task in live if task.state == TaskState.WAITING])
        answer: Json = {
            "jobId": str(job.pk),
            "state": job.state,
            "resourcePool": job.pool.name,
            "priority": job.priority,
            "weight": job.weight,
            "plannedAt": encoding.time(job.pool.planned_at),
            "explainedAt": encoding.time(now),
            "tasks": [encode_wait(task, told.get(task.pk, {}), found.get(task.pk)) for task in live],
            "edits": [encode_edit(one) for one in queue_history.edits_of(job, RECENT_EDITS)],
        }
        if row := rows.one(job):
            answer |= encoding.without_none({"summary": summary(row), "leaving": row.leaving})
        return Response(answer)


class JobEdits(ApiView):
    """Who changed what of a job in the queue, and when; the newest first."""

    answers = {"GET": EditsAnswer}

    def get(self, request: Request, job_id: str) -> Response:
        job = found_job(job_id)
        return Response({"edits": [encode_edit(one) for one in queue_history.edits_of(job, MOST_EDITS)]})


def encode_edit(edit: queue_history.JobEdit) -> Json:
    """`change` is a sentence; `undo` is there when it took another edit back."""
    row: dict[str, Any] = {"at": encoding.time(edit.at), "user": edit.user, "change": edit.change}
    return {**row, "undo": True} if edit.undo else row
