"""Ranks on the log page: which ones an expression chooses now, and what one is doing (static/js/logs/rank_menu.js)."""

from __future__ import annotations

from typing import cast

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_POST

from accounts import rights
from accounts.models import User
from accounts.refusals import Code, Refusal
from accounts.rights import Right, declares
from jobs.models import Task
from logs import rank_status
from logs.rank_expression import parse
from webui.live.stack_answers import stacks_of
from webui.pages.frame import refused_data
from webui.query import LARGEST_INTEGER
from webui.waiting.threads import reading, release_thread


def choose(request: HttpRequest, task_id: str) -> HttpResponse:
    """{"ranks", "count", "of", "changes"} for the expression in `ranks`, or {"fault": a sentence}: it is being typed.

    `ranks` is what a filter of lines takes (empty: all; logs.rank_expression.NOBODY alone: no line fits), `count` how
    many ranks that are and `of` how many are known. `changes` says that the answer may change as the job goes on.
    """
    try:
        expression = parse(request.GET.get("ranks", ""))
    except Refusal as fault:
        return JsonResponse({"fault": str(fault)})
    known = rank_status.known(task_id)
    chosen = expression.ranks(known)
    return JsonResponse(
        {
            "ranks": sorted(expression.for_filter(known)),
            "count": sum(rank >= 0 for rank in chosen),
            "of": len(known),
            "changes": expression.needs_facts,
        }
    )


@declares({"POST": Right.EDIT})
@login_required
@require_POST
async def stack(request: HttpRequest, task_id: str, rank: int) -> HttpResponse:
    """{"text"}, or {"message"}: the sentence why there is none. 403 for viewers: it interrupts the rank a little."""
    user = cast(User, await request.auser())
    try:
        rights.require_editor(user)
        if (
            rank > LARGEST_INTEGER
            or "\0" in task_id
            or not await reading(Task.objects.filter(pk=task_id).exists)
        ):
            raise Refusal(f"Task {task_id} has no rank {rank}.", Code.NOT_FOUND)
        await release_thread()
        (answer,) = await stacks_of(task_id, [rank], by=f"user:{user.username}")
    except Refusal as refusal:
        return refused_data(refusal)
    return JsonResponse(answer)
