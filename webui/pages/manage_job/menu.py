"""The menu of one row of the queue: behind its three dots, by right click and as a page."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from shown.queue import job_actions
from shown.queue.job_facts import facts_of
from webui.pages.frame import page, user_of
from webui.pages.manage_job.answers import job_or_404, part, queue_of


@page
def menu(request: HttpRequest, job_id: UUID) -> HttpResponse:
    facts = facts_of(job_or_404(job_id))
    entries = list(job_actions.entries_of(facts, user_of(request)))
    context = {"job": facts.job, "entries": entries}
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
