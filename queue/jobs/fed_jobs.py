"""The rows of jobs that were handed to Slurm. `jobs.feeding` alone writes them."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from hosts.models import ResourcePool


class FedJob(models.Model):
    """A job in Slurm that waits there for nodes for a task, and then runs the attempt that it was made for.

    Until Slurm gives it nodes there is no attempt: its task waits as every other does, and may be edited, moved, paused
    and ended. So a row is a claim, which is taken back without anybody having run anything.
    """

    pool = models.ForeignKey(ResourcePool, on_delete=models.PROTECT, related_name="fed_jobs", db_index=False)
    task = models.ForeignKey("jobs.Task", on_delete=models.CASCADE, related_name="fed_jobs", db_index=False)
    #: id of the allocation that it becomes, which is part of its comment in Slurm
    attempt = models.CharField(max_length=112)
    nodes = models.PositiveIntegerField()
    allocation = models.OneToOneField(
        "jobs.Allocation", on_delete=models.CASCADE, null=True, related_name="fed_job"
    )
    made_at = models.DateTimeField(auto_now_add=True)
    #: the Unix account under which it was first submitted, and stays; empty: that of the login node
    unix_user = models.CharField(max_length=64, blank=True, default="")
    #: Slurm's id; empty: it was not submitted, or nobody knows whether it was
    job_id = models.CharField(max_length=32, blank=True)
    #: when sbatch was last called for it, how often it was, and when it may be again
    sent_at = models.DateTimeField(null=True)
    sends = models.PositiveIntegerField(default=0)
    send_after = models.DateTimeField(null=True)
    #: why the last submission failed, or its job ended before it had nodes, as a sentence
    error = models.TextField(blank=True)
    #: Slurm did not take it, or has ended it: it is not there, and takes no place of others until it is
    refused = models.BooleanField(default=False)
    #: as squeue last said, and sacct of one that squeue no longer lists: its state, why it waits, when Slurm expects to
    #: start it, how it ended
    state = models.CharField(max_length=32, blank=True)
    reason = models.CharField(max_length=255, blank=True)
    starts_at = models.DateTimeField(null=True)
    exit_code = models.PositiveSmallIntegerField(null=True)
    seen_at = models.DateTimeField(null=True)
    #: since when it has nodes in Slurm that are not free in our rows yet
    nodes_at = models.DateTimeField(null=True)
    #: since when it is to be taken out of Slurm, and why
    back_at = models.DateTimeField(null=True)
    back_why = models.TextField(blank=True)
    #: since when squeue says that it is over, which one answer does not prove; when nothing was left to do for it
    over_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["task"], condition=Q(ended_at=None), name="one_open_fed_job_per_task"
            )
        ]
        indexes = [
            models.Index(fields=["pool"], condition=Q(ended_at=None), name="open_fed_jobs"),
            models.Index(fields=["task"], name="fed_jobs_by_task"),
        ]
