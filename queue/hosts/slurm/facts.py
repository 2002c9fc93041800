"""What a cluster tells of itself, as a pool keeps it: its partition, its nodes, and who else computes there. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from hosts.slurm import sacct, texts
from hosts.slurm.scontrol import Node, Partition
from hosts.slurm.settings import SlurmSettings
from hosts.slurm.squeue import Job


class NotUsable(Exception):
    """The cluster has not what the pool's settings ask for; `str(error)` is a sentence."""


@dataclass(frozen=True)
class Held:
    """Slots of one node that a job of others holds."""

    user: str
    job: str
    slots: int


@dataclass(frozen=True)
class NodeFacts:
    """One node of the partition. `address`: where other nodes reach it."""

    name: str
    state: str
    takes_jobs: bool
    address: str
    cpus: int
    memory_mb: int
    gpus: dict[str, int]
    slots: int
    reason: str
    others: list[Held] = field(default_factory=list)


@dataclass(frozen=True)
class UserFacts:
    """What one user, whose jobs are not this pool's, has there. `slots` of jobs that run."""

    user: str
    running: int
    waiting: int
    slots: int


@dataclass(frozen=True)
class ClusterFacts:
    """All of it. `kill_wait_seconds`: between SIGTERM and SIGKILL, as Slurm has it."""

    version: str
    cluster: str
    has_accounting: bool
    partition: str
    partition_state: str
    max_seconds: int | None
    kill_wait_seconds: int | None
    nodes: list[NodeFacts]
    others: list[UserFacts]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Of `SlurmFacts.document`, which is not {}."""
        nodes = [
            NodeFacts(**{**node, "others": [Held(**held) for held in node["others"]]})
            for node in document["nodes"]
        ]
        return cls(
            **{**document, "nodes": nodes, "others": [UserFacts(**user) for user in document["others"]]}
        )

    @property
    def config(self) -> dict[str, str]:
        """The part of `scontrol show config` that it keeps, as `of_cluster` takes it."""
        return {
            "SLURM_VERSION": self.version,
            "ClusterName": self.cluster,
            "AccountingStorageType": "kept" if self.has_accounting else "",
            "KillWait": str(self.kill_wait_seconds or ""),
        }

    @property
    def document(self) -> dict[str, Any]:
        return asdict(self)


def chosen_partition(settings: SlurmSettings, partitions: Iterable[Partition]) -> Partition:
    """The pool's partition, or the cluster's default one. Raises NotUsable."""
    known = {row.name: row for row in partitions}
    if settings.partition in known:
        return known[settings.partition]
    names = ", ".join(sorted(known)) or "none"
    if settings.partition:
        raise NotUsable(f"The cluster has no partition {settings.partition!r}; it has: {names}.")
    default = next((row for row in known.values() if row.is_default), None)
    if default is None:
        raise NotUsable(f"The cluster has no default partition. Give one of: {names}.")
    return default


def of_cluster(
    settings: SlurmSettings,
    config: Mapping[str, str],
    partition: Partition,
    nodes: Iterable[Node],
    jobs: Iterable[Job],
    is_ours: Callable[[Job], bool],
) -> ClusterFacts:
    """The facts of a pool. `is_ours`: whether a job is one of this pool's. Raises NotUsable."""
    listed = set(partition.nodes)
    inside = [node for node in nodes if partition.name in node.partitions or node.name in listed]
    if not inside:
        raise NotUsable(f"Partition {partition.name!r} has no nodes.")
    sizes = {node.name: slots_of(settings, node) for node in inside}
    if not any(sizes.values()):
        wanted = f"GPUs of type {settings.gpu_type!r}" if settings.gpu_type else "GPUs"
        raise NotUsable(
            f"No node of partition {partition.name!r} has {wanted}. "
            "For slots of CPUs give slot_type=cpu, else correct gpu_type or slots_per_node."
        )
    jobs = list(jobs)
    held, users = _others(settings, partition.name, inside, sizes, jobs, is_ours)
    return ClusterFacts(
        version=config.get("SLURM_VERSION", ""),
        cluster=config.get("ClusterName", ""),
        has_accounting=sacct.is_kept(dict(config)),
        partition=partition.name,
        partition_state=partition.state,
        max_seconds=partition.max_seconds,
        kill_wait_seconds=texts.whole(config.get("KillWait", "").split(" ")[0]),
        nodes=[
            NodeFacts(
                node.name, str(node.state), node.state.takes_jobs, node.address, node.cpus, node.memory_mb, node.gpus,
                sizes[node.name], node.reason, held.get(node.name, []),
            )
            for node in inside
        ],
        others=users,
    )  # fmt: skip


def slots_of(settings: SlurmSettings, node: Node) -> int:
    """How many slots a node has for the pool."""
    if not settings.is_gpu:
        return settings.slots_per_node or node.cpus
    return settings.slots_per_node or _of_type(settings, node.gpus)


def _of_type(settings: SlurmSettings, gpus: Mapping[str, int]) -> int:
    """GPUs of the pool's type; where Slurm names no type, all count."""
    if not settings.gpu_type or set(gpus) <= {""}:
        return sum(gpus.values())
    return gpus.get(settings.gpu_type, 0)


def _others(
    settings: SlurmSettings,
    partition: str,
    nodes: list[Node],
    sizes: Mapping[str, int],
    jobs: list[Job],
    is_ours: Callable[[Job], bool],
) -> tuple[dict[str, list[Held]], list[UserFacts]]:
    """(node -> jobs of others that hold slots there, the users of these and of the waiting ones, most slots first)."""
    known = {node.name: node for node in nodes}
    on_node: dict[str, list[Job]] = defaultdict(list)
    running: dict[str, set[str]] = defaultdict(set)
    waiting: dict[str, int] = defaultdict(int)
    for job in jobs:
        if job.state == "PENDING":
            if partition in job.partition.split(",") and not is_ours(job):
                waiting[job.user] += job.elements
        elif job.nodelist:
            for name in texts.nodes(job.nodelist):
                if name in known:
                    on_node[name].append(job)
    held: dict[str, list[Held]] = {}
    slots: dict[str, int] = defaultdict(int)
    for name, here in on_node.items():
        found = _held(settings, known[name], sizes[name], here, is_ours)
        for job in here:
            if not is_ours(job):
                running[job.user].add(job.id)
        for each in found:
            slots[each.user] += each.slots
        held[name] = found
    users = [
        UserFacts(user, len(running[user]), waiting[user], slots[user])
        for user in sorted({*running, *waiting} - {""})
    ]
    return held, sorted(users, key=lambda user: (-user.slots, -user.running, -user.waiting))


def _held(
    settings: SlurmSettings, node: Node, size: int, jobs: list[Job], is_ours: Callable[[Job], bool]
) -> list[Held]:
    """The slots that jobs of others hold on one node, at most as many as it has.

    A job that asked for GPUs by job or by task lists none by node; it gets what the node has in use beyond the others.
    """
    shares = [(job, _share(settings, node, size, job)) for job in jobs]
    in_use = _of_type(settings, node.gpus_used) if settings.is_gpu else 0
    rest = in_use - sum(share for _, share in shares)
    found: list[Held] = []
    left = size
    for job, share in shares:
        if not share and rest > 0 and settings.is_gpu:
            share, rest = rest, 0
        if share and not is_ours(job):
            found.append(Held(job.user, job.id, min(share, left)))
        left = max(0, left - share)
    return [each for each in found if each.slots > 0]


def _share(settings: SlurmSettings, node: Node, size: int, job: Job) -> int:
    """Slots of the node that the job asked for by node; for CPUs, a part of a slot counts as one."""
    if settings.is_gpu:
        asked = texts.gpus(job.gres)
        if settings.gpu_type and settings.gpu_type not in asked and set(asked) - {""}:
            return 0
        return sum(asked.values())
    return math.ceil(job.cpus / max(1, job.nodes) * size / max(1, node.cpus))
