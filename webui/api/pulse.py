"""How the training of each rank stands, and what a rank is doing: `/api/v1/tasks/<id>/pulse` and `…/stack`."""

from __future__ import annotations

from typing import NotRequired

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import TypedDict

from accounts import rights
from accounts.models import User
from logs import pulse
from logs.pulse import Pulse
from webui.api import encoding
from webui.api.async_views import Principal, async_view, json_body
from webui.api.errors import BadRequest, Forbidden
from webui.api.log_access import own_task
from webui.api.permissions import person
from webui.api.views import ApiView, Json
from webui.live.stack_answers import RANKS_AT_ONCE, stacks_of
from webui.live.threads import reading, release_thread

_LARGEST_RANK = 2**31 - 1


class PulseRecord(TypedDict):
    """One rank. `mark`: the sentence of one that the others wait for; `stepAgeSeconds`: of its last sign of life."""

    rank: int
    host: str
    step: NotRequired[int]
    stepAgeSeconds: NotRequired[float]
    active: bool
    processState: NotRequired[str]
    cpu: float
    gpuPercent: NotRequired[int]
    doing: NotRequired[str]
    mark: NotRequired[str]


class PulseAnswer(TypedDict):
    ranks: list[PulseRecord]


class StackRecord(TypedDict):
    """`text`, or the `message` why nobody can tell."""

    rank: int
    text: NotRequired[str]
    message: NotRequired[str]


class StacksBody(TypedDict):
    """Which ranks; without a list those that are marked."""

    ranks: NotRequired[list[int] | None]


class StacksAnswer(TypedDict):
    stacks: list[StackRecord]


class TaskPulse(ApiView):
    """The ranks of the task's running attempt: where each stands, and the ones that their peers wait for."""

    answers = {"GET": PulseAnswer}

    def get(self, request: Request, task_id: str) -> Response:
        """`mark` is the sentence of a rank that the others wait for; `stepAgeSeconds` that of its last sign of life."""
        own_task(person(request), task_id)
        return Response({"ranks": [_encoded(one) for one in pulse.of_task(task_id)]})


def _encoded(one: Pulse) -> Json:
    return encoding.without_none(
        {
            "rank": one.rank,
            "host": one.host,
            "step": one.step,
            "stepAgeSeconds": one.step_age_seconds,
            "active": one.active,
            "processState": one.state or None,
            "cpu": one.cpu,
            "gpuPercent": one.gpu,
            "doing": one.doing or None,
            "mark": one.mark,
        }
    )


@async_view("POST", answer=StackRecord)
async def stack_of_rank(request: HttpRequest, who: Principal, task_id: str, rank: int) -> HttpResponseBase:
    """What a rank is doing now: {"rank", "text"}, or {"rank", "message"} with the sentence why nobody can tell."""
    (answer,) = await _asked(who, task_id, [rank])
    return JsonResponse(answer)


@async_view("POST", body=StacksBody, answer=StacksAnswer)
async def stacks_of_ranks(request: HttpRequest, who: Principal, task_id: str) -> HttpResponseBase:
    """The same for several ranks, {"ranks": [number…]} or {} for those that are marked: {"stacks": […]}."""
    named = json_body(request).get("ranks")
    if named is None:
        named = [one.rank for one in await reading(pulse.of_task, task_id) if one.mark]
    if not isinstance(named, list) or not all(type(rank) is int for rank in named):
        raise BadRequest("ranks must be a list of numbers.")
    return JsonResponse({"stacks": await _asked(who, task_id, named) if named else []})


async def _asked(who: Principal, task_id: str, ranks: list[int]) -> list[Json]:
    """Raises Forbidden for a viewer (asking interrupts the rank's processes for a moment), Missing for no rank."""
    if not isinstance(who, User):
        raise Forbidden("The token of a run may not be used here.")
    rights.require_editor(who)
    if len(ranks) > RANKS_AT_ONCE or not all(0 <= rank <= _LARGEST_RANK for rank in ranks):
        raise BadRequest(f"ranks must be at most {RANKS_AT_ONCE} numbers from 0.")
    await reading(own_task, who, task_id)
    await release_thread()
    return await stacks_of(task_id, ranks, by=f"user:{who.username}")
