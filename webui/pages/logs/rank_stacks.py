"""What a rank is doing, for the log page (static/js/logs/rank_menu.js): POST /tasks/<task id>/ranks/<rank>/stack."""

from __future__ import annotations

from typing import cast

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_POST

from accounts import rights
from accounts.models import User
from accounts.refusals import Code, Refusal
from jobs.models import Task
from webui.live.stack_answers import stacks_of
from webui.pages.frame import refused_data
from webui.waiting.threads import reading, release_thread

_LARGEST_RANK = 2**31 - 1


@login_required
@require_POST
async def of_rank(request: HttpRequest, task_id: str, rank: int) -> HttpResponse:
    """{"text"}, or {"message"}: the sentence why there is none. 403 for viewers: it interrupts the rank a little."""
    user = cast(User, await request.auser())
    try:
        rights.require_editor(user)
        if (
            rank > _LARGEST_RANK
            or "\0" in task_id
            or not await reading(Task.objects.filter(pk=task_id).exists)
        ):
            raise Refusal(f"Task {task_id} has no rank {rank}.", Code.NOT_FOUND)
        await release_thread()
        (answer,) = await stacks_of(task_id, [rank], by=f"user:{user.username}")
    except Refusal as refusal:
        return refused_data(refusal)
    return JsonResponse(answer)
