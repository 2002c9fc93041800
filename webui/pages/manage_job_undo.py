"""Taking back one's last edit of the queue, by a button and by a link that says first what it would take back."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from jobs import queue_edits
from webui.pages.frame import page, user_of
from webui.pages.manage_job_answers import done, part, sentence
from webui.pages.manage_job_facts import with_names


@page
@require_http_methods(["GET", "POST"])
def undo(request: HttpRequest) -> HttpResponse:
    """GET says what the last edit was; POST takes it back, all of it."""
    if request.method == "GET":
        last = queue_edits.last_undoable(user_of(request))
        context = {"last": last, "sentences": with_names(last.sentences) if last else []}
        return part(request, "manage_undo", context, title="Undo the last edit")
    try:
        said = queue_edits.undo(user_of(request))
    except queue_edits.Refused as refusal:
        return done(request, [], undo=False, refused=sentence(str(refusal)))
    return done(request, said, undo=False)
