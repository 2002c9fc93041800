"""The Slurm cluster of a pool as it is shown: what it said last and how long ago, and how its login node is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from hosts.models import ResourcePool, SlurmFacts
from hosts.slurm.facts import ClusterFacts, UserFacts
from hosts.slurm.settings import SlurmSettings
from shown.hosts.rows import HostRow

#: users of others' jobs in the table; the rest are summed up
MOST_USERS = 20


@dataclass(frozen=True)
class Cluster:
    """One cluster. `facts`: None until it was read; `error`: why the last reading failed, empty if it did not."""

    settings: SlurmSettings
    login: HostRow | None
    facts: ClusterFacts | None
    read_at: datetime | None
    error: str
    #: other pools with the same partition: its slots are counted in each of them
    shared_with: list[str]

    @property
    def why_not(self) -> str:
        """Why it is of no use now, as a sentence; empty if nothing is known to be wrong."""
        if self.login and not self.login.is_ready:
            return self.login.host.why_not_used or self.login.host.contact_error
        return self.error

    @cached_property
    def states(self) -> list[tuple[str, int]]:
        """State in Slurm -> nodes, most first."""
        return Counter(node.state for node in self.facts.nodes).most_common() if self.facts else []

    @cached_property
    def usable(self) -> int:
        """Nodes on which Slurm starts jobs."""
        return sum(node.takes_jobs for node in self.facts.nodes) if self.facts else 0

    @cached_property
    def gpus(self) -> list[tuple[str, int]]:
        """Type -> GPUs of all nodes; "GPU" where Slurm names no type."""
        found: Counter[str] = Counter()
        for node in self.facts.nodes if self.facts else ():
            for kind, number in node.gpus.items():
                found[kind or "GPU"] += number
        return sorted(found.items())

    @property
    def users(self) -> list[UserFacts]:
        return self.facts.others[:MOST_USERS] if self.facts else []

    @property
    def more_users(self) -> int:
        return max(0, len(self.facts.others) - MOST_USERS) if self.facts else 0

    @property
    def foreign_slots(self) -> int:
        """Slots that jobs of others hold."""
        return sum(user.slots for user in self.facts.others) if self.facts else 0


def of_pools(pools: Iterable[ResourcePool], logins: dict[int, HostRow]) -> dict[int, Cluster]:
    """The clusters by the id of their pool; `logins`: the rows of the login nodes, by pool too."""
    slurm = {pool.pk: pool for pool in pools if pool.slurm}
    if not slurm:
        return {}
    kept = {row.pool_id: row for row in SlurmFacts.objects.filter(pool__in=slurm)}
    same: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    found = SlurmFacts.objects.order_by("pool__name").filter(pool__removed=False, read_at__isnull=False)
    for pk, name, *place in found.values_list(
        "pool_id", "pool__name", "document__cluster", "document__partition"
    ):
        same[place[0], place[1]][pk] = name
    sharing = {
        pk: [name for other, name in pools.items() if other != pk] for pools in same.values() for pk in pools
    }
    return {
        pk: _cluster(pool, kept.get(pk), logins.get(pk), sharing.get(pk, [])) for pk, pool in slurm.items()
    }


def _cluster(
    pool: ResourcePool, kept: SlurmFacts | None, login: HostRow | None, shared_with: list[str]
) -> Cluster:
    facts = ClusterFacts.of(kept.document) if kept else None
    read_at, error = (kept.read_at, kept.error) if kept else (None, "")
    return Cluster(SlurmSettings.of(pool.slurm), login, facts, read_at, error, shared_with)
