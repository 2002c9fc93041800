"""Ports leased per host to allocations, outside the ephemeral range, so that gangs on one host never meet."""

from __future__ import annotations

import uuid

from django.conf import settings

from hosts.models import Host
from jobs.models import Allocation, PortLease

#: what a gang needs on the host of its first member: rendezvous and collectives
NAMES = ("c10d", "comm")


class NoPortLeft(Exception):
    """Every port of the range is leased on this host."""


def lease(allocation: Allocation, host_id: uuid.UUID) -> dict[str, int]:
    """Free ports of the first member's host, one for each of NAMES.

    The search starts where the allocation's id points, so that a port left in TIME_WAIT is not the next one
    taken. Runs inside the assigning transaction; a race ends in the unique constraint and so in a stale plan.
    """
    first, last = settings.PORT_LEASE_FIRST, settings.PORT_LEASE_LAST
    size = last - first + 1
    # two hosts may be two accounts of one machine: what counts is the address
    same_machine = Host.objects.filter(address=Host.objects.get(pk=host_id).address)
    taken = set(PortLease.objects.filter(host__in=same_machine).values_list("port", flat=True))
    start = uuid.uuid5(uuid.NAMESPACE_OID, allocation.pk).int % size
    free = (first + (start + step) % size for step in range(size))
    chosen: list[int] = []
    for port in free:
        if port not in taken:
            chosen.append(port)
        if len(chosen) == len(NAMES):
            break
    else:
        raise NoPortLeft(
            f"All {size} ports from {first} to {last} are leased on this host; widen TRAINMASTER_PORT_LEASE_LAST."
        )
    PortLease.objects.bulk_create(
        PortLease(host_id=host_id, port=port, allocation=allocation) for port in chosen
    )
    return dict(zip(NAMES, chosen, strict=True))


def release(allocation: Allocation) -> None:
    PortLease.objects.filter(allocation=allocation).delete()
