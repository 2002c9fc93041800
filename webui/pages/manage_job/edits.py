"""Edits of one or many jobs of the queue from menu, keys, drag and the bar of the selected: all of them or none.

What would stop a run, a cancel and a kill are asked first: the answer is then the question, with a form that sends
the same edit once more and says that its reader knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST

from accounts.refusals import Refusal
from jobs import queue_edits, queue_order
from jobs.models import Job
from jobs.queue_edits import Update
from shown.queue import edit_preview as previews
from webui.pages.frame import actor, page, user_of
from webui.pages.manage_job.actions import OF_JOBS, carry_out, question
from webui.pages.manage_job.answers import done, part, sentence
from webui.pages.manage_job.form import number_in, whole_in

LABELS = {
    "top": "Move to top",
    "up": "Move up",
    "down": "Move down",
    "ahead": "Move",
    "behind": "Move",
    "priority": "Set priority",
    "weight": "Set weight",
    "pool": "Move to pool",
}


@page
@require_POST
def make(request: HttpRequest) -> HttpResponse:
    """`do` to every `job`; `value` (or the field named as `do`) is the number, pool or neighbour that it takes."""
    do = request.POST.get("do", "")
    value = request.POST.get("value", request.POST.get(do, "")).strip()
    try:
        jobs = _chosen(request.POST.getlist("job"))
        if do in OF_JOBS:
            return _act(request, do, jobs)
        return _edit(request, do, value, jobs)
    except Refusal as refusal:
        return done(request, [], undo=False, refused=sentence(str(refusal)))


def _chosen(ids: Sequence[str]) -> list[Job]:
    """The jobs in their order in the queue. Raises Refusal for an unknown one, and for none."""
    whole = {text: uuid for text in dict.fromkeys(ids) if (uuid := _uuid(text))}
    found = Job.objects.select_related("owner", "pool").in_bulk(whole.values())
    if unknown := next((text for text in ids if whole.get(text) not in found), None):
        raise Refusal(f"job {unknown} not found")
    if not found:
        raise Refusal("no job is selected: select some rows first")
    return sorted(found.values(), key=lambda job: (job.priority, job.position, job.pk))


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _act(request: HttpRequest, do: str, jobs: list[Job]) -> HttpResponse:
    action = OF_JOBS[do]
    if action.asks and "sure" not in request.POST:
        context = {"question": question(do, jobs), "says": action.asks, "danger": action.is_danger}
        return _ask(request, context | {"button": action.label}, do, "", jobs)
    result = carry_out(do, jobs, user_of(request))
    return done(request, result.sentences, undo=False, refused=result.refused)


def _edit(request: HttpRequest, do: str, value: str, jobs: list[Job]) -> HttpResponse:
    updates = _updates(do, value, jobs)
    user = user_of(request)
    look = previews.look(updates, user, timezone.now())
    seen = request.POST.get("seen")
    if not look.was_seen(seen or ""):
        name = jobs[0].name if len(jobs) == 1 else f"{len(jobs)} jobs"
        context = {"question": f"{LABELS[do]}: {name}", "look": look, "unseen": seen is not None}
        return _ask(request, context | {"button": look.button}, do, value, jobs)
    said = queue_edits.apply(updates, actor=actor(request), role=user.role)
    return done(request, [change.by_name for change in said] or ["Nothing was changed."], undo=bool(said))


def _ask(
    request: HttpRequest, context: dict[str, object], do: str, value: str, jobs: list[Job]
) -> HttpResponse:
    context |= {"do": do, "value": value, "jobs": jobs}
    return part(request, "manage_ask", context, title=str(context["question"]))


def _updates(do: str, value: str, jobs: list[Job]) -> list[Update]:
    """The edit as the queue knows it. Raises Refusal with the sentence that the edit itself would give."""
    if do == "top":  # the last one first, so that they keep their order among themselves
        return [Update(str(job.pk), to_top=True) for job in reversed(jobs)]
    if do == "priority":
        priority = whole_in(value)
        if error := queue_edits.priority_error(priority):
            raise Refusal(error)
        assert isinstance(priority, int)
        return [Update(str(job.pk), priority=priority) for job in jobs]
    if do == "weight":
        weight = number_in(value)
        if error := queue_edits.weight_error(weight):
            raise Refusal(error)
        assert isinstance(weight, float)
        return [Update(str(job.pk), weight=weight) for job in jobs]
    if do == "pool":
        moving = [job for job in jobs if len(jobs) == 1 or job.pool.name != value]
        if not moving:
            raise Refusal(f"all of them are already in resource pool {value}")
        return [Update(str(job.pk), pool=value) for job in moving]
    if do == "ahead":
        return [Update(str(job.pk), ahead_of=value) for job in jobs]
    if do == "behind":
        return [Update(str(job.pk), behind_of=value) for job in reversed(jobs)]
    if do in {"up", "down"}:
        return [_step(job, do == "up") for job in jobs[:1]]
    raise Refusal(f"there is no edit {do!r}; allowed: {', '.join([*LABELS, *OF_JOBS])}")


def _step(job: Job, up: bool) -> Update:
    """Past the next job of the queue in one direction."""
    before = queue_order.stands_before(job)
    others = queue_order.listed(job.pool).exclude(pk=job.pk)
    neighbour = others.filter(before).last() if up else others.exclude(before).first()
    if neighbour is None:
        raise Refusal(f"job {queue_edits.short(job.pk)} is already the {'first' if up else 'last'}")
    anchor = str(neighbour.pk)
    return Update(str(job.pk), ahead_of=anchor) if up else Update(str(job.pk), behind_of=anchor)
