"""How pools and groups stood, counted once a minute; `dispatch.keeping.pool_history` writes, thins and forgets it."""

from __future__ import annotations

from django.db import models

from accounts.models import Group
from hosts.models import ResourcePool


class PoolCount(models.Model):
    """How a pool stood in a minute, once it is old on average in ten."""

    pool = models.ForeignKey(ResourcePool, on_delete=models.CASCADE, related_name="+", db_index=False)
    #: when its span begins, and how long that is
    at = models.DateTimeField()
    seconds = models.PositiveIntegerField(default=60)
    #: of hosts that were not removed; that work could be placed on; that were held
    slots = models.FloatField()
    usable_slots = models.FloatField()
    used_slots = models.FloatField()
    #: tasks that waited, and the slots that they asked for
    waiting_tasks = models.FloatField()
    wanted_slots = models.FloatField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["at", "pool"], name="pool_counted_once_per_minute")]


class GroupCount(models.Model):
    """How a group stood in a pool that shares its slots among groups, in slots (`jobs.group_rows`); spans as above."""

    pool = models.ForeignKey(ResourcePool, on_delete=models.CASCADE, related_name="+", db_index=False)
    group = models.ForeignKey(Group, on_delete=models.CASCADE, related_name="+", db_index=False)
    at = models.DateTimeField()
    seconds = models.PositiveIntegerField(default=60)
    guaranteed = models.FloatField()
    held = models.FloatField()
    borrowed = models.FloatField()
    lent = models.FloatField()
    waiting = models.FloatField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["group", "pool", "at"], name="group_counted_once_per_minute")
        ]
        indexes = [models.Index(fields=["at"], name="group_counts_by_age")]
