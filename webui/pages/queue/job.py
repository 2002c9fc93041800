"""One job as the queue knows it: its place, every reason why it waits, its start, who changed it; its menu and log."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from events.models import Event
from jobs.labels import label_of
from jobs.states import JobState
from shown import timeline, verdicts
from shown.queue import board, job_actions
from shown.queue.job_facts import deadline_of, facts_of
from webui.pages.frame import page, show, user_of
from webui.pages.manage_job.answers import job_or_404, part, queue_of


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
        "deadline": deadline_of(found).get("sentence", ""),
        "entries": timeline.of(Event.objects.filter(kind=Event.Kind.JOB, subject=str(found.pk))),
    }
    return show(request, "queue_job", context, room="Job Queue", fragment="queue_job")


@page
def menu(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """The menu of its row: behind the three dots, by right click and as a page."""
    facts = facts_of(job_or_404(job_id))
    entries = list(job_actions.entries_of(facts, user_of(request)))
    label = label_of(facts.job.kind, facts.job.entity_id)
    context = {"job": facts.job, "label": label, "entries": entries}
    return part(
        request, "manage_menu", context, title=f"Actions for {facts.job.name}", home=queue_of(facts.job)
    )


@page
def logs(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """To the log of the job, for the key."""
    facts = facts_of(job_or_404(job_id))
    where = job_actions.logs_at(facts)
    if not where:
        messages.info(request, f"{facts.job.name} has not run yet, so it has no log.")
    return redirect(where or "/jobs")
