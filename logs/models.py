"""Where log lines are kept: compressed chunks with line numbers per task, and how far each stream is."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from jobs.models import Allocation, Member, Task


class TaskLog(models.Model):
    """Counter of a task's lines, numbered under this row's lock: commit order is number order (law 4)."""

    task = models.OneToOneField(Task, on_delete=models.CASCADE, primary_key=True, related_name="log")
    next_line = models.BigIntegerField(default=1)
    #: chunks up to this line are as large as merging makes them
    merged_line = models.BigIntegerField(default=0)
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
    """Consecutive lines of one task, in the form of logs.chunks.

    Lines that came together are one chunk of one member; merged when they are cold, small ones become a chunk
    of several members with the same line numbers (logs.merging).
    """

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="log_chunks", db_index=False)
    first_line = models.BigIntegerField()
    last_line = models.BigIntegerField()
    #: row ids of the members whose lines are in it; none for the server's own
    members = ArrayField(models.BigIntegerField())
    #: names of the hosts that wrote it, as they were then; an empty one stands for the server
    hosts = ArrayField(models.CharField(max_length=128))
    #: host clock, epoch seconds
    first_time = models.FloatField()
    last_time = models.FloatField()
    #: ranks in it; -1 stands for lines outside any rank
    ranks = ArrayField(models.IntegerField())
    #: bit per level (logs.levels) and per stream (logs.lines) in it
    kinds = models.IntegerField()
    #: size of the lines with their newlines, as they were written
    text_bytes = models.IntegerField()
    #: when the newest of its lines was stored
    stored_at = models.DateTimeField(default=timezone.now)
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


class MemberPulse(models.Model):
    """What the runner of a member last said of its ranks (docs/protocol.md "Shipping"); logs.pulse reads it."""

    member = models.OneToOneField(Member, on_delete=models.CASCADE, primary_key=True, related_name="pulse")
    at = models.DateTimeField()
    ranks = models.JSONField()


class RankStack(models.Model):
    """What a rank was doing when somebody asked last; asked anew, the row is written over."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="rank_stacks")
    rank = models.IntegerField()
    asked_at = models.DateTimeField()
    asked_by = models.CharField(max_length=160)
    #: null: the host has not answered yet
    answered_at = models.DateTimeField(null=True)
    #: the stacks of its processes' threads, or the sentence that says why there are none
    text = models.TextField(blank=True)
    found = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task", "rank"], name="stack_asked_once_per_rank")]


class Hang(models.Model):
    """A time in which an attempt made no progress, with what two looks at its ranks found (logs.hangs).

    All its times are by the database's clock.
    """

    allocation = models.ForeignKey(Allocation, on_delete=models.CASCADE, related_name="hangs")
    #: when it was last seen to make progress
    since = models.DateTimeField()
    #: how often its hosts have answered, when last, and in which era of the control plane that was (events.presence)
    looks = models.PositiveSmallIntegerField(default=0)
    looked_at = models.DateTimeField(null=True)
    era = models.BigIntegerField(null=True)
    #: a worker is asking them, and has until then
    looking_until = models.DateTimeField(null=True)
    #: what they said of each rank the last time (logs.hangs.evidence.kept)
    evidence = models.JSONField(default=list)
    #: one sentence of it for each rank
    lines = models.JSONField(default=list)
    #: what keeps it (logs.hangs.verdict.Verdict); empty if the evidence names nothing
    kind = models.CharField(max_length=16, blank=True)
    ranks = models.JSONField(default=list)
    collective = models.CharField(max_length=512, blank=True)
    sentence = models.TextField(blank=True)
    #: two looks have agreed, so it was told; and what was done about it
    told_at = models.DateTimeField(null=True)
    outcome = models.TextField(blank=True)
    #: it has made progress again, or has ended
    over_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["allocation"], condition=Q(over_at=None), name="one_open_hang_per_attempt"
            )
        ]


class Retention(models.Model):
    """How long one task's log is kept, where somebody said so, and what of it was removed. See logs.retention."""

    task = models.OneToOneField(Task, on_delete=models.CASCADE, primary_key=True, related_name="retention")
    #: days after the task's end, -1 for ever; null: as its config or the server says
    days = models.SmallIntegerField(null=True)
    #: lines up to this one are removed, or are being removed; the one behind it says so
    removed_line = models.BigIntegerField(default=0)
    removed_at = models.DateTimeField(null=True)
