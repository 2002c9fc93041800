"""Where a host is reached: the chain of sshds from the server to it, each with its pinned key."""

from __future__ import annotations

import getpass
from dataclasses import dataclass

from hosts.models import Host


@dataclass(frozen=True)
class Hop:
    """One sshd. `host_key` is the pinned public key in OpenSSH's form; empty: not accepted yet."""

    address: str
    port: int
    user: str
    host_key: str

    def __str__(self) -> str:
        return f"{self.user}@{self.address}:{self.port}"


@dataclass(frozen=True)
class Endpoint:
    """The hops to one host, nearest to the server first; the last is the host itself."""

    hops: tuple[Hop, ...]

    @property
    def target(self) -> Hop:
        return self.hops[-1]

    @property
    def jump(self) -> Endpoint | None:
        """The way to the last jump host, or None where the host is dialled directly."""
        return Endpoint(self.hops[:-1]) if len(self.hops) > 1 else None

    def __str__(self) -> str:
        return " via ".join(str(hop) for hop in reversed(self.hops))


def endpoint_of(host: Host) -> Endpoint:
    """The chain of sshds of this host's row."""
    account = getpass.getuser()
    jumps = tuple(
        Hop(str(j["address"]), int(j.get("port") or 22), j.get("user") or account, j.get("host_key") or "")
        for j in host.jumps
    )
    own = Hop(host.address or host.name, host.port, host.login_user or account, host.host_key)
    return Endpoint((*jumps, own))
