"""Rules (who is told of what, where) and deliveries (one row for each rule and occurrence: the outbox)."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from experiments.models import Project, Workspace


class Rule(models.Model):
    """Tell one receiver of some things that happen to some jobs. Written by `notifications.rules` alone."""

    class Form(models.TextChoices):
        WEBHOOK = "webhook", "JSON by POST, signed"
        SLACK = "slack", "Slack"
        MAIL = "mail", "mail"

    class Scope(models.TextChoices):
        MINE = "mine", "my jobs"
        PROJECT = "project", "a project"
        WORKSPACE = "workspace", "a workspace"
        CLUSTER = "cluster", "everything"

    name = models.CharField(max_length=128)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notification_rules"
    )
    form = models.CharField(max_length=8, choices=Form.choices)
    #: an address of a receiver is a secret (Slack's carry a key), so it lies sealed; `shown` is what people see of it
    target = models.TextField()
    shown = models.CharField(max_length=255)
    #: sealed key of the signature; empty where nothing is signed
    secret = models.TextField(blank=True)
    scope = models.CharField(max_length=10, choices=Scope.choices, default=Scope.MINE)
    project = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="+")
    workspace = models.ForeignKey(Workspace, null=True, on_delete=models.CASCADE, related_name="+")
    #: only experiments whose config names it (integrations.webhooks): Determined's mode SPECIFIC
    named_only = models.BooleanField(default=False)
    #: [{"type": a Trigger, "condition": {…}}], as triggers.checked gives them
    triggers = models.JSONField(default=list)
    #: the text with {{ names }}; empty: the standard sentence
    template = models.TextField(blank=True)
    paused = models.BooleanField(default=False)
    #: what happened before it was made, or while it was paused, is not told
    since = models.DateTimeField(default=timezone.now)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]


class Delivery(models.Model):
    """One message for one receiver. Its id travels with it: who hears the same id twice has heard one thing."""

    class State(models.TextChoices):
        PENDING = "pending", "waits to be sent"
        SENT = "sent", "sent"
        FAILED = "failed", "given up"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    rule = models.ForeignKey(Rule, on_delete=models.CASCADE, related_name="deliveries")
    #: what it tells of: "event:<id>", "wait:<job>:<since>", "idle:<allocation>", "test:<own id>"
    source = models.CharField(max_length=160)
    trigger = models.CharField(max_length=32)
    #: notifications.occurrences.Facts as they were when it happened
    facts = models.JSONField()
    #: the condition of the rule that was met
    condition = models.JSONField(default=dict)
    state = models.CharField(max_length=8, choices=State.choices, default=State.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    #: not tried before; while it is being sent, when it may be taken up by another
    next_at = models.DateTimeField(default=timezone.now)
    #: what the receiver answered last, or why it could not be asked
    answer = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [models.UniqueConstraint(fields=["rule", "source"], name="one_delivery_per_occurrence")]
        indexes = [
            models.Index(fields=["next_at"], condition=Q(state="pending"), name="deliveries_to_send"),
            models.Index(fields=["rule", "-created_at"], name="deliveries_of_rule"),
            models.Index(fields=["created_at"], name="deliveries_by_age"),
        ]

    @property
    def is_test(self) -> bool:
        """Somebody pressed the button; it tells of nothing real."""
        return self.source.startswith("test:")


class Cursor(models.Model):
    """How far the event rows were looked at (notifications.outbox). One row.

    Numbers of rows are given before their transactions commit, so a row may appear behind a larger number. `done`
    is what nobody can add to any more; `seen` becomes it once every transaction has ended that ran when it was noted.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    done = models.BigIntegerField(default=0)
    seen = models.BigIntegerField(default=0)
    #: the transaction number that was next when `seen` was noted, and when that was
    horizon = models.BigIntegerField(default=0)
    seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="cursor_is_one_row")]
