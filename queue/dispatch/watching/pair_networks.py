"""The networks on which the hosts of a pool meet, by what was measured between their pairs. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from dispatch.watching.pair_verdict import speed
from hosts.models import PairCheck

_NAMED_HOSTS = 3


@dataclass(frozen=True)
class Network:
    """`interfaces`: host name -> its interface there. The rate is that of the slowest pair."""

    network: str
    interfaces: dict[str, str]
    pairs: int
    mb_per_second: float
    speed_mbit: int | None
    everywhere: bool

    @property
    def interface(self) -> str:
        """`eth1`, or `eth1, ens5` where hosts differ."""
        return ", ".join(sorted(set(self.interfaces.values())))

    @property
    def rate(self) -> str:
        return speed(self.mb_per_second)

    @property
    def link(self) -> str:
        """What the slowest interface there could do, where the drivers tell."""
        if self.speed_mbit is None:
            return ""
        return (
            f"{self.speed_mbit / 1000:g} Gbit/s" if self.speed_mbit >= 1000 else f"{self.speed_mbit} Mbit/s"
        )


def common(checks: Sequence[PairCheck]) -> list[Network]:
    """Those on which all pairs that were tested meet come first, then the fastest."""
    rows = defaultdict(list)
    for check in checks:
        for row in check.networks:
            rows[row["network"]].append(row)
    found = [
        Network(
            network,
            {name: interface for row in there for name, interface in row["interfaces"].items()},
            len(there),
            min(row["mb_per_second"] for row in there),
            min((row["speed_mbit"] for row in there if row["speed_mbit"]), default=None),
            len(there) == len(checks),
        )
        for network, there in rows.items()
    ]
    return sorted(found, key=lambda one: (not one.everywhere, -one.mb_per_second, -(one.speed_mbit or 0)))


def advice(networks: Sequence[Network], pool: str, interface: str) -> str:
    """What a person should know and do about them, in at most three sentences; empty where nothing was measured.

    `interface`: what the pool names for its gangs now.
    """
    if not networks:
        return ""
    best, *others = networks
    if not best.everywhere:
        return f"No network connects all pairs of pool {pool}; the fastest, {best.network}, connects {best.pairs}."
    names = sorted(best.interfaces)
    who = " and ".join(names) if len(names) < _NAMED_HOSTS else f"All {len(names)} hosts"
    slower = "".join(f"; on {one.network} ({one.interface}) {one.rate}" for one in others if one.everywhere)
    said = f"{who} connect over {best.network} ({best.interface}, {best.rate}){slower}."
    if len(set(best.interfaces.values())) > 1:
        return (
            f"{said} Its interfaces have different names: gangs use it only if the gang addresses are on it."
        )
    if interface == best.interface or not others:
        return said
    return f"{said} To use it for gangs, run `trainmaster pool edit {pool} --network-interface {best.interface}`."
