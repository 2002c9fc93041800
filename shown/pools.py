"""Pools as they are shown: in numbers, with their hosts, and with what is known of the pairs of these."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from django.db.models import Count, Prefetch, Q

from accounts.models import User
from dispatch.passes import last_plan
from dispatch.watching import pair_verdict
from dispatch.watching.pair_verdict import Network
from hosts import pair_checks, pool_access, registry
from hosts.login_accounts import is_shared
from hosts.models import Host, PairCheck, PairSearch, ResourcePool
from hosts.pools import default_pool
from jobs.models import SlotHold
from jobs.shares import Entitled
from shown import clusters
from shown.clusters import Cluster
from shown.hosts import rows
from shown.hosts.rows import STATES, HostRow
from shown.queue import standing


def choices(user: User) -> list[ResourcePool]:
    """The pools that the user may use, with their hosts, for forms in which one chooses among them."""
    working = registry.present().exclude(transport=Host.Transport.LOGIN)
    hosts = Prefetch("hosts", working.order_by("name"))
    pools = ResourcePool.objects.order_by("name").prefetch_related(hosts)
    return [pool for pool in pools if pool_access.may_use(pool, user)]


@dataclass
class PoolNumbers:
    """One pool in numbers: jobs that are scheduled and queued, and slots.

    `used` counts slots that jobs hold, `outside` those that others use.
    """

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


@dataclass(frozen=True)
class PoolRow:
    """One pool with its hosts, and how many of its jobs are scheduled and queued.

    `cluster`: that of a Slurm pool, whose login node is not among the hosts.
    """

    pool: ResourcePool
    hosts: list[HostRow]
    scheduled: int
    queued: int
    cluster: Cluster | None = None

    @property
    def badges(self) -> list[str]:
        named = {
            "Slurm": self.pool.slurm,
            "default compute": self.pool.default_compute,
            "default aux": self.pool.default_aux,
            "shared account": self.is_shared,
            "login account": self.pool.allow_login_account,
            "strict": self.pool.strict,
        }
        return [name for name, wears in named.items() if wears]

    @property
    def is_shared(self) -> bool:
        """Whether all its jobs run under one account."""
        return is_shared(self.pool)

    @property
    def models(self) -> list[str]:
        return sorted({model for each in self.hosts for model in each.models})

    @property
    def ready(self) -> int:
        return sum(1 for each in self.hosts if each.is_ready)

    @property
    def not_ready(self) -> int:
        return len(self.hosts) - self.ready

    @cached_property
    def counts(self) -> Counter[str]:
        """Its slots by state."""
        return rows.totals(self.hosts)

    @property
    def slots(self) -> int:
        return self.counts.total()

    @property
    def held(self) -> int:
        return rows.held_of(self.counts)

    @property
    def percent(self) -> int:
        return round(100 * self.held / self.slots) if self.slots else 0

    @property
    def parts(self) -> list[tuple[str, str, int, float]]:
        """(state, its word, slots, per cent of all), without states that no slot is in."""
        return [
            (state, word, self.counts[state], round(100 * self.counts[state] / self.slots, 2))
            for state, word in STATES.items()
            if self.counts[state]
        ]

    @property
    def aux_held(self) -> int:
        return sum(len(each.without_slots) for each in self.hosts)

    @property
    def aux_capacity(self) -> int:
        """How many runs without slots it takes: only ready hosts take any."""
        return self.ready * self.pool.aux_per_host


@dataclass(frozen=True)
class PoolPairs:
    """What is known of the pairs: `names` are the ready hosts, `checks` has bad pairs first."""

    names: list[str]
    search: PairSearch | None
    checks: list[PairCheck]
    networks: list[Network]
    advice: str

    @property
    def testing(self) -> int | None:
        """The number of the first pair under test, from 1; None when nothing is tested."""
        search = self.search
        return min(search.done + 1, search.pairs) if search and search.ended_at is None else None


def every() -> list[ResourcePool]:
    """All pools, the default one first, without their plans, which are long."""
    pools = list(ResourcePool.objects.order_by("-default_compute", "name"))
    return pools or [default_pool()]


def of(pools: Iterable[ResourcePool]) -> list[PoolRow]:
    """The pools with their hosts as they are now."""
    pools = list(pools)
    jobs = standing.counts([pool.pk for pool in pools])
    hosts: dict[int, list[HostRow]] = defaultdict(list)
    logins: dict[int, HostRow] = {}
    for row in rows.of(rows.present().filter(pool__in=pools)):
        if row.host.transport == Host.Transport.LOGIN:
            logins[row.host.pool_id] = row
        else:
            hosts[row.host.pool_id].append(row)
    known = clusters.of_pools(pools, logins)
    return [
        PoolRow(pool, hosts[pool.pk], *jobs.get(pool.pk, (0, 0)), cluster=known.get(pool.pk))
        for pool in pools
    ]


def numbers(
    pools: Iterable[ResourcePool], jobs: Mapping[int, tuple[int, int]] | None = None
) -> dict[int, PoolNumbers]:
    """The pools by id. `jobs`: how many are scheduled and queued in a pool, where that is known already."""
    found = {pool.pk: PoolNumbers(pool) for pool in pools}
    known = dict(jobs or {})
    if others := found.keys() - known.keys():
        known |= standing.counts(others)
    for pool_id, (scheduled, queued) in known.items():
        found[pool_id].scheduled, found[pool_id].queued = scheduled, queued
    present = registry.present_slots().filter(host__pool__in=found).order_by().values("host__pool")
    counted = present.annotate(n=Count("pk"), others=Count("pk", filter=~Q(outside={})))
    for pool_id, slots, outside in counted.values_list("host__pool", "n", "others"):
        found[pool_id].slots, found[pool_id].outside = slots, outside
    holds = SlotHold.objects.filter(released_at=None, slot__host__pool__in=found).values("slot__host__pool")
    for pool_id, used in holds.annotate(n=Count("pk")).values_list("slot__host__pool", "n"):
        found[pool_id].used = used
    return found


def pairs(pool: ResourcePool) -> PoolPairs:
    checks = pair_checks.of_pool(pool)
    networks = pair_verdict.common(checks)
    return PoolPairs(
        names=list(pair_checks.ready(pool.pk).values_list("name", flat=True)),
        search=pair_checks.search_of(pool),
        checks=checks,
        networks=networks,
        advice=pair_verdict.advice(networks, pool.name, pool.network_interface),
    )


def entitled(pool: ResourcePool) -> Entitled:
    """As the last pass had it; None where jobs have no shares."""
    return last_plan.of(pool).shares if pool.policy.has_shares else None
