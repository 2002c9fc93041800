"""Long fault runs on one server and two hosts. `make chaos` runs them; CHAOS_MINUTES=0.1 makes them short."""

import os
from collections.abc import Iterator

import pytest

from tests.rig.hosts import HostRig
from tests.rig.stack import Stack, running_stack


@pytest.fixture(scope="session")
def minute() -> float:
    """Seconds that a minute of these tests takes."""
    return 60.0 * float(os.environ.get("CHAOS_MINUTES", "1"))


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """One server, and gpu1 and gpu2 with two slots each: what one test breaks, the next finds mended."""
    if not host_rig.take(1)[0].isolated:
        pytest.skip("needs network namespaces (root and iproute2)")
    with running_stack(host_rig) as stack:
        stack.add_hosts()
        yield stack
