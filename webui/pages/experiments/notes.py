"""Notes on an experiment: Markdown with a preview as one writes, and never written over unseen."""

from __future__ import annotations

import hashlib

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from accounts import rights
from accounts.refusals import Code, Refusal
from accounts.rights import Right
from experiments import edits
from experiments.models import Experiment
from experiments.transitions import lock
from shown.source_text import markdown
from webui.pages.experiments import experiment
from webui.pages.experiments.access import find, may_act
from webui.pages.frame import actor, form, posted, show, user_of

MOST_CHARACTERS = 100_000


@form(Right.EDIT)
def notes(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """GET: the notes, with `?edit` in an editor; POST: keep them."""
    found = find(experiment_id)
    text, problem = found.notes, ""
    if request.method == "POST":
        text = request.POST.get("notes", "").replace("\r\n", "\n")
        try:
            _keep(request, found, text)
            messages.success(request, "The notes were saved.")
            return redirect(f"/experiments/{experiment_id}/notes")
        except Refusal as refusal:
            problem = str(refusal)
    context = experiment.head(request, found, "notes") | {
        "text": text,
        "shown": markdown(text),
        "problem": problem,
        "stamp": request.POST.get("seen") or stamp(found.notes),
        "edits": may_act(request, found) and ("edit" in request.GET or request.method == "POST"),
        "most": MOST_CHARACTERS,
    }
    status = 400 if problem else 200
    return show(
        request, "experiment_notes", context, room="Experiments", fragment="experiment", status=status
    )


@posted(Right.OWN)
def preview(request: HttpRequest) -> HttpResponse:
    """What notes will look like."""
    return HttpResponse(markdown(request.POST.get("notes", "")[:MOST_CHARACTERS]))


def _keep(request: HttpRequest, found: Experiment, text: str) -> None:
    rights.require_owner(user_of(request), found)
    if len(text) > MOST_CHARACTERS:
        raise Refusal(f"The notes have {len(text):,} characters; at most {MOST_CHARACTERS:,} are allowed.")
    with transaction.atomic():
        if request.POST.get("seen") != stamp(lock(found.pk).notes):
            raise Refusal(
                "Someone else has changed the notes. Open them in another tab, and merge both changes.",
                Code.CONFLICT,
            )
        edits.edit(found.pk, notes=text, actor=actor(request))


def stamp(text: str) -> str:
    """What says whether notes are still those that somebody has seen."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
