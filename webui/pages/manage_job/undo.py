"""Taking back one's last edit of the queue, by a button and by a link that says first what it would take back."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from accounts.refusals import Refusal
from jobs import queue_edits
from jobs.models import QueueEdit
from shown.queue import edit_preview as previews
from shown.queue.job_facts import told
from webui.pages.frame import page, user_of
from webui.pages.manage_job.answers import done, part, sentence


@page
@require_http_methods(["GET", "POST"])
def undo(request: HttpRequest) -> HttpResponse:
    """GET says what the last edit was; POST takes it back, all of it, once its reader has seen who is stopped."""
    user = user_of(request)
    last = queue_edits.last_undoable(user)
    try:
        look = previews.look_at_undo(last, user, timezone.now()) if last else None
        if request.method == "GET" or (look and not look.was_seen(request.POST.get("seen", ""))):
            return _ask(request, last, look)
        said = queue_edits.undo(user)
    except Refusal as refusal:
        if request.method == "GET":
            return _ask(request, last, None, sentence(str(refusal)))
        return done(request, [], undo=False, refused=sentence(str(refusal)))
    return done(request, [change.by_name for change in said], undo=False)


def _ask(
    request: HttpRequest, last: QueueEdit | None, look: previews.EditPreview | None, refused: str = ""
) -> HttpResponse:
    sentences = told(last.sentences) if last else []
    context = {"last": last, "sentences": sentences, "look": look, "refused": refused}
    return part(request, "manage_undo", context, title="Undo the last edit")
