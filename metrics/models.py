"""Training metrics as reported, in chunks of columns. Trials stand in the room above, so they are named by id here."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models


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
