"""Ports leased per host to allocations, outside the ephemeral range, so that gangs on one host never meet."""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Collection, Sequence

from django.conf import settings

from hosts.models import Host
from jobs.models import PortLease

log = logging.getLogger(__name__)

#: what a gang needs on the host of its first member: rendezvous and collectives
NAMES = ("c10d", "comm")
#: the last of the range are never leased: on them the doctor lets hosts meet
FOR_MEETINGS = 9


def choose(wanted: Sequence[tuple[str, uuid.UUID]]) -> dict[str, dict[str, int]]:
    """Free ports of each allocation's first host, one for each of NAMES, by allocation.

    An allocation whose host has none left is not in the answer, and the log says so. Runs inside the assigning
    transaction; a race ends in the unique constraint and so in a stale plan.
    """
    addresses = dict(Host.objects.filter(pk__in={host for _, host in wanted}).values_list("pk", "address"))
    taken = _taken(set(addresses.values()))
    leased = {}
    for allocation_id, host_id in wanted:
        used = taken[addresses[host_id]]
        chosen = _free(allocation_id, used)
        if len(chosen) < len(NAMES):
            log.warning("%s: all ports are leased; raise TRAINMASTER_PORT_LEASE_LAST", allocation_id)
            continue
        used.update(chosen)
        leased[allocation_id] = dict(zip(NAMES, chosen, strict=True))
    return leased


def _taken(addresses: Collection[str]) -> dict[str, set[int]]:
    """By address, not by host: two hosts may be two accounts of one machine."""
    taken: dict[str, set[int]] = defaultdict(set)
    rows = PortLease.objects.filter(host__address__in=addresses).values_list("host__address", "port")
    for address, port in rows:
        taken[address].add(port)
    return taken


def for_meetings() -> range:
    """The ports of the range on which hosts try each other out."""
    last: int = settings.PORT_LEASE_LAST
    return range(last - FOR_MEETINGS + 1, last + 1)


def _free(allocation_id: str, used: Collection[int]) -> list[int]:
    """The search starts where the id points, so that a port left in TIME_WAIT is not the next one taken.

    Attempts of one task follow each other: the next one starts beyond the ports that the last may have found in use.
    """
    first: int = settings.PORT_LEASE_FIRST
    size = for_meetings().start - first
    task_id, _, number = allocation_id.rpartition(".")
    start = (uuid.uuid5(uuid.NAMESPACE_OID, task_id).int + int(number) * len(NAMES)) % size
    chosen: list[int] = []
    for step in range(size):
        port = first + (start + step) % size
        if port not in used:
            chosen.append(port)
        if len(chosen) == len(NAMES):
            break
    return chosen
