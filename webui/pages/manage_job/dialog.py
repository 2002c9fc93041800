"""Manage Job: every field of one job at once, with what the edit will do before it is made (features.md 2.4)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from accounts.refusals import Refusal
from accounts.rights import Right
from hosts import pool_access
from hosts.models import ResourcePool
from jobs import queue_edits, queue_rules
from jobs.models import Job
from shown import pools as shown_pools
from shown.queue import edit_preview as previews
from shown.queue.edit_rights import why_no_edit, why_no_pool
from shown.queue.job_facts import Facts, around, facts_of, wait_of
from shown.queue.wanted_edits import JobForm, read, shown, update_of
from webui.pages.frame import actor, form, posted, user_of
from webui.pages.manage_job.answers import done, job_or_404, part, queue_of


@form(Right.EDIT)
def manage(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """The dialog, a page of its own as a plain link; its form applies every field that was changed, or none."""
    facts = facts_of(job_or_404(job_id))
    form = shown(facts.job, facts.position)
    if request.method == "GET":
        return _dialog(request, facts, form, None)
    form = read(request.POST, form)
    update, look = _look(request, facts, form)
    if form.errors:
        return _dialog(request, facts, form, look, status=400)
    if look is None or update is None:
        return done(request, [f"Nothing was changed for {facts.job.name}."], undo=False)
    if "preview" in request.POST or not look.was_seen(request.POST.get("seen", "")):
        return _dialog(request, facts, form, look, unseen="seen" in request.POST)
    try:
        said = queue_edits.apply([update], actor=actor(request), role=user_of(request).role)
    except Refusal as refusal:
        form.refuse(refusal)
        return _dialog(request, facts, form, None, status=400)
    return done(request, [change.by_name for change in said], undo=True)


@posted(Right.OWN)
def preview(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """What the fields as they stand would do, for the dialog while somebody types."""
    facts = facts_of(job_or_404(job_id))
    form = read(request.POST, shown(facts.job, facts.position))
    _, look = _look(request, facts, form)
    context = _context(request, facts, form, look) | {"swapped": True}
    return part(request, "manage_preview", context, title=_title(facts.job), home=queue_of(facts.job))


def _look(
    request: HttpRequest, facts: Facts, form: JobForm
) -> tuple[queue_edits.Update | None, previews.EditPreview | None]:
    """The edit of the changed fields, and what it would do; None without any, or refused (`form.errors` says why)."""
    if reason := why_no_edit(facts.job, user_of(request)):
        form.errors[""] = reason
        return None, None
    update = update_of(facts.job, form, standing=facts.standing)
    if update is None:
        return None, None
    try:
        return update, previews.look([update], user_of(request), timezone.now())
    except Refusal as refusal:
        form.refuse(refusal)
        return None, None


def _title(job: Job) -> str:
    return f"Manage Job {str(job.pk)[:6]}"


def _dialog(
    request: HttpRequest,
    facts: Facts,
    form: JobForm,
    look: previews.EditPreview | None,
    *,
    unseen: bool = False,
    status: int = 200,
) -> HttpResponse:
    context = _context(request, facts, form, look) | {"unseen": unseen}
    return part(
        request, "manage_job", context, title=_title(facts.job), home=queue_of(facts.job), status=status
    )


def _context(
    request: HttpRequest, facts: Facts, form: JobForm, look: previews.EditPreview | None
) -> dict[str, Any]:
    user = user_of(request)
    pools = [
        each
        for each in ResourcePool.objects.all()
        if each.pk == facts.job.pool_id or pool_access.may_use(each, facts.job.owner)
    ]
    chosen = next((pool for pool in pools if pool.name == form.values.get("pool")), facts.job.pool)
    return {
        "job": facts.job,
        "facts": facts,
        "form": form,
        "look": look,
        "short": str(facts.job.pk)[:6],
        "pools": pools,
        "around": [] if look else around(facts),
        "wait": "" if look else wait_of(facts.job),
        "numbers": shown_pools.numbers([chosen])[chosen.pk],
        "moves": chosen.pk != facts.job.pool_id,
        "floor": queue_rules.floor(facts.job.pool, user.role),
        "why_no_edit": why_no_edit(facts.job, user),
        "why_no_pool": why_no_pool(facts.job),
        "may_top": bool(facts.ahead) and not why_no_edit(facts.job, user),
    }
