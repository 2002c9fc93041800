"""How the training of each rank stands: `/api/v1/tasks/<id>/pulse`, `…/stack`, `…/stacks` and `…/hangs`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from rest_framework import serializers
from rest_framework.request import Request

from accounts.models import User
from accounts.rights import Right
from logs import pulse
from logs.hangs import rows
from logs.pulse import Pulse
from webui.api.answers import Answer, Body, Maybe
from webui.api.async_views import Principal, async_view, json_body
from webui.api.errors import BadRequest
from webui.api.permissions import person
from webui.api.tasks import own_task
from webui.api.views import ApiView
from webui.live.stack_answers import RANKS_AT_ONCE, stacks_of
from webui.waiting.threads import reading, release_thread

_LARGEST_RANK = 2**31 - 1


class PulseRecord(Answer):
    """One rank. `mark`: why the others wait for it, if they do; `stepAgeSeconds`: age of its last report."""

    rank: int
    host: str
    step: Maybe[int] = None
    step_age_seconds: Maybe[float] = None
    active: bool
    process_state: Maybe[str] = None
    cpu: float
    gpu_percent: Maybe[int] = None
    doing: Maybe[str] = None
    mark: Maybe[str] = None


class PulseAnswer(Answer):
    ranks: list[PulseRecord]


class StackRecord(Answer):
    """`text`, or a `message` why it is not available."""

    rank: int
    text: Maybe[str] = None
    message: Maybe[str] = None


class StacksBody(Body):
    """The ranks to ask; by default those that are marked."""

    ranks: list[int] | None = None


class StacksAnswer(Answer):
    stacks: list[StackRecord]


class TaskPulse(ApiView):
    """The ranks of the task's running attempt: where each one is, and which ones the others wait for."""

    rights = {"GET": Right.READ}

    def get(self, request: Request, task_id: str) -> PulseAnswer:
        """`mark` says why the others wait for a rank, if they do; `stepAgeSeconds` is the age of its last report."""
        own_task(person(request), task_id)
        return PulseAnswer(ranks=[_encoded(one) for one in pulse.of_task(task_id)])


class HangsQuery(serializers.Serializer[Any]):
    stacks = serializers.BooleanField(default=False)


class HangRecord(Answer):
    """A time without progress on whose cause two looks agree. `stacks` only with `?stacks=true`."""

    id: int
    attempt: int
    since: datetime
    told_at: datetime
    over_at: Maybe[datetime] = None
    kind: str
    ranks: list[int]
    collective: str
    sentence: str
    outcome: str
    evidence: list[str]
    stacks: Maybe[str] = None


class HangsAnswer(Answer):
    hangs: list[HangRecord]


class TaskHangs(ApiView):
    """What kept the task from making progress, the newest first; one without `overAt` still does."""

    rights = {"GET": Right.READ}
    queries = {"GET": HangsQuery}

    def get(self, request: Request, task_id: str) -> HangsAnswer:
        """`ranks` are those that the others wait for, and `evidence` says where each rank was."""
        own_task(person(request), task_id)
        with_stacks = self.query(request)["stacks"]
        told = rows.told_of(task_id)[: rows.MOST_SHOWN]
        return HangsAnswer(
            hangs=[
                HangRecord.of(
                    one, id=one.pk, evidence=list(one.lines), stacks=rows.stacks(row) if with_stacks else None
                )
                for row in told
                for one in [rows.shown(row)]
            ]
        )


def _encoded(one: Pulse) -> PulseRecord:
    return PulseRecord.of(one, process_state=one.state or None, gpu_percent=one.gpu, doing=one.doing or None)


@async_view("POST", Right.EDIT)
async def stack_of_rank(request: HttpRequest, who: Principal, task_id: str, rank: int) -> StackRecord:
    """What a rank is doing now: {"rank", "text"}, or {"rank", "message"} if that is not available."""
    (answer,) = await _asked(who, task_id, [rank])
    return answer


@async_view("POST", Right.EDIT, body=StacksBody)
async def stacks_of_ranks(request: HttpRequest, who: Principal, task_id: str) -> StacksAnswer:
    """What several ranks are doing now: {"ranks": [number…]}, or {} for those marked, gives {"stacks": […]}."""
    named = json_body(request).get("ranks")
    if named is None:
        named = [one.rank for one in await reading(pulse.of_task, task_id) if one.mark]
    if not isinstance(named, list) or not all(type(rank) is int for rank in named):
        raise BadRequest("ranks must be a list of numbers.")
    return StacksAnswer(stacks=await _asked(who, task_id, named) if named else [])


async def _asked(who: Principal, task_id: str, ranks: list[int]) -> list[StackRecord]:
    """Raises Missing for no rank. Editors may ask: it interrupts the rank's processes for a moment."""
    assert isinstance(who, User)
    if len(ranks) > RANKS_AT_ONCE or not all(0 <= rank <= _LARGEST_RANK for rank in ranks):
        raise BadRequest(f"ranks must be at most {RANKS_AT_ONCE} numbers of 0 or more.")
    await reading(own_task, who, task_id)
    await release_thread()
    return [StackRecord(**one) for one in await stacks_of(task_id, ranks, by=f"user:{who.username}")]
