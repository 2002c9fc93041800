"""Shells: start, list, read, kill, set their priority (features.md 11.6). SSH to one goes through /proxy/<id>/."""

from __future__ import annotations

from rest_framework.request import Request

from accounts import rights
from accounts.models import User
from commands import shell_keys
from jobs.models import Job
from shown.tasks import TaskRow, login_account
from webui.api import commands
from webui.api.answers import Answer
from webui.api.commands import NewService, OfServiceKind, ServiceRecord
from webui.api.views import Json


class LoginAccount(Answer):
    """The Unix account to log in as; empty if hosts differ and none is assigned yet."""

    user: str


class ShellRecord(ServiceRecord):
    """A service's record with its keys; the private key, needed to log in, only for users who may use it."""

    public_key: str
    host_key: str
    addresses: list[Json] = []
    agent_user_group: LoginAccount
    private_key: str = ""


class OfShells(OfServiceKind):
    kind = Job.Kind.SHELL
    record = ShellRecord

    def encoded(self, row: TaskRow, request: Request) -> ShellRecord:
        """The private key is told to those who may use the shell: it opens it."""
        user, command = request.user, row.command
        keys = shell_keys.of_user(command.pk)
        return ShellRecord.of(
            super().encoded(row, request),
            public_key=keys.public,
            host_key=shell_keys.of_host(command.pk).public,
            agent_user_group=LoginAccount(user=login_account(command)),
            private_key=keys.private if isinstance(user, User) and rights.may_change(user, command) else "",
        )


class Shells(OfShells, commands.Commands):
    """List all shells, newest first; or create one."""

    bodies = {"POST": NewService}


class OneShell(OfShells, commands.OneCommand):
    """One shell with its config and, for its owner, the key for logging in."""


class ShellKill(OfShells, commands.CommandKill):
    """Kill a shell and everything that runs in it. An ended one is left unchanged."""


class ShellPriority(OfShells, commands.CommandPriority):
    """Set the priority of a shell that has not ended."""
