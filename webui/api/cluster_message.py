"""The line that an admin shows to everybody, at once or from a time on, for ever or until it ends."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request

from accounts.models import Cluster
from accounts.rights import Right
from events.models import Event
from events.record import record
from webui.api.answers import Answer, Maybe, Time
from webui.api.errors import BadRequest
from webui.api.permissions import actor
from webui.api.tokens import days_of
from webui.api.views import ApiView, Json

LONGEST = 250


class ClusterMessageBody(serializers.Serializer[Any]):
    message = serializers.CharField(max_length=LONGEST)
    startTime = serializers.DateTimeField(required=False, allow_null=True, help_text="default: now")
    endTime = serializers.DateTimeField(required=False, allow_null=True, help_text="default: no end")
    duration = serializers.CharField(
        required=False, allow_null=True, max_length=32, help_text="instead of endTime, such as 2h or 30m"
    )


class ClusterMessageRecord(Answer):
    """`endTime` is absent if the message has no end."""

    message: str
    start_time: Time
    end_time: Maybe[Time] = None
    created_time: Time | None = None


class ClusterMessageAnswer(Answer):
    cluster_message: Maybe[ClusterMessageRecord] = None


def encode() -> ClusterMessageRecord | None:
    """The record of the message, one that is yet to be shown too; None once it is over."""
    row = Cluster.get()
    if not row.message or (row.message_until is not None and row.message_until <= timezone.now()):
        return None
    begin = row.message_from or row.message_set_at or timezone.now()
    return ClusterMessageRecord(
        message=row.message, start_time=begin, end_time=row.message_until, created_time=row.message_set_at
    )


class ClusterMessage(ApiView):
    """A message shown to all users on every page."""

    rights = {"GET": Right.READ, "PUT": Right.ADMIN, "DELETE": Right.ADMIN}
    bodies = {"PUT": ClusterMessageBody}

    def get(self, request: Request) -> ClusterMessageAnswer:
        return ClusterMessageAnswer(cluster_message=encode())

    @transaction.atomic
    def put(self, request: Request) -> None:
        body, now = self.body(request), timezone.now()
        begin = body.get("startTime") or now
        Cluster.objects.filter(pk=Cluster.get().pk).update(
            message=body["message"],
            message_from=begin,
            message_until=_end(body, begin, now),
            message_set_at=now,
        )
        _record(request, "message_set", body["message"])

    @transaction.atomic
    def delete(self, request: Request) -> None:
        _record(request, "message_removed", Cluster.get().message)
        Cluster.objects.filter(pk=Cluster.get().pk).update(message="", message_from=None, message_until=None)


def _record(request: Request, reason: str, message: str) -> None:
    record(Event.Kind.SERVER, "message", reason=reason, actor=actor(request), detail={"message": message})


def _end(body: Json, begin: datetime, now: datetime) -> datetime | None:
    """When it ends. Raises BadRequest."""
    end: datetime | None = body.get("endTime")
    if body.get("duration"):
        if end is not None:
            raise BadRequest("duration: endTime is also given; give only one of them.")
        try:
            end = begin + timedelta(days=days_of(body["duration"]) or 0)
        except OverflowError as error:
            raise BadRequest(f"duration: {body['duration']} is too long.") from error
    if end is not None and end <= max(begin, now):
        raise BadRequest("endTime: the message would end before it starts.")
    return end
