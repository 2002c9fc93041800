"""Edits of one or many jobs of the queue from menu, keys, drag and the bar of the selected, and the undo of the last.

All jobs of an edit change, or none. What would stop a run, a cancel and a kill are asked first: the answer is then the
question, with a form that sends the same edit once more and says that its reader knows.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from accounts.refusals import Refusal
from accounts.rights import Right
from jobs import queue_edits
from jobs.models import Job, QueueEdit
from shown.queue import edit_preview as previews
from shown.queue import wanted_edits
from shown.queue.job_actions import OF_JOBS, carry_out, question
from shown.queue.job_facts import told
from webui.pages.frame import actor, form, posted, user_of
from webui.pages.manage_job.answers import done, part, sentence
from webui.query import as_uuid


@posted(Right.EDIT)
def make(request: HttpRequest) -> HttpResponse:
    """`do` to every `job`; `value` (or the field named as `do`) is the number, pool or neighbor that it takes."""
    do = request.POST.get("do", "")
    value = request.POST.get("value", request.POST.get(do, "")).strip()
    try:
        jobs = _chosen(request.POST.getlist("job"))
        if do in OF_JOBS:
            return _act(request, do, jobs)
        return _edit(request, do, value, jobs)
    except Refusal as refusal:
        return done(request, [], undo=False, refused=sentence(str(refusal)), field=refusal.field)


def _chosen(ids: Sequence[str]) -> list[Job]:
    """The jobs in their order in the queue. Raises Refusal for an unknown one, and for none."""
    whole = {text: uuid for text in dict.fromkeys(ids) if (uuid := as_uuid(text))}
    found = Job.objects.select_related("owner", "pool").in_bulk(whole.values())
    if unknown := next((text for text in ids if whole.get(text) not in found), None):
        raise Refusal(f"job {unknown} not found")
    if not found:
        raise Refusal("no job is selected: select some rows first")
    return sorted(found.values(), key=lambda job: (job.priority, job.position, job.pk))


def _act(request: HttpRequest, do: str, jobs: list[Job]) -> HttpResponse:
    action = OF_JOBS[do]
    if action.asks and "sure" not in request.POST:
        context = {"question": question(do, jobs), "says": action.asks, "danger": action.is_danger}
        return _ask(request, context | {"button": action.label}, do, "", jobs)
    result = carry_out(do, jobs, user_of(request))
    return done(request, result.sentences, undo=False, refused=result.refused)


def _edit(request: HttpRequest, do: str, value: str, jobs: list[Job]) -> HttpResponse:
    updates = wanted_edits.updates_of(do, value, jobs)
    user = user_of(request)
    look = previews.look(updates, user, timezone.now())
    seen = request.POST.get("seen")
    if not look.was_seen(seen or ""):
        name = jobs[0].name if len(jobs) == 1 else f"{len(jobs)} jobs"
        context = {"question": f"{wanted_edits.LABELS[do]}: {name}", "look": look, "unseen": seen is not None}
        return _ask(request, context | {"button": look.button}, do, value, jobs)
    said = queue_edits.apply(updates, actor=actor(request), role=user.role)
    return done(request, [change.by_name for change in said] or ["Nothing was changed."], undo=bool(said))


def _ask(
    request: HttpRequest, context: dict[str, object], do: str, value: str, jobs: list[Job]
) -> HttpResponse:
    context |= {"do": do, "value": value, "jobs": jobs}
    return part(request, "manage_ask", context, title=str(context["question"]))


@form(Right.EDIT)
def undo(request: HttpRequest) -> HttpResponse:
    """GET says what the last edit was; POST takes it back, all of it, once its reader has seen who is stopped."""
    user = user_of(request)
    last = queue_edits.last_undoable(user)
    try:
        look = previews.look_at_undo(last, user, timezone.now()) if last else None
        if request.method == "GET" or (look and not look.was_seen(request.POST.get("seen", ""))):
            return _ask_undo(request, last, look)
        said = queue_edits.undo(user)
    except Refusal as refusal:
        if request.method == "GET":
            return _ask_undo(request, last, None, sentence(str(refusal)))
        return done(request, [], undo=False, refused=sentence(str(refusal)))
    return done(request, [change.by_name for change in said], undo=False)


def _ask_undo(
    request: HttpRequest, last: QueueEdit | None, look: previews.EditPreview | None, refused: str = ""
) -> HttpResponse:
    sentences = told(last.sentences) if last else []
    context = {"last": last, "sentences": sentences, "look": look, "refused": refused}
    return part(request, "manage_undo", context, title="Undo the last edit")
