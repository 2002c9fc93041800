"""Why a job waits: the reason that the last pass stored for each of its tasks, and every blocker as of now."""

from __future__ import annotations

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from dispatch.explain import blockers
from jobs import queue_edits
from jobs.models import Task
from jobs.states import TaskState
from scheduling.reasons import Reason
from webui.api import encoding
from webui.api.errors import Missing
from webui.api.job_queue_rows import rows
from webui.api.views import ApiView, Json


def encode_wait(task: Task, plan: Json, reasons: list[Reason] | None) -> Json:
    """One task: its reason as the plan has it (none yet for a newer one), and all blockers while it waits."""
    wait = plan.get("waits", {}).get(task.pk)
    return encoding.without_none(
        {
            "taskId": task.pk,
            "name": task.name,
            "slots": task.slots,
            "state": task.state,
            "reason": wait,
            "blockers": None if reasons is None else [reason.record() for reason in reasons],
            "forecast": plan.get("forecast", {}).get(task.pk),
            "notBefore": encoding.time(task.not_before),
        }
    )


class Explain(ApiView):
    """The place of a job in its queue, and for each task that waits the reason."""

    def get(self, request: Request, job_id: str) -> Response:
        try:
            job = queue_edits.find(job_id)
        except queue_edits.Refused as error:
            raise Missing(str(error)) from error
        row = next((row for row in rows(job.pool) if row.job.pk == job.pk), None)
        now = timezone.now()
        found = blockers(job, now)
        live = job.tasks.filter(state__in=[TaskState.WAITING, TaskState.RUNNING]).order_by("created_at")
        answer: Json = {
            "jobId": str(job.pk),
            "state": job.state,
            "resourcePool": job.pool.name,
            "priority": job.priority,
            "plannedAt": encoding.time(job.pool.planned_at),
            "explainedAt": encoding.time(now),
            "tasks": [encode_wait(task, job.pool.plan, found.get(task.pk)) for task in live],
        }
        if row is not None:
            answer["summary"] = row.summary
        return Response(answer)
