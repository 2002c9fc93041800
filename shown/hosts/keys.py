"""Host keys that wait for a person, as fingerprints."""

from __future__ import annotations

from dataclasses import dataclass

from dispatch.ssh.server_key import fingerprint
from hosts.models import Host


@dataclass(frozen=True)
class Key:
    """A host key that waits to be accepted, of the host itself or of a jump host before it."""

    whose: str
    pinned: str
    offered: str
    key: str


def to_accept(host: Host) -> list[Key]:
    """Fingerprints of what was pinned (empty: nothing yet) and of what is offered now."""
    ways = [
        (jump.get("address", ""), jump.get("host_key") or "", jump.get("offered_host_key") or "")
        for jump in host.jumps
    ]
    return [
        Key(whose, fingerprint(pinned) if pinned else "", fingerprint(offered), offered)
        for whose, pinned, offered in [*ways, (host.name, host.host_key, host.offered_host_key)]
        if offered
    ]
