"""The hosts that pools keep as spares, as the last pass chose them, in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dispatch.passes import last_plan
from hosts.models import Host, ResourcePool
from scheduling.reasons import listed, slots


@dataclass(frozen=True)
class SpareHost:
    """`free`: slots that work whose host fails gets at once; all of them once `runs` (labels) have ended."""

    host: str
    free: int
    runs: list[str]

    @property
    def is_free(self) -> bool:
        return not self.runs

    @property
    def sentence(self) -> str:
        if self.is_free:
            return "Kept as a spare: only work whose host failed, and burn-ins, run here."
        have = "has" if len(self.runs) == 1 else "have"
        free = f" Until then, work whose host failed gets {slots(self.free)} here." if self.free else ""
        return f"Becomes a spare once {listed(self.runs)} {have} ended; nothing else starts here.{free}"


def of_pool(pool: ResourcePool) -> dict[str, SpareHost]:
    """Host id -> the spare, in the order of their names."""
    if not pool.spare_hosts:
        return {}
    kept = last_plan.of(pool).spares
    return {
        host_id: SpareHost(each["name"], each["free"], each["runs"])
        for host_id, each in sorted(kept.items(), key=lambda item: item[1]["name"])
    }


def of_hosts(hosts: Iterable[Host]) -> dict[str, SpareHost]:
    """The same of all pools that these hosts are in."""
    pools = {host.pool_id: host.pool for host in hosts}
    return {host_id: spare for pool in pools.values() for host_id, spare in of_pool(pool).items()}


def free_by_pool() -> dict[str, int]:
    """Pool -> how many of its spares are free, of pools that keep some."""
    pools = ResourcePool.objects.filter(spare_hosts__gt=0)
    return {pool.name: sum(spare.is_free for spare in of_pool(pool).values()) for pool in pools}


def in_words(pool: ResourcePool) -> str:
    """How many the pool keeps, and which; empty for a pool that keeps none."""
    if not pool.spare_hosts:
        return ""
    spares = of_pool(pool).values()
    free = [spare.host for spare in spares if spare.is_free]
    text = f"{len(free)} of {pool.spare_hosts} spare host{'s' * (pool.spare_hosts != 1)} free"
    text += f": {listed(free, most=20)}." if free else "."
    for spare in spares:
        if not spare.is_free:
            have = "has" if len(spare.runs) == 1 else "have"
            text += f" {spare.host} becomes a spare once {listed(spare.runs)} {have} ended."
    return text
