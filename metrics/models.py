"""Training metrics as reported. Trials stand in the room above, so they are named by id here."""

from __future__ import annotations

from django.db import models


class Report(models.Model):
    """One report of a group of metrics at a step. Reports of one step merge (features.md 8.4)."""

    trial_id = models.BigIntegerField()
    run_id = models.PositiveIntegerField()
    group = models.CharField(max_length=128)  # "training", "validation" or a name of the user's
    steps_completed = models.BigIntegerField()
    reported_at = models.DateTimeField()
    #: name -> number, or "NaN", "Infinity", "-Infinity", or text
    values = models.JSONField()
    #: a restart went back behind this step
    archived = models.BooleanField(default=False)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["trial_id", "group", "steps_completed"],
                condition=models.Q(archived=False),
                name="one_live_report_per_step",
            )
        ]
        indexes = [models.Index(fields=["trial_id", "group", "steps_completed"])]
