"""One job as the queue knows it: its details, its place, every reason why it waits, its start, and who changed it."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse

from events.models import Event
from jobs.states import JobState
from shown import timeline, verdicts
from shown.queue import board
from webui.pages.frame import page, show
from webui.pages.manage_job.answers import job_or_404


@page
def detail(request: HttpRequest, job_id: UUID) -> HttpResponse:
    found = job_or_404(job_id)
    row = board.row_of(found)
    waiting, reasons = verdicts.blockers_of(found) if row and found.state == JobState.ACTIVE else (0, [])
    context = {
        "job": found,
        "pool": found.pool,
        "row": row,
        "waiting": waiting,
        "blockers": reasons,
        "entries": timeline.of(Event.objects.filter(kind=Event.Kind.JOB, subject=str(found.pk))),
    }
    return show(request, "queue_job", context, room="Job Queue", fragment="queue_job")
