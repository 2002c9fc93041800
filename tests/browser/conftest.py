"""Servers, hosts, and a browser logged in as the admin, for the tests of each module."""

from collections.abc import Iterator

import pytest

from tests.rig import lending
from tests.rig.browser import WIDE, Browser, programs, running_browser
from tests.rig.hosts import HostRig
from tests.rig.server import Server
from tests.rig.stack import Stack, running_stack


@pytest.fixture(scope="module")
def empty_server(server_address: str) -> Iterator[Server]:
    """The whole server without hosts or experiments."""
    with lending.borrowed(server_address) as server:
        yield server


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """The server on the hosts' bridge, and gpu1 and gpu2 with two slots each."""
    with running_stack(host_rig) as stack:
        stack.add_hosts()
        yield stack


@pytest.fixture(scope="module")
def browser(stack: Stack) -> Iterator[Browser]:
    """Chromium, logged in to the stack."""
    yield from _logged_in(stack.server)


@pytest.fixture(scope="module")
def window(empty_server: Server) -> Iterator[Browser]:
    """Chromium, logged in to the server without hosts."""
    yield from _logged_in(empty_server)


def _logged_in(server: Server) -> Iterator[Browser]:
    if programs() is None:
        pytest.skip("needs chromium and chromedriver")
    with running_browser(server.url) as browser:
        browser.look(dark=False, width=WIDE)
        browser.login("admin", server.password)
        yield browser
