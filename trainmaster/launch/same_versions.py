"""The hosts of a gang tell each other their versions of PyTorch before they start ranks.

Ranks of different releases mostly hang until a timeout of 15 minutes that names nobody. The hosts meet at the port at
which torchrun meets right afterwards, so whatever keeps them apart would keep torchrun apart.
"""

from __future__ import annotations

import contextlib
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Dict, List, Optional

from trainmaster._info import ClusterInfo
from trainmaster.core._star import join

_PURPOSE = b"|versions"  # so that nobody takes this group for that of the ranks
_UNKNOWN = "unknown"
Told = Dict[str, str]


def fault(info: ClusterInfo, port: int) -> Optional[str]:
    """Why this gang cannot train together, naming two of its hosts; None if it can, or if nobody can tell.

    Waits until all hosts of the gang are here, as torchrun does.
    """
    here = {"host": info.agent_id, "torch": _torch(), "python": ".".join(map(str, sys.version_info[:2]))}
    size, address = len(info.container_addrs), (info.chief_address, port)
    secret = info._secret.encode() + _PURPOSE
    try:
        with contextlib.closing(join("versions", info.container_rank, size, address, secret)) as group:
            gang: List[Told] = group.allgather(here)
    except (RuntimeError, OSError) as error:
        print(f"WARNING: trainmaster: the versions of this gang were not compared: {error}", file=sys.stderr)
        return None
    return compared(gang)


def compared(gang: List[Told]) -> Optional[str]:
    """The sentence about a host whose release of PyTorch is not that of the first. Prints lesser differences."""
    first = gang[0]
    for other in gang[1:]:
        both = f"{other['host']} has {{}} {{}}, {first['host']} has {{}}"
        if _UNKNOWN in (other["torch"], first["torch"]):
            continue
        if _release(other["torch"]) != _release(first["torch"]):
            found = both.format("torch", other["torch"], first["torch"])
            return f"{found}. All hosts of a gang need the same release; set the same `python` for them or their pool."
        for name, title in (("torch", "torch"), ("python", "Python")):
            if other[name] != first[name]:
                found = both.format(title, other[name], first[name])
                print(f"WARNING: trainmaster: {found}: the ranks may fail or hang.", file=sys.stderr)
    return None


def _release(text: str) -> List[str]:
    return text.split("+")[0].split(".")[:2]


def _torch() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:  # built in place
        return _UNKNOWN
