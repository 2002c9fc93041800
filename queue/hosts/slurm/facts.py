"""What a cluster tells of itself, as a pool keeps it: its partition, its nodes, and who else computes there. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self, TypeVar

from accounts.refusals import Refusal
from hosts.slurm import holding, sacct, scontrol, texts
from hosts.slurm.holding import Held, UserFacts
from hosts.slurm.scontrol import Node, Partition
from hosts.slurm.settings import SLOTS_MOST, SlurmSettings
from hosts.slurm.squeue import Job

__all__ = ["ClusterFacts", "Held", "NodeFacts", "UserFacts", "chosen_partition", "of_cluster"]

_OLDEST = (20, 11)
#: a name in Slurm that leaves room for the pool's in that of the host
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_ADDRESS = re.compile(r"[A-Za-z0-9._:%-]{1,255}")
_SHOWN = 3
_NAME_SHOWN = 80
Row = TypeVar("Row")


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
class ClusterFacts:
    """All of it. `kill_wait_seconds`: between SIGTERM and SIGKILL, as Slurm has it. `config_at`: when its configuration
    was read, in seconds since 1970, which is not asked for each time. `left_out`: nodes that cannot be hosts here.
    """

    version: str
    cluster: str
    has_accounting: bool
    partition: str
    partition_state: str
    max_seconds: int | None
    kill_wait_seconds: int | None
    nodes: list[NodeFacts]
    others: list[UserFacts]
    config_at: float = 0.0
    node_versions: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self | None:
        """Of `SlurmFacts.document`; None if it is {}, or another version of the server wrote it and it lacks a field:
        the next reading makes it good."""
        try:
            nodes = [
                _row(NodeFacts, {**node, "others": [_row(Held, held) for held in node["others"]]})
                for node in document["nodes"]
            ]
            users = [_row(UserFacts, user) for user in document["others"]]
            return _row(cls, {**document, "nodes": nodes, "others": users})
        except (KeyError, TypeError):
            return None

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

    @property
    def remark(self) -> str:
        """What is wrong although the cluster can be used, as a sentence; empty: nothing."""
        if not self.left_out:
            return ""
        shown = ", ".join(map(repr, self.left_out[:_SHOWN])) + (" …" if len(self.left_out) > _SHOWN else "")
        count = "1 node is" if len(self.left_out) == 1 else f"{len(self.left_out)} nodes are"
        return (
            f"{count} not used, because of the name: {shown}. "
            "Allowed: at most 63 letters, digits and . _ -, no leading sign."
        )


def _row(kind: type[Row], given: Mapping[str, Any]) -> Row:
    """Without fields that this version does not know. Raises TypeError if one is lacking."""
    return kind(**{each.name: given[each.name] for each in fields(kind) if each.name in given})  # type: ignore[arg-type]


def refuse_old(config: Mapping[str, str]) -> None:
    """Raises Refusal for a Slurm of which nobody knows whether it answers as it should."""
    version = config.get("SLURM_VERSION", "")
    if (0, 0) < scontrol.version(version) < _OLDEST:
        raise Refusal(f"The cluster has Slurm {version}. Use one with Slurm 20.11 or later.")


def refuse_hidden_jobs(config: Mapping[str, str], account: str) -> None:
    """Raises Refusal if Slurm would not show the jobs of others to the account of the login node."""
    private = {each.strip().lower() for each in config.get("PrivateData", "").split(",")}
    seen_by = {"root", config.get("SlurmUser", "").partition("(")[0]}
    if "jobs" in private and account not in seen_by:
        raise Refusal(
            f"accounts=own: Slurm hides the jobs of others from {account} (PrivateData has jobs), so the server would "
            "not know of its own. Log in as root or as Slurm's user, have jobs taken out of PrivateData, or use "
            "accounts=one."
        )


def chosen_partition(settings: SlurmSettings, partitions: Iterable[Partition]) -> Partition:
    """The pool's partition, or the cluster's default one. Raises Refusal."""
    known = {row.name: row for row in partitions}
    if settings.partition in known:
        return known[settings.partition]
    names = ", ".join(sorted(known)) or "none"
    if settings.partition:
        raise Refusal(f"The cluster has no partition {settings.partition!r}; it has: {names}.")
    default = next((row for row in known.values() if row.is_default), None)
    if default is None:
        raise Refusal(f"The cluster has no default partition. Give one of: {names}.")
    return default


def of_cluster(
    settings: SlurmSettings,
    config: Mapping[str, str],
    partition: Partition,
    nodes: Iterable[Node],
    jobs: Iterable[Job],
    is_ours: Callable[[Job], bool],
    config_at: float = 0.0,
) -> ClusterFacts:
    """The facts of a pool. `is_ours`: whether a job is one of this pool's. Raises Refusal."""
    refuse_old(config)
    nodes = list(nodes)
    listed = set(partition.nodes)
    found = [node for node in nodes if partition.name in node.partitions or node.name in listed]
    inside = list({node.name: node for node in found if _NODE.fullmatch(node.name)}.values())
    if not inside:
        raise Refusal(f"Partition {partition.name!r} has no nodes.")
    if len(inside) > texts.NODES_MOST:
        raise Refusal(
            f"Partition {partition.name!r} has {len(inside):,} nodes; a pool takes at most {texts.NODES_MOST:,}. "
            "Choose a smaller partition."
        )
    sizes = {node.name: slots_of(settings, node) for node in inside}
    if not any(sizes.values()):
        wanted = f"GPUs of type {settings.gpu_type!r}" if settings.gpu_type else "GPUs"
        raise Refusal(
            f"No node of partition {partition.name!r} has {wanted}. "
            "For slots of CPUs give slot_type=cpu, else correct gpu_type or slots_per_node."
        )
    held, users = holding.others(settings, partition.name, inside, sizes, jobs, is_ours)
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
                node.name, str(node.state), node.state.takes(with_reservation=settings.has_reservation),
                node.address if _ADDRESS.fullmatch(node.address) else "", node.cpus, node.memory_mb, node.gpus,
                sizes[node.name], node.reason, held.get(node.name, []),
            )
            for node in inside
        ],
        others=users,
        config_at=config_at,
        node_versions=versions(nodes),
        left_out=sorted({node.name[:_NAME_SHOWN] for node in found if not _NODE.fullmatch(node.name)}),
    )  # fmt: skip


def versions(nodes: Iterable[Node]) -> list[str]:
    """Of Slurm on the nodes: with another one, the cluster's configuration is read again."""
    return sorted({node.version for node in nodes})


def slots_of(settings: SlurmSettings, node: Node) -> int:
    """How many slots a node has for the pool: never more than it has GPUs."""
    if not settings.is_gpu:
        return min(settings.slots_per_node or node.cpus, SLOTS_MOST)
    return min(holding.of_type(settings, node.gpus), settings.slots_per_node or SLOTS_MOST)
