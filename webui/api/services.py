"""What shells, notebooks and TensorBoards have in common over REST: the fields of commands, and where they are used."""

from __future__ import annotations

from typing import Any, NotRequired

from rest_framework import serializers
from rest_framework.request import Request

from commands.models import Command, Service
from jobs import phases
from webui.api import encoding
from webui.api.answers import Time
from webui.api.commands import CommandRecord, NewCommand, OfKind, encode_command
from webui.api.views import Json


class NewService(NewCommand):
    """`config` may be left out, or be an object, or YAML as text."""

    config = serializers.JSONField(required=False, allow_null=True)
    preview = serializers.BooleanField(required=False, allow_null=True)


class ServiceRecord(CommandRecord):
    """A command's record, and where it is used: `serviceAddress` is a path of this server."""

    serviceAddress: NotRequired[str]
    ready: NotRequired[bool]
    lastUsed: NotRequired[Time]
    idleTimeoutSeconds: NotRequired[int]


class OfServiceKind(OfKind):
    """A kind whose program people use through the server."""

    def encoded(self, command: Any, request: Request) -> Json:
        return encode_service(command)


def encode_service(command: Command) -> Json:
    """A command's record, and where it is used: `serviceAddress` is a path of this server."""
    service: Service | None = getattr(command, "service", None)
    if service is None:
        return encode_command(command)
    ready = service.ready_at is not None and phases.of(command) == phases.RUNNING
    return {
        **encode_command(command),
        **encoding.without_none(
            {
                "serviceAddress": f"/proxy/{command.pk}/",
                "ready": ready,
                "lastUsed": encoding.time(service.used_at),
                "idleTimeoutSeconds": service.idle_timeout_seconds,
            }
        ),
    }
