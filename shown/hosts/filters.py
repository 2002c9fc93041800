"""Which hosts the page of all hosts shows: the filters, and the hosts that fit by pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shown.hosts.rows import HostRow

#: the filters beside "all", each with what it lets through
KINDS: dict[str, Callable[[HostRow], bool]] = {
    "silent": lambda row: row.state == "silent",
    "draining": lambda row: row.state == "draining" or any(each.slot.draining for each in row.slots),
    "quarantined": lambda row: bool(row.host.quarantine) or any(each.slot.quarantine for each in row.slots),
    "disabled": lambda row: row.state == "disabled" or any(not each.slot.enabled for each in row.slots),
    "outsiders": lambda row: row.outsiders,
    "free": lambda row: row.counts["free"] > 0,
    "not ready": lambda row: not row.is_ready,
}


def matches(row: HostRow, asked: Mapping[str, str]) -> bool:
    """Whether the filters other than that by kind let the host through."""
    model, pool, text = (asked.get(name, "") for name in ("model", "pool", "q"))
    return (
        (not model or model in row.models)
        and (not pool or pool == row.host.pool.name)
        and (text.lower() in row.host.name.lower() or text.lower() in row.host.address.lower())
    )


def by_pool(rows: list[HostRow]) -> list[tuple[str, list[HostRow], int, int]]:
    """(pool, its hosts, slots held, slots) by the pool's name."""
    found: dict[str, list[HostRow]] = {}
    for each in rows:
        found.setdefault(each.host.pool.name, []).append(each)
    return [
        (name, hosts, sum(each.held for each in hosts), sum(len(each.slots) for each in hosts))
        for name, hosts in sorted(found.items())
    ]
