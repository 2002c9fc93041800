"""One server and two hosts for all fault tests: what one test kills, the next one finds mended."""

from collections.abc import Iterator

import pytest

from tests.rig import parts
from tests.rig.hosts import HostRig
from tests.rig.server import Server
from tests.rig.stack import Stack


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """The server on the hosts' bridge, and gpu1 and gpu2 with two slots each."""
    with parts.private_folder("server") as path:
        path.chmod(0o711)
        server = Server(path / "data", host_rig.server_address)
        try:
            stack = Stack(server.start(), host_rig.take(2))
            stack.add_hosts()
            yield stack
        finally:
            server.close()
