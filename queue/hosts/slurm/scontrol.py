"""Reads `scontrol show config`, `show partition` and `show node`, the latter two by `--oneliner`. Pure.

What a version leaves out is read as absent; fields that it adds are ignored. Text that people write (the reason of a
drain) comes last in a record and may look like fields: it ends where the next field that Slurm prints begins, and of
two fields of one name the first counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from hosts.slurm import texts

CONFIG = ("scontrol", "show", "config")
PARTITION = ("scontrol", "--oneliner", "--all", "show", "partition")
#: -d: with GresUsed, which says what AllocTRES lacks where Slurm does no accounting of GPUs
NODE = ("scontrol", "--oneliner", "--all", "-d", "show", "node")

_FIELD = re.compile(r"(?:^|(?<=\s))([A-Za-z][A-Za-z_:]*)=")
#: what people have written about a node, and what may follow it
_REASON = re.compile(r"\sReason=(.*?)(?=\s+(?:Comment|Extra|ReservationName|InstanceId|InstanceType)=|$)")
#: what is appended to a state (`DOWN*`), and the flag that says the same (`DOWN+NOT_RESPONDING`)
_MARKS = {
    "*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "!": "POWER_DOWN", "%": "POWERING_DOWN",
    "$": "MAINTENANCE", "@": "REBOOT_REQUESTED", "^": "REBOOT_ISSUED", "-": "PLANNED",
}  # fmt: skip
#: the names that versions before 21.08 have for the same
_FORMER_FLAGS = {"MAINT": "MAINTENANCE", "POWER": "POWERED_DOWN", "REBOOT": "REBOOT_REQUESTED"}
_BASES = {"IDLE", "ALLOCATED", "MIXED", "DOWN", "ERROR", "FUTURE", "UNKNOWN"}
_REASON_MOST = 500
#: states as one word that older versions print instead of a base and a flag
_WORDS = {"DRAINED": ("IDLE", "DRAIN"), "DRAINING": ("ALLOCATED", "DRAIN"), "FAILING": ("ALLOCATED", "FAIL")}
_UNUSABLE = {
    "DRAIN", "FAIL", "NOT_RESPONDING", "MAINTENANCE", "INVALID_REG", "INVAL", "REBOOT_REQUESTED", "REBOOT_ISSUED",
    "POWERING_DOWN", "POWER_DOWN", "RESERVED",
}  # fmt: skip
#: of these, what a job that names the reservation may use
_OF_RESERVATIONS = {"MAINTENANCE", "RESERVED"}


@dataclass(frozen=True)
class NodeState:
    """`base` is one of IDLE, ALLOCATED, MIXED, DOWN, ERROR, FUTURE, UNKNOWN; flags as of 21.08 and later."""

    base: str
    flags: frozenset[str] = frozenset()

    @property
    def takes_jobs(self) -> bool:
        """Whether Slurm may start something there, now or once it has switched the node on."""
        return self.takes()

    def takes(self, *, with_reservation: bool = False) -> bool:
        """The same of jobs that name a reservation, of which the flags do not say which it is."""
        against = _UNUSABLE - _OF_RESERVATIONS if with_reservation else _UNUSABLE
        return self.base in {"IDLE", "ALLOCATED", "MIXED"} and not self.flags & against

    def __str__(self) -> str:
        return "+".join([self.base, *sorted(self.flags)])


@dataclass(frozen=True)
class Node:
    """One node. GPUs by type; the type is empty where Slurm names none. Memory in MiB."""

    name: str
    state: NodeState
    address: str = ""
    cpus: int = 0
    cpus_used: int = 0
    memory_mb: int = 0
    gpus: dict[str, int] = field(default_factory=dict)
    gpus_used: dict[str, int] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()
    features: str = ""
    version: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Partition:
    """One partition. An empty list of those allowed means everybody."""

    name: str
    is_default: bool = False
    state: str = ""
    nodes: tuple[str, ...] = ()
    max_seconds: int | None = None
    max_nodes: int | None = None
    preempt_mode: str = ""
    allow_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] = ()
    allow_groups: tuple[str, ...] = ()

    @property
    def takes_jobs(self) -> bool:
        return self.state == "UP"


def config(text: str) -> dict[str, str]:
    """Name -> value of `scontrol show config`."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, rest = line.partition(" = ")
        if equals and name.strip():
            found.setdefault(name.strip(), texts.value(rest))
    return found


def version(text: str) -> tuple[int, int]:
    """(22, 5) of `22.05.8`, of `slurm 23.11.4` and of `slurm-wlm 22.05.8`; (0, 0) without one."""
    found = re.search(r"(\d{1,9})\.(\d{1,9})", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def partitions(text: str) -> list[Partition]:
    return [
        Partition(
            name=row["PartitionName"],
            is_default=row.get("Default") == "YES",
            state=row.get("State", ""),
            nodes=tuple(texts.nodes(row.get("Nodes", ""))),
            max_seconds=texts.seconds(row.get("MaxTime", "")),
            max_nodes=texts.whole(row.get("MaxNodes", "")),
            preempt_mode=row.get("PreemptMode", ""),
            allow_accounts=_allowed(row.get("AllowAccounts", "")),
            allow_qos=_allowed(row.get("AllowQos", "")),
            allow_groups=_allowed(row.get("AllowGroups", "")),
        )
        for row in _records(text, "PartitionName")
    ]


def nodes(text: str) -> list[Node]:
    return [_node(row) for row in _records(text, "NodeName")]


def node_state(text: str) -> NodeState:
    """Of `IDLE+DRAIN`, `ALLOCATED*`, `idle~`, `DOWN*+DRAIN`."""
    base, flags = "UNKNOWN", set()
    for number, part in enumerate(text.upper().split("+")):
        word = part.rstrip("".join(_MARKS))
        flags |= {_MARKS[mark] for mark in part[len(word) :]}
        if not word:
            continue
        if word in _WORDS:
            base, flag = _WORDS[word]
            flags.add(flag)
        elif number == 0 and word in _BASES:
            base = word
        else:
            flags.add(_FORMER_FLAGS.get(word, word))
    return NodeState(base, frozenset(flags))


def _node(row: dict[str, str]) -> Node:
    gpus = texts.gpus(row.get("Gres", "")) or texts.gpus(row.get("CfgTRES", ""))
    return Node(
        name=row["NodeName"],
        state=node_state(row.get("State", "")),
        address=row.get("NodeAddr", "") or row.get("NodeHostName", ""),
        cpus=texts.whole(row.get("CPUEfctv", "")) or texts.whole(row.get("CPUTot", "")) or 0,
        cpus_used=texts.whole(row.get("CPUAlloc", "")) or 0,
        memory_mb=texts.whole(row.get("RealMemory", "")) or 0,
        gpus={kind: number for kind, number in gpus.items() if number},
        gpus_used=texts.gpus(row.get("GresUsed", "")) or texts.gpus(row.get("AllocTRES", "")),
        partitions=tuple(filter(None, row.get("Partitions", "").split(","))),
        features=row.get("ActiveFeatures", ""),
        version=row.get("Version", ""),
        reason=row.get("Reason", "")[:_REASON_MOST],
    )


def _allowed(text: str) -> tuple[str, ...]:
    return () if text in {"", "ALL"} else tuple(text.split(","))


def _records(text: str, first: str) -> Iterator[dict[str, str]]:
    """The records of --oneliner, each as name -> value; a line that does not begin with `first` is not one."""
    for line in text.splitlines():
        if not line.startswith(f"{first}="):
            continue
        found: dict[str, str] = {}
        if said := _REASON.search(line):
            found["Reason"] = texts.value(said[1])
            line = line[: said.start()] + line[said.end() :]
        places = list(_FIELD.finditer(line))
        for here, after in zip(places, [*places[1:], None], strict=True):
            found.setdefault(here[1], texts.value(line[here.end() : after.start() if after else None]))
        if found.get(first):
            yield found
