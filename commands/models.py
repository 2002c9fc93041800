"""Commands: a program that is run once, on one host. `commands.transitions` alone writes their states.

Shells, notebooks and TensorBoards are commands whose program listens: the kind of its job says which, its `Service`
where it listens and who has used it.
"""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.db import models

from commands.states import END_STATES, CommandState
from hosts.models import Host
from jobs.models import Job, Task
from submissions.models import Context


class Command(models.Model):
    #: also the id of its task
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    #: its own, or that of the array whose element it is
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="commands")
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
    #: of an element of an array
    array_index = models.PositiveIntegerField(null=True)
    #: a repeated submission with the same key returns the first command
    idempotency_key = models.CharField(max_length=128, null=True, unique=True)

    class Meta:
        ordering = ["-submitted_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["job", "array_index"], name="array_index_once_per_job"),
            models.UniqueConstraint(
                fields=["job"], condition=models.Q(array_index=None), name="one_command_per_job"
            ),
        ]
        indexes = [
            models.Index(fields=["-submitted_at", "-id"], name="commands_by_time"),
            models.Index(fields=["owner", "-submitted_at"], name="commands_by_owner"),
            models.Index(
                fields=["owner", "-ended_at"], condition=models.Q(state="ERROR"), name="commands_failed"
            ),
        ]

    @property
    def kind(self) -> Job.Kind:
        """Whether it runs a program of its own, or one that people use through the server."""
        kind = Job.Kind(self.job.kind)
        return Job.Kind.COMMAND if kind == Job.Kind.ARRAY else kind

    @property
    def short_id(self) -> str:
        """As people see it."""
        return str(self.pk)[:8]

    @property
    def proxy_ports(self) -> list[dict[str, Any]]:
        """`environment.proxy_ports` of its config: the first is the one that people reach through the server."""
        return list((self.config.get("environment") or {}).get("proxy_ports") or [])

    @property
    def has_ended(self) -> bool:
        return self.state in END_STATES


class Service(models.Model):
    """What people use of a command through the server. `commands.services` alone writes it."""

    command = models.OneToOneField(
        Command, on_delete=models.CASCADE, primary_key=True, related_name="service"
    )
    #: of the host's loopback, where its door is (docs/protocol.md, "Doors"); null until it is ready
    port = models.PositiveIntegerField(null=True)
    ready_at = models.DateTimeField(null=True)
    #: when somebody used it last, to some seconds
    used_at = models.DateTimeField(null=True)
    #: unused for so long, it is ended; null: never
    idle_timeout_seconds = models.PositiveIntegerField(null=True)
    #: what a TensorBoard shows: experiments with all their trials, and single trials
    experiment_ids = models.JSONField(default=list)
    trial_ids = models.JSONField(default=list)


class BurnIn(models.Model):
    """A command that measures a host. `commands.burn_in` alone writes it."""

    command = models.OneToOneField(
        Command, on_delete=models.CASCADE, primary_key=True, related_name="burn_in"
    )
    #: whose row stays hidden when it is taken out, so that its open burn-in is ended (`commands.burn_in`)
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="burn_ins")
    #: as `hosts.health.burn_in.Figure` has them; a later one of the same slot and measure replaces the earlier one
    figures = models.JSONField(default=list)
    #: [{"slot", "sentence"}]: what could not be measured
    failures = models.JSONField(default=list)
    #: between its GPUs, whose slots are the parts: as `hosts.health.links.Rate` has them
    rates = models.JSONField(default=list, db_default=[])
    #: its program has measured everything that it could
    is_done = models.BooleanField(default=False)
    #: [{"slot", "sentence", "is_bad", "is_only_told"}]: what was wrong with the host when it was judged
    findings = models.JSONField(default=list)
    judged_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["command"], condition=models.Q(judged_at=None), name="burn_ins_to_be_judged"
            ),
        ]


class GroupBurnIn(models.Model):
    """A command that measures the links between hosts of a pool. `commands.group_burn_in` alone writes it."""

    command = models.OneToOneField(
        Command, on_delete=models.CASCADE, primary_key=True, related_name="group_burn_in"
    )
    hosts = models.ManyToManyField(Host, through="GroupBurnInHost", related_name="group_burn_ins")
    #: as `hosts.health.links.Rate` has them; the parts are ids of hosts
    rates = models.JSONField(default=list)
    is_done = models.BooleanField(default=False)
    #: [{"host", "hosts", "sentence", "is_bad"}], hosts by id: what was wrong when it was judged
    findings = models.JSONField(default=list)
    #: how it was measured -> [median, of how many]: the all-reduces of other pairs of the pool when it was judged
    medians = models.JSONField(default=dict)
    judged_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["command"], condition=models.Q(judged_at=None), name="group_burn_ins_to_be_judged"
            ),
        ]


class GroupBurnInHost(models.Model):
    """A host of a group, whose row stays hidden when it is taken out."""

    burn_in = models.ForeignKey(GroupBurnIn, on_delete=models.CASCADE, related_name="parts")
    host = models.ForeignKey(Host, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["burn_in", "host"], name="host_once_per_group_burn_in")
        ]
