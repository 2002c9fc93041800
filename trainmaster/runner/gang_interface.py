"""Whether this host has the network interface over which its gang is to talk."""

from __future__ import annotations

import socket
from typing import List

from trainmaster.protocol import Spec


def lacking(spec: Spec) -> List[str]:
    """The sentence that it has none of that name; nothing where it has, or where any will do.

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
