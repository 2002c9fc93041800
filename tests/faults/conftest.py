"""One server and two hosts for all fault tests: what one test kills, the next one finds mended."""

from collections.abc import Iterator

import pytest

from tests.rig.hosts import HostRig
from tests.rig.stack import Stack, running_stack


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """The server on the hosts' bridge, and gpu1 and gpu2 with two slots each."""
    with running_stack(host_rig) as stack:
        stack.add_hosts()
        yield stack
