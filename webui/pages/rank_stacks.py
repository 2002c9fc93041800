"""What a rank is doing, for the log page (static/js/log_rank_menu.js): POST /tasks/<task id>/ranks/<rank>/stack."""

from __future__ import annotations

from typing import cast

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_POST

from accounts import rights
from accounts.models import User
from accounts.refusals import Refusal
from jobs.models import Task
from webui.live.stack_answers import stacks_of
from webui.live.threads import reading, release_thread

_LARGEST_RANK = 2**31 - 1


@login_required
@require_POST
async def of_rank(request: HttpRequest, task_id: str, rank: int) -> HttpResponse:
    """{"text"}, or {"message"}: the sentence why there is none. 403 for viewers: it interrupts the rank a little."""
    user = cast(User, await request.auser())
    if not user.may_edit:
        return JsonResponse({"message": str(rights.viewer(user.username))}, status=403)
    if rank > _LARGEST_RANK or "\0" in task_id or not await reading(Task.objects.filter(pk=task_id).exists):
        return JsonResponse({"message": f"There is no rank {rank} of a task {task_id}."}, status=404)
    await release_thread()
    try:
        (answer,) = await stacks_of(task_id, [rank], by=f"user:{user.username}")
    except Refusal as error:
        return JsonResponse({"message": str(error)}, status=404)
    return JsonResponse(answer)
