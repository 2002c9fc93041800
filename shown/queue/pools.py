"""The pool switch: how many jobs are scheduled and queued in each pool, and how many of its slots are in use."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, Q

from hosts import registry
from hosts.models import ResourcePool, Slot
from hosts.pools import default_pool
from jobs.models import SlotHold
from shown.queue import standing

#: more pools than this are a list that can be searched
MOST_PILLS = 6


@dataclass
class Pool:
    """One pool of the switch. `used` counts slots that jobs hold, `outside` those that others use."""

    pool: ResourcePool
    scheduled: int = 0
    queued: int = 0
    used: int = 0
    outside: int = 0
    slots: int = 0

    @property
    def jobs(self) -> int:
        return self.scheduled + self.queued

    @property
    def busy(self) -> int:
        return self.used + self.outside


def every() -> list[ResourcePool]:
    """All pools, the default one first, without their plans, which are long."""
    pools = list(ResourcePool.objects.order_by("-default_compute", "name"))
    return pools or [default_pool()]


def switch(pools: list[ResourcePool], chosen: ResourcePool, counts: dict[str, int]) -> list[Pool]:
    """The pools with their numbers; those of the chosen one's jobs are `counts` of its listing."""
    found = {pool.pk: Pool(pool) for pool in pools}
    if others := found.keys() - {chosen.pk}:
        for pool_id, (scheduled, queued) in standing.counts(others).items():
            found[pool_id].scheduled, found[pool_id].queued = scheduled, queued
    found[chosen.pk].scheduled = counts.get("scheduled", 0)
    found[chosen.pk].queued = counts.get("queued", 0)
    _count_slots(found)
    return list(found.values())


def _count_slots(found: dict[int, Pool]) -> None:
    present = Slot.objects.filter(host__in=registry.present(), missing=False).order_by()
    counted = present.values("host__pool").annotate(n=Count("pk"), others=Count("pk", filter=~Q(outside={})))
    for pool_id, slots, others in counted.values_list("host__pool", "n", "others"):
        if pool_id in found:
            found[pool_id].slots, found[pool_id].outside = slots, others
    holds = SlotHold.objects.filter(released_at=None).values("slot__host__pool").annotate(n=Count("pk"))
    for pool_id, used in holds.values_list("slot__host__pool", "n"):
        if pool_id in found:
            found[pool_id].used = used
