"""What logs hold and how long they are kept: a line on the page of usage, and a word beside each log."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from accounts import rights
from accounts.refusals import Refusal
from accounts.rights import Right
from dispatch.keeping import log_retention
from jobs.models import Task
from logs import retention
from webui.pages.frame import actor, or_404, page, posted, refusals_told, user_of
from webui.query import as_whole


@page
def meter(request: HttpRequest) -> HttpResponse:
    """A fragment of its own, because all chunks are summed for it."""
    due = log_retention.due(timezone.now())
    held = retention.held_by([each.task_id for each in due])
    all_held, logs = retention.held(), retention.tasks_with_logs()
    context = {
        "logs": logs,
        "counted": f"{all_held.lines:,} lines of {logs:,} log{'' if logs == 1 else 's'}",
        "held": all_held,
        "due": f"{len(held):,} log{'' if len(held) == 1 else 's'}" if held else "",
        "due_bytes": sum(each.stored_bytes for each in held.values()),
        "days": settings.LOG_RETENTION_DAYS,
    }
    response = render(request, "fragments/logs_held.html", context)
    response["Cache-Control"] = "no-store"
    return response


@posted(Right.EDIT)
def keep(request: HttpRequest, task_id: str) -> HttpResponse:
    """Keep the log of one task so long after its end: `days` from -1 (for ever) to DAYS_MAX, or none: as configured."""
    tasks = Task.objects.select_related("trial__experiment__owner", "command__owner")
    task = None if "\x00" in task_id else tasks.filter(pk=task_id).first()
    task = or_404(task, f"There is no task {task_id}.")
    is_command = hasattr(task, "command")
    wanted = request.POST.get("days", "")
    with refusals_told(request):
        rights.require_owner(user_of(request), task.command if is_command else task.trial.experiment)
        retention.keep(task_id, _days(wanted), actor=actor(request))
    return redirect(f"/commands/{task.command.pk}/log" if is_command else f"/trials/{task.trial.pk}/logs")


def _days(text: str) -> int | None:
    """None: as configured. Raises Refusal."""
    if not text:
        return None
    days = as_whole(text, retention.DAYS_MAX, least=retention.FOR_EVER)
    if days is None:
        raise Refusal(
            f"A log can be kept for 0 to {retention.DAYS_MAX} days after the end, or -1: forever. Found: {text!r}."
        )
    return days
