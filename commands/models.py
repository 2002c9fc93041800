"""Commands: a program that is run once, on one host. `commands.transitions` alone writes their states."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models

from commands.states import END_STATES, CommandState
from jobs.models import Job, Task
from submissions.models import Context


class Command(models.Model):
    #: also the id of its task
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    job = models.OneToOneField(Job, on_delete=models.PROTECT, related_name="command")
    task = models.OneToOneField(Task, on_delete=models.PROTECT, related_name="command")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="commands")
    state = models.CharField(max_length=20, choices=CommandState.choices, default=CommandState.ACTIVE)
    description = models.CharField(max_length=255)
    #: the effective config: template and defaults applied
    config = models.JSONField()
    context = models.ForeignKey(Context, on_delete=models.PROTECT, related_name="commands")
    #: number of its workspace, which is a row of another room
    workspace_number = models.BigIntegerField(default=1)
    #: as a shell gives it (128 + n after signal n); null while it goes on, and where none is known
    exit_code = models.IntegerField(null=True)
    #: how it ended, as a sentence without a full stop; empty while it goes on
    ending = models.TextField(blank=True)
    submitted_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)
    #: a repeated submission with the same key returns the first command
    idempotency_key = models.CharField(max_length=128, null=True, unique=True)

    class Meta:
        ordering = ["-submitted_at", "-id"]
        indexes = [
            models.Index(fields=["-submitted_at", "-id"], name="commands_by_time"),
            models.Index(fields=["owner", "-submitted_at"], name="commands_by_owner"),
        ]

    @property
    def short_id(self) -> str:
        """As people see it."""
        return str(self.pk)[:8]

    @property
    def has_ended(self) -> bool:
        return self.state in END_STATES
