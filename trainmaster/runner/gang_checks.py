"""What a gang needs of the network of this host, looked at before its entrypoint starts."""

from __future__ import annotations

import errno
import socket
from typing import List, Optional

from trainmaster.protocol import Spec


def taken_port(spec: Spec) -> Optional[int]:
    """The first leased port that another program has; None where there is none, or where none is leased here.

    A lease keeps gangs apart, not the host's other programs. A trial whose rendezvous cannot listen would fail and
    look like one that failed by itself; found here, before anything has started, it gets other ports and goes on.
    """
    if spec["trial"] is None or spec["member"] != 0:  # the ports are the first member's
        return None
    return next((port for port in sorted(spec["gang"]["ports"].values()) if _is_taken(port)), None)


def _is_taken(port: int) -> bool:
    """By binding as rank 0 will, on all addresses; what merely lingers (TIME_WAIT) does not count."""
    for family, anywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((anywhere, port))
        except OSError as error:  # a host without IPv6 has nobody who listens there
            if error.errno == errno.EADDRINUSE:
                return True
    return False


def lacking_interface(spec: Spec) -> List[str]:
    """The sentence that this host has no interface of the wanted name; nothing where it has, or where any will do.

    The server has the gang meet elsewhere then (`gang_address`), so nobody else would say it.
    """
    wanted, gang = spec["gang"]["interface"], spec["gang"]
    names = [name for _, name in socket.if_nameindex()]
    if not wanted or wanted in names:
        return []
    sentence = (
        f"host {spec['host']['name']} has no network interface {wanted!r}, which dtrain_network_interface of its "
        f"config or network_interface of its pool selects (it has {', '.join(names)}): its gang reaches it at "
        f"{gang['addresses'][spec['member']]}, but NCCL and gloo, which use that name, may not find it"
    )
    return [sentence]
