"""Training metrics as reported, in chunks of columns. Trials stand in the room above, so they are named by id here."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from jobs.models import Task


class Group(models.Model):
    """A group of metrics of one trial. Its row is the lock of whoever writes into the group's chunks."""

    trial_id = models.BigIntegerField()
    name = models.CharField(max_length=128)  # "training", "validation" or a name of the user's
    #: live reports in its chunks, and the last step among them
    reports = models.BigIntegerField(default=0)
    last_step = models.BigIntegerField(null=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["trial_id", "name"], name="metric_group_once_per_trial")
        ]


class Chunk(models.Model):
    """Up to metrics.chunks.FULL reports of one group, in the form of metrics.chunks.

    The steps of live chunks of a group do not overlap, so in order of `first_step` they are the series.
    """

    group = models.ForeignKey(Group, on_delete=models.CASCADE, related_name="chunks", db_index=False)
    first_step = models.BigIntegerField()
    last_step = models.BigIntegerField()
    reports = models.IntegerField()
    #: a restart went back behind these steps
    archived = models.BooleanField(default=False)
    #: names of its metrics, and where the column of each ends in `data`
    names = ArrayField(models.TextField())
    ends = ArrayField(models.IntegerField())
    #: steps, times and run numbers of its reports
    head = models.BinaryField()
    data = models.BinaryField()

    class Meta:
        ordering = ["first_step"]
        constraints = [
            models.UniqueConstraint(
                fields=["group", "first_step"],
                condition=models.Q(archived=False),
                name="one_live_metrics_chunk_per_step",
            )
        ]
        indexes = [models.Index(fields=["group", "last_step"], name="metrics_chunk_last_step")]


class SampleChunk(models.Model):
    """What one host measured over some time, all its columns, in the form of metrics.sample_chunks.

    A batch of a runner is a row; those of a quarter of an hour become two once it is over, one with every point
    and one with minutes (metrics.sample_store). A host that was removed keeps its samples under its name.
    Without a task it is what dispatch asked of a host of which no run measures as much.
    """

    class Grain(models.IntegerChoices):
        SHIPPED = 0
        POINTS = 1
        MINUTES = 2

    task = models.ForeignKey(
        Task, null=True, on_delete=models.CASCADE, related_name="sample_chunks", db_index=False
    )
    host_id = models.UUIDField()
    host = models.CharField(max_length=128)
    grain = models.SmallIntegerField(choices=Grain)
    #: host clock, epoch seconds
    first_time = models.FloatField()
    last_time = models.FloatField()
    points = models.IntegerField()
    #: `<name>` or `<name>/<part>` (metrics.names), in the order of the data
    columns = ArrayField(models.CharField(max_length=128))
    data = models.BinaryField()

    class Meta:
        ordering = ["first_time"]
        indexes = [
            models.Index(fields=["task", "first_time"], name="samples_of_task"),
            models.Index(fields=["host_id", "first_time"], name="samples_of_host"),
            models.Index(fields=["grain", "last_time"], name="samples_by_age"),
        ]


class TimingChunk(models.Model):
    """What one rank of a task timed for some time, in the form of metrics.timing_frames.

    Written by metrics.timing_store; once it is cold, the same module makes one row of many, whose intervals
    it joins when they are old.
    """

    class Grain(models.IntegerChoices):
        SHIPPED = 0
        WHOLE = 1  # merged, each interval as it was shipped
        MINUTES = 2
        TENS = 3  # of minutes

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="timing_chunks", db_index=False)
    rank = models.IntegerField()
    grain = models.SmallIntegerField(choices=Grain, default=Grain.SHIPPED)
    #: of its (first) frames, whose ends lie in it: host clock, in units of timing_store.CHUNK_SECONDS
    slot = models.BigIntegerField()
    #: where the rank ran
    host = models.CharField(max_length=128)
    first_step = models.BigIntegerField()
    last_step = models.BigIntegerField()
    last_time = models.FloatField()
    frames = models.IntegerField()
    data = models.BinaryField()

    class Meta:
        ordering = ["rank", "slot"]
        constraints = [
            models.UniqueConstraint(fields=["task", "rank", "slot", "grain"], name="timings_once_per_slot")
        ]
        indexes = [models.Index(fields=["grain", "last_time"], name="timings_by_age")]
