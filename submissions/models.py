"""What people hand in beside a config: the folder of code. And when they want both handed in again: schedules."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from jobs.models import Job


class Context(models.Model):
    """A submitted folder of code, stored once by content."""

    sha256 = models.CharField(max_length=64, primary_key=True)
    archive = models.BinaryField()  # tar.gz
    size_bytes = models.BigIntegerField()  # of the files
    #: [{"path", "size", "mode", "type": "f"|"d"}]
    listing = models.JSONField()


class Schedule(models.Model):
    """A config and code that are submitted again and again. `dispatch.schedules` alone writes these rows."""

    class Kind(models.TextChoices):
        EXPERIMENT = "experiment"
        COMMAND = "command"

    class Overlap(models.TextChoices):
        SKIP = "skip"
        ALLOW = "allow"

    name = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    #: of a command its config; of an experiment {"text", "template"}: as it was written, and what it was merged with
    config = models.JSONField()
    context = models.ForeignKey(Context, on_delete=models.PROTECT, related_name="+")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="schedules")
    #: number of its workspace, of an experiment that of its project: rows of another room
    place_number = models.BigIntegerField()
    #: what it was made from, for people: `experiment 12`, `cmd 3f2a01bc`
    source = models.CharField(max_length=64)
    cron = models.CharField(max_length=200)
    timezone = models.CharField(max_length=64)
    #: what to do while the last one has not ended
    overlap = models.CharField(max_length=8, choices=Overlap.choices, default=Overlap.SKIP)
    paused = models.BooleanField(default=False)
    #: why the server paused it, a sentence; empty if a person did
    paused_why = models.TextField(blank=True)
    #: when it is due next; kept while it is paused, so that what was missed can be told
    next_at = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        indexes = [
            models.Index(fields=["next_at"], condition=models.Q(paused=False), name="schedules_to_come")
        ]


class ScheduledRun(models.Model):
    """What became of one time of a schedule. There is one row for each, however many workers look."""

    class Outcome(models.TextChoices):
        SUBMITTED = "submitted"
        SKIPPED = "skipped"
        REFUSED = "refused"
        MISSED = "missed"

    schedule = models.ForeignKey(Schedule, on_delete=models.CASCADE, related_name="runs")
    due_at = models.DateTimeField()
    outcome = models.CharField(max_length=16, choices=Outcome.choices)
    job = models.ForeignKey(Job, on_delete=models.SET_NULL, null=True, related_name="+")
    #: why nothing was submitted
    sentence = models.TextField(blank=True)

    class Meta:
        ordering = ["-due_at"]
        constraints = [models.UniqueConstraint(fields=["schedule", "due_at"], name="scheduled_time_once")]
