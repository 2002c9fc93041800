"""What shells, notebooks and TensorBoards have in common over REST: the fields of commands, and where they are used."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.request import Request

from commands.models import Service
from shown.tasks import TaskRow
from webui.api.answers import Maybe, Time
from webui.api.commands import CommandRecord, NewCommand, OfKind, encode_command


class NewService(NewCommand):
    """`config` may be left out, or be an object, or YAML as text."""

    config = serializers.JSONField(required=False, allow_null=True)
    preview = serializers.BooleanField(required=False, allow_null=True)


class ServiceRecord(CommandRecord):
    """A command's record with its address: `serviceAddress` is a path on this server."""

    service_address: Maybe[str] = None
    ready: Maybe[bool] = None
    last_used: Maybe[Time] = None
    idle_timeout_seconds: Maybe[int] = None


class OfServiceKind(OfKind):
    """A kind whose program people use through the server."""

    def encoded(self, row: TaskRow, request: Request) -> ServiceRecord:
        service: Service = row.command.service
        return ServiceRecord.of(
            encode_command(row),
            service_address=f"/proxy/{row.command.pk}/",
            ready=row.is_ready,
            last_used=service.used_at,
            idle_timeout_seconds=service.idle_timeout_seconds,
        )
