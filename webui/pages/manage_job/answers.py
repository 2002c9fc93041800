"""How the pages of Manage Job answer: a fragment to a script, a whole page or a redirect to a plain form."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.html import format_html, format_html_join

from jobs.models import Job
from shown.queue.job_facts import told
from webui.pages.frame import back_to, or_404, show

QUEUE = "/jobs"
UNDO = "/jobs/edits/undo"


def job_or_404(job_id: UUID) -> Job:
    job = Job.objects.select_related("owner", "pool").filter(pk=job_id).first()
    return or_404(job, f"There is no job {job_id}.")


def wants_part(request: HttpRequest) -> bool:
    """A script asked (htmx, or our own modules with the same header): it wants the fragment alone."""
    return request.headers.get("HX-Request") == "true"


def part(
    request: HttpRequest,
    fragment: str,
    context: dict[str, Any],
    *,
    title: str,
    home: str = QUEUE,
    status: int = 200,
) -> HttpResponse:
    """The fragment alone, or a page that holds it; `home` is where it leads back to if the request says nothing."""
    context = {
        **context,
        "title": title,
        "part": f"fragments/{fragment}.html",
        "back": back_to(request, home),
    }
    if wants_part(request):
        answer = render(request, f"fragments/{fragment}.html", context, status=status)
        answer["Cache-Control"] = "no-store"
        return answer
    return show(request, "manage_job", context, room="Job Queue", status=status)


def done(
    request: HttpRequest, sentences: list[str], *, undo: bool, refused: str = "", field: str = ""
) -> HttpResponse:
    """What changed and, where there is one, the way to take it back; what was refused beside it, for which field."""
    sentences = told(sentences)
    if wants_part(request):
        context = {"sentences": sentences, "undo": undo, "back": back_to(request, QUEUE)}
        return render(request, "fragments/manage_toast.html", context | {"refused": refused, "field": field})
    if sentences:
        said = format_html_join(" ", "{}", ((sentence,) for sentence in sentences))
        link = format_html(' <a href="{}">Undo</a>', UNDO) if undo else ""
        messages.success(request, format_html("{}{}", said, link))
    if refused:
        messages.error(request, refused)
    return redirect(back_to(request, QUEUE))


def queue_of(job: Job) -> str:
    """The board on which the job stands."""
    return f"/jobs/{job.pool.name}"


def sentence(refusal: str) -> str:
    """A refusal on its own: some are written as parts of longer answers, without capital and full stop."""
    return refusal if refusal.endswith(".") else f"{refusal[:1].upper()}{refusal[1:]}."
