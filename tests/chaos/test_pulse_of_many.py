"""The pulse of 64 ranks on two hosts: one is stopped, and it alone is marked within 15 seconds."""

from collections.abc import Iterator

import pytest

from tests.rig.hosts import HostRig
from tests.rig.light_gang import light_gang
from tests.rig.stack import Stack, running_stack

pytestmark = [pytest.mark.hosts, pytest.mark.chaos]

RANKS = 64
MARKED_WITHIN_SECONDS = 15
CALM_SECONDS = 20


@pytest.fixture
def many(host_rig: HostRig) -> Iterator[Stack]:
    with running_stack(host_rig) as stack:
        stack.add_hosts(slots=RANKS // 2)
        yield stack


def test_of_64_ranks_only_the_stopped_one_is_marked_and_in_time(many: Stack) -> None:
    with light_gang(many, RANKS) as gang:
        gang.keeps(set(), CALM_SECONDS)
        for rank in (37, 0):
            with gang.stopped(rank):
                gang.wait_marks({rank}, MARKED_WITHIN_SECONDS)
                gang.keeps({rank}, CALM_SECONDS)
            gang.wait_marks(set(), MARKED_WITHIN_SECONDS)
