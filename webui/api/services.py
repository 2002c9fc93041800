"""What shells, notebooks and TensorBoards have in common over REST: the fields of commands, and where they are used."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from commands.models import Command, Service
from jobs import phases
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

    def encoded(self, command: Any, request: Request) -> CommandRecord:
        return encode_service(command)


def encode_service(command: Command) -> CommandRecord:
    """A command's record with its address: `serviceAddress` is a path on this server."""
    service: Service | None = getattr(command, "service", None)
    if service is None:
        return encode_command(command)
    return ServiceRecord.of(
        encode_command(command),
        service_address=f"/proxy/{command.pk}/",
        ready=service.ready_at is not None and phases.of(command) == phases.RUNNING,
        last_used=service.used_at,
        idle_timeout_seconds=service.idle_timeout_seconds,
    )
