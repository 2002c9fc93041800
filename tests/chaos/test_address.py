"""While the server is away, other programs and an empty server answer at its address. No run ends, nothing is lost."""

import pytest

from tests.chaos.test_outages import assert_unharmed, begin, passes
from tests.rig.pace import wait_until
from tests.rig.server import Server
from tests.rig.stack import Stack
from tests.trainmaster.stranger import Stranger

pytestmark = [pytest.mark.chaos, pytest.mark.hosts, pytest.mark.survive(41)]

TAKEN_SECONDS = 10.0


def test_whatever_answers_at_the_servers_address_ends_no_run(stack: Stack) -> None:
    experiment, last = begin(stack, 30)
    server = stack.server
    server.close()
    for status in (401, 410, 200):
        stranger = Stranger(server.port, status, listens_on=server.listen)
        assert wait_until(lambda at=stranger: at.has_answered_for(TAKEN_SECONDS), 120)  # type: ignore[misc]
        stranger.down()
        for heard in stranger.heard:
            assert "Authorization" not in heard.headers and heard.body_bytes == 0, heard
    empty = Server(server.data.with_name("empty"), server.listen, empty=True)
    empty.port = server.port
    empty.start()
    passes(TAKEN_SECONDS)
    empty.close()
    server.start()
    assert_unharmed(stack, experiment, last)
