"""The only worker is frozen in the middle of a run: `up` replaces it, the queue moves, and the run is not touched."""

import signal

import pytest

from tests.chaos.test_outages import assert_unharmed, begin
from tests.rig.stack import Stack, config, counting

pytestmark = [pytest.mark.chaos, pytest.mark.hosts, pytest.mark.survive(21)]

#: three of the worker's own messages (dispatch.watching.canary), and what a new one needs to start
LIMIT_SECONDS = 240.0


def test_a_frozen_worker_is_replaced_and_the_queue_moves(stack: Stack) -> None:
    experiment, last = begin(stack, 60)
    frozen = stack.server.children()["worker"]
    frozen.signal(signal.SIGSTOP)
    after = stack.submit(counting(1, 0), config(1))
    stack.server.wait_replaced("worker", frozen, LIMIT_SECONDS)
    assert_unharmed(stack, experiment, last, 60)
    assert stack.wait_end(after, LIMIT_SECONDS) == "STATE_COMPLETED"
