"""Notebooks: start, list, read, kill, set their priority (features.md 11.6)."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from accounts.rights import Right
from jobs.models import Job
from webui.api import commands
from webui.api.commands import NewService, OfServiceKind
from webui.api.views import ApiView


class OfNotebooks(OfServiceKind):
    kind = Job.Kind.NOTEBOOK


class Notebooks(OfNotebooks, commands.Commands):
    """List all notebooks, newest first; or create one. With `preview`, only the full config is returned."""

    bodies = {"POST": NewService}


class OneNotebook(OfNotebooks, commands.OneCommand):
    """One notebook with its config."""


class NotebookKill(OfNotebooks, commands.CommandKill):
    """Kill a notebook immediately. An ended one is left unchanged."""


class NotebookPriority(OfNotebooks, commands.CommandPriority):
    """Set the priority of a notebook that has not ended."""


class Idle(serializers.Serializer[Any]):
    idle = serializers.BooleanField(required=False)


class NotebookIdle(OfNotebooks, ApiView):
    """A notebook's report of whether it is idle. It has no effect, because the server asks the notebook itself."""

    rights = {"PUT": Right.EDIT | Right.RUN}
    bodies = {"PUT": Idle}

    def put(self, request: Request, command_id: str) -> None:
        self.body(request)
        self.find(command_id)
