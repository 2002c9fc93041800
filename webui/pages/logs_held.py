"""What logs hold and how long they are kept: a line on the page of usage, and a word beside each log."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from dispatch import log_retention
from logs import retention
from webui.pages.frame import page


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
