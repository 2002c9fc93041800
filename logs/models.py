"""Where log lines are kept: compressed chunks with line numbers per task, and how far each stream is."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from jobs.models import Member, Task


class TaskLog(models.Model):
    """Counter of a task's lines, numbered under this row's lock: commit order is number order (law 4)."""

    task = models.OneToOneField(Task, on_delete=models.CASCADE, primary_key=True, related_name="log")
    next_line = models.BigIntegerField(default=1)
    #: event rows up to this id stand in the log as server-side lines
    last_event = models.BigIntegerField(default=0)
    #: event rows above `last_event` that stand in the log; a lower id may still commit after a higher one
    recent_events = ArrayField(models.BigIntegerField(), default=list)


class Stream(models.Model):
    """How many bytes of a member's outbox are stored."""

    member = models.OneToOneField(Member, on_delete=models.CASCADE, primary_key=True, related_name="stream")
    offset = models.BigIntegerField(default=0)
    missing_bytes = models.BigIntegerField(default=0)
    #: the `exit` record has arrived: nothing follows
    closed = models.BooleanField(default=False)


class Chunk(models.Model):
    """A run of consecutive lines of one task: a JSON array, zstd.

    A line is `[time, rank|null, "o"|"e"|"s", level|null, text]`; s marks the server's own.
    """

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="log_chunks")
    first_line = models.BigIntegerField()
    last_line = models.BigIntegerField()
    #: null: written by the server
    member = models.ForeignKey(Member, on_delete=models.CASCADE, null=True, related_name="+")
    #: name of the host that wrote it, as it was then; empty: the server
    host = models.CharField(max_length=128, blank=True)
    #: host clock, epoch seconds
    first_time = models.FloatField()
    last_time = models.FloatField()
    #: ranks in it; -1 stands for lines outside any rank
    ranks = ArrayField(models.IntegerField())
    #: bit per level (logs.levels)
    levels = models.IntegerField()
    stored_at = models.DateTimeField(auto_now_add=True)
    data = models.BinaryField()

    class Meta:
        ordering = ["first_line"]
        constraints = [
            models.UniqueConstraint(fields=["task", "first_line"], name="line_number_once_per_task")
        ]


class RankSeen(models.Model):
    """Which ranks have written, and when last: what the chips of the viewer show."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="ranks_seen")
    rank = models.IntegerField()  # -1: outside any rank
    host = models.CharField(max_length=128)
    lines = models.BigIntegerField(default=0)
    last_time = models.FloatField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task", "rank", "host"], name="rank_seen_once")]
