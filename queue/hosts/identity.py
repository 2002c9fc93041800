"""Which machine a host is, by what its probe found: one machine under two names would give each GPU twice.

A GPU's UUID is in its hardware, so two hosts that find the same one are refused: they are one machine, or two
containers that share the GPU. Boot id, machine id, namespaces and host name together tell the same machine without
GPUs; that is a warning only, since the number of CPU slots is a person's choice in any case. None of these is proof
alone: containers of one machine have its boot id, and copies of a virtual machine its machine id.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from hosts.models import Host

#: Two hosts that are admitted at once see each other's GPUs: whoever registers slots takes this advisory lock.
_LOCK_KEY = 7_301_114
_SHOWN = 2


@dataclass(frozen=True)
class Twin:
    """A host in use that is the same machine, and the UUIDs of the GPUs that both find."""

    id: uuid.UUID
    name: str
    registered_at: datetime
    gpus: tuple[str, ...]

    def refusal(self, name: str) -> str:
        """Why the host `name` is not used, and what to do."""
        more = f" and {len(self.gpus) - _SHOWN} more" if len(self.gpus) > _SHOWN else ""
        found = f"{', '.join(self.gpus[:_SHOWN])}{more}"
        return (
            f"{name} has the same GPUs as {self.name} ({found}), so both would assign them to jobs. Remove "
            f"{self.name} or {name}. If a GPU was moved here from {self.name}, run the doctor on {self.name} first."
        )

    def warning(self, name: str) -> str:
        """What is wrong with two names of one machine that has no GPUs."""
        return f"{name} is the same machine as {self.name}, so its cores would be slots of both. Remove one of them."


def lock() -> None:
    """Until the end of the transaction nobody else registers GPUs."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_KEY])


def same_gpus(host: Host) -> Twin | None:
    """The oldest other host in use that finds a GPU of this one."""
    mine = _Devices.of(host.facts.get("gpus"))
    if not mine.all:
        return None
    for pk, name, registered_at, gpus in _others(host, "facts__gpus"):
        if shared := mine.shared(_Devices.of(gpus)):
            return Twin(pk, name, registered_at, tuple(sorted(shared)))
    return None


def same_machine(host: Host) -> Twin | None:
    """The oldest other host in use that is the same running kernel, seen from the same namespaces."""
    mine = _signs(host.facts.get("boot_id"), host.facts.get("machine"), host.facts.get("hostname"))
    if mine is None:
        return None
    for pk, name, registered_at, *theirs in _others(
        host, "facts__boot_id", "facts__machine", "facts__hostname"
    ):
        if _signs(*theirs) == mine:
            return Twin(pk, name, registered_at, ())
    return None


def _others(host: Host, *fields: str) -> Iterator[tuple[Any, ...]]:
    in_use = [Host.Admission.READY, Host.Admission.SUSPENDED]
    without_slots = [Host.Transport.LOGIN, Host.Transport.SLURM]  # of their own, that are found there
    used = Host.objects.filter(admission__in=in_use).exclude(pk=host.pk).exclude(transport__in=without_slots)
    return used.order_by("registered_at").values_list("pk", "name", "registered_at", *fields).iterator()


def _signs(boot_id: object, machine: object, hostname: object) -> tuple[object, ...] | None:
    """None where a host has not said all of them: older bundles did not."""
    if not boot_id or not isinstance(machine, dict) or not machine.get("namespaces"):
        return None
    return boot_id, machine.get("id"), sorted(machine["namespaces"].items()), hostname


@dataclass(frozen=True)
class _Devices:
    """UUIDs of undivided GPUs, of divided ones, and of the instances of these (MIG), which containers may share out."""

    whole: frozenset[str]
    divided: frozenset[str]
    instances: frozenset[str]

    @classmethod
    def of(cls, gpus: object) -> _Devices:
        found = [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
        divided = [gpu for gpu in found if gpu.get("mig")]
        return cls(
            frozenset(str(gpu["uuid"]) for gpu in found if not gpu.get("mig")),
            frozenset(str(gpu["uuid"]) for gpu in divided),
            frozenset(str(instance["uuid"]) for gpu in divided for instance in gpu["mig"]),
        )

    @property
    def all(self) -> frozenset[str]:
        return self.whole | self.divided

    def shared(self, other: _Devices) -> frozenset[str]:
        whole = (self.whole & other.all) | (self.all & other.whole)
        return whole | (self.instances & other.instances)
