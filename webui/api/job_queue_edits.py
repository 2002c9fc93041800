"""Edits of the queue over REST: made, previewed, undone."""

from __future__ import annotations

from typing import Annotated, Any

from django.utils import timezone
from pydantic import Field
from rest_framework import serializers
from rest_framework.request import Request

from accounts.refusals import Code, refused_as
from accounts.rights import Right
from dispatch.passes import preview
from jobs import queue_edits
from jobs.deadlines import NO_DEADLINE
from webui.api.answers import Answer, Maybe, Time
from webui.api.job_queue_rows import Forecast
from webui.api.permissions import actor, person
from webui.api.views import ApiView, Json


class JobUpdate(serializers.Serializer[Any]):
    """Changes to one job; several fields are applied in the order pool, priority, weight, maxSlots, deadline, position.

    At most one of `aheadOf`, `behindOf`, `toTop` and `position` (1 is the first). `maxSlots`: null lifts the limit.
    `deadline`: a time such as `2026-12-01T08:00Z`, or a duration from now such as `8h`; null removes it.
    """

    jobId = serializers.CharField()
    priority = serializers.JSONField(required=False, allow_null=True)
    weight = serializers.JSONField(required=False, allow_null=True)
    maxSlots = serializers.JSONField(required=False, allow_null=True)
    deadline = serializers.JSONField(required=False, allow_null=True)
    resourcePool = serializers.CharField(required=False, allow_null=True)
    aheadOf = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    behindOf = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    toTop = serializers.BooleanField(required=False, default=False)
    position = serializers.JSONField(required=False, allow_null=True)


class JobUpdates(serializers.Serializer[Any]):
    updates = JobUpdate(many=True)


def updates_of(body: Json) -> list[queue_edits.Update]:
    """The edits of a checked body."""
    return [
        queue_edits.Update(
            job_id=row["jobId"],
            priority=row.get("priority"),
            weight=row.get("weight"),
            max_slots=queue_edits.NO_LIMIT if row.get("maxSlots", 0) is None else row.get("maxSlots"),
            deadline=NO_DEADLINE if row.get("deadline", 0) is None else row.get("deadline"),
            pool=row.get("resourcePool"),
            ahead_of=row.get("aheadOf") or None,
            behind_of=row.get("behindOf") or None,
            to_top=row["toTop"],
            position=row.get("position"),
        )
        for row in body["updates"]
    ]


class PlaceRecord(Answer):
    """A job's place in the new order, from 0; `was` is absent if it was not in this queue."""

    job_id: str
    name: str
    place: int
    was: Maybe[int] = None


class StartRecord(Answer):
    """When a waiting job would start: `now`, a forecast, or why there is none."""

    job_id: str
    now: bool
    forecast: Maybe[Forecast] = None
    forecast_by: Maybe[str] = None
    reason: Maybe[str] = None
    forecast_unknown: Maybe[str] = None
    deadline: Maybe[
        Annotated[str, Field(description="what becomes of its deadline, and what it goes ahead of")]
    ] = None


class StopRecord(Answer):
    """A job that would save and free slots. `neverSaved`: everything since `startedAt` would be lost.

    `stepsAgain`: steps since the last checkpoints of runs that never asked whether to stop; the others save first.
    `resumes` is absent if it moves to another pool.
    """

    job_id: str
    name: str
    username: str
    group: str
    slots: int
    runs: int
    last_saved_at: Maybe[Time] = None
    never_saved: bool
    started_at: Time
    mine: bool
    progress: Maybe[float] = None
    steps_again: int
    resumes: Maybe[StartRecord] = None


def _start(outlook: preview.Outlook) -> StartRecord:
    return StartRecord.of(outlook, forecast_by=outlook.by or None, forecast_unknown=outlook.unknown)


class QueuePreviewAnswer(Answer):
    """`movedJobs`: how many jobs move; `order` has the first of them."""

    changes: list[str]
    order: list[PlaceRecord]
    moved_jobs: int
    stops: list[StopRecord]
    starts: list[StartRecord]
    stops_others: bool


class ChangesAnswer(Answer):
    """A sentence for each change."""

    changes: list[str]


class JobQueuePreview(ApiView):
    """Preview edits: the new order, which jobs would be stopped, when the edited jobs would start.

    Changes nothing. Edits that would be refused are refused here with the same message.
    """

    rights = {"POST": Right.EDIT}
    bodies = {"POST": JobUpdates}

    def post(self, request: Request) -> QueuePreviewAnswer:
        updates = updates_of(self.body(request))
        with refused_as(Code.INVALID):
            found = preview.of(
                updates, actor=actor(request), role=person(request).acting_role, now=timezone.now()
            )
        return QueuePreviewAnswer.of(
            found,
            changes=[str(change) for change in found.changes],
            order=[PlaceRecord.of(one) for one in found.order],
            moved_jobs=found.moved,
            stops=[StopRecord.of(one, resumes=one.resumes and _start(one.resumes)) for one in found.stops],
            starts=[_start(one) for one in found.starts],
        )


class JobQueueUndo(ApiView):
    """Undo the caller's last edit, or say why that is not possible."""

    rights = {"POST": Right.EDIT}

    def post(self, request: Request) -> ChangesAnswer:
        with refused_as(Code.INVALID):
            return ChangesAnswer(changes=[str(change) for change in queue_edits.undo(person(request))])
