"""The doctor's judgment about a pair: what both hosts have measured in, what PairCheck stores out. Pure.

A gang dials the peer address of whichever host has its first member, and its ranks dial each other in both
directions. So a pair is good if each host reaches the other's peer address and, where the pool names an interface,
both reach each other on that one too. From what was measured between all pairs of a pool follows on which networks its
hosts meet.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hosts.models import PairCheck
from hosts.pair_checks import PairFound

Json = dict[str, Any]

_NAMED_HOSTS = 3


@dataclass(frozen=True)
class Side:
    """One host of the pair: its peer address, and the answers of the verb `meet` there."""

    name: str
    address: str
    interfaces: Sequence[Json]
    reached: Sequence[Json] = ()

    def way_to(self, address: str) -> Json:
        """What was measured to an address of the other, which was not reached if nothing was."""
        missing = {"ok": False, "error": "it was not tested"}
        return next((row for row in self.reached if row["address"] == address), missing)

    def interface_at(self, address: str | None) -> str:
        return next((str(row["interface"]) for row in self.interfaces if row["address"] == address), "")


@dataclass(frozen=True)
class Link:
    """Over what an all-reduce goes: the address of rank 0, and the interface of each rank."""

    address: str
    interfaces: tuple[str, str]


def to_dial(here: Side, there: Side) -> list[str]:
    """The peer address first. An address that both have (a container bridge) leads from here to here."""
    own = {row["address"] for row in here.interfaces}
    others = [str(row["address"]) for row in there.interfaces if row["address"] not in own]
    return list(dict.fromkeys([there.address, *others]))


def networks(first: Side, second: Side) -> list[Json]:
    """Where they reach each other in both directions, as PairCheck has it, the fastest first."""
    found = []
    for one in first.interfaces:
        for other in second.interfaces:
            if _network(one) != _network(other):
                continue
            ways = first.way_to(other["address"]), second.way_to(one["address"])
            if all(way["ok"] for way in ways):
                found.append(
                    {
                        "network": _network(one),
                        "interfaces": {first.name: one["interface"], second.name: other["interface"]},
                        "addresses": {first.name: one["address"], second.name: other["address"]},
                        "mb_per_second": min(way["mb_per_second"] for way in ways),
                        "round_trip_ms": min(way["round_trip_ms"] for way in ways),
                        "speed_mbit": _slower(one["speed_mbit"], other["speed_mbit"]),
                    }
                )
    return sorted(found, key=lambda row: (-row["mb_per_second"], -(row["speed_mbit"] or 0)))


def _network(row: Json) -> str:
    return str(ipaddress.ip_network(f"{row['address']}/{row['prefix']}", strict=False))


def _slower(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else min(one, other)


def judge(first: Side, second: Side, interface: str) -> PairFound:
    """`interface`: the pool's network interface, or empty."""
    shared = networks(first, second)
    named = [row for row in shared if set(row["interfaces"].values()) == {interface}]
    faults = [
        f"{here.name} cannot reach {there.name} at {there.address}: {way['error']}"
        for here, there in ((first, second), (second, first))
        if not (way := here.way_to(there.address))["ok"]
    ]
    if not faults and interface and not named:
        faults.append(
            f"{first.name} and {second.name} cannot reach each other on {interface}, the pool's interface for gangs"
        )
    if faults:
        sentence = f"{'; '.join(faults)}.{_hint(shared)}"
        return PairFound(False, sentence, networks=_stored(shared))
    best = (named or shared or [_routed(first, second)])[0]
    return PairFound(
        True,
        f"They connect over {best['network']} ({interfaces_of(best)}): {best['round_trip_ms']:.2g} ms, "
        f"{speed(best['mb_per_second'])}.",
        interface=best["interfaces"][first.name],
        round_trip_ms=best["round_trip_ms"],
        mb_per_second=best["mb_per_second"],
        networks=_stored(shared),
    )


def _hint(shared: list[Json]) -> str:
    if not shared:
        return ""
    best = shared[0]
    where = " and ".join(best["addresses"].values())
    return f" They do connect over {best['network']} ({interfaces_of(best)}): set {where} as their gang addresses."


def _stored(shared: list[Json]) -> list[Json]:
    return [{name: value for name, value in row.items() if name != "addresses"} for row in shared]


def _routed(first: Side, second: Side) -> Json:
    """They share no network, but what lies between them leads from one peer address to the other."""
    there, back = first.way_to(second.address), second.way_to(first.address)
    return {
        "network": f"{first.address} and {second.address}",
        "interfaces": {
            first.name: first.interface_at(there["source"]) or "routed",
            second.name: second.interface_at(back["source"]) or "routed",
        },
        "mb_per_second": min(there["mb_per_second"], back["mb_per_second"]),
        "round_trip_ms": min(there["round_trip_ms"], back["round_trip_ms"]),
    }


def link(first: Side, second: Side, interface: str) -> Link:
    """The way for the all-reduce of a good pair: on the pool's interface, the fastest network, or as it is routed."""
    shared = networks(first, second)
    named = [row for row in shared if set(row["interfaces"].values()) == {interface}]
    if chosen := (named or shared)[:1]:
        names = chosen[0]["interfaces"]
        return Link(chosen[0]["addresses"][first.name], (names[first.name], names[second.name]))
    ways = first.way_to(second.address), second.way_to(first.address)
    return Link(
        first.address, (first.interface_at(ways[0]["source"]), second.interface_at(ways[1]["source"]))
    )


def with_all_reduce(found: PairFound, answers: dict[str, Json]) -> PairFound:
    """`answers`: host name -> what the verb `all_reduce` said there. Who could not try does not make the pair bad."""
    untried = [f"{name}: {said['message']}" for name, said in answers.items() if said["state"] == "untried"]
    if untried:
        return without_all_reduce(found, "; ".join(untried).rstrip("."))
    failed = [f"{name}: {said['message']}" for name, said in answers.items() if said["state"] != "done"]
    if failed:
        sentence = f"They can reach each other, but an all-reduce fails: {'; '.join(failed).rstrip('.')}."
        return replace(found, ok=False, sentence=sentence)
    rate = min(said["mb_per_second"] for said in answers.values())
    sentence = f"{found.sentence.removesuffix('.')}; all-reduce {speed(rate)}."
    return replace(found, sentence=sentence, all_reduce_mb_per_second=rate)


def without_all_reduce(found: PairFound, why: str) -> PairFound:
    return replace(found, sentence=f"{found.sentence} The all-reduce test was not run: {why}.")


def interfaces_of(row: Json) -> str:
    """`eth1`, or `eth1 and ens5` where they have different names."""
    return " and ".join(dict.fromkeys(row["interfaces"].values()))


def speed(mb_per_second: float) -> str:
    if mb_per_second >= 1000:
        return f"{mb_per_second / 1000:.1f} GB/s"
    return f"{mb_per_second:.3g} MB/s"


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
