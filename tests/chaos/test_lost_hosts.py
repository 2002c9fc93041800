"""A server that was away for longer than its pool's limit ends nobody's work; a host that is gone is lost, and its
owner can bring it back."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from tests.rig.hosts import HostRig, processes_with_marker
from tests.rig.stack import Stack, config, halting, running_stack

pytestmark = [pytest.mark.chaos, pytest.mark.hosts]

LIMIT_SECONDS = 240.0
LOST_AFTER_SECONDS = 12
LINES = 40


@pytest.fixture
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """Two hosts in a pool whose rule declares them lost soon."""
    if not host_rig.take(1)[0].isolated:
        pytest.skip("needs network namespaces (root and iproute2)")
    with running_stack(host_rig) as stack:
        stack.add_hosts()
        rule = {"hostLostAfterSeconds": LOST_AFTER_SECONDS}
        stack.server.request("PATCH", "/api/v1/resource-pools/default", rule, token=stack.token)
        yield stack


def presence(stack: Stack) -> tuple[int, float]:
    """(the era, for how many seconds it has lasted)"""
    with psycopg.connect(stack.server.database_url) as connection:
        row = connection.execute(
            "SELECT sum(era), extract(epoch FROM now() - max(since)) FROM events_presence"
        ).fetchone()
    assert row is not None
    return int(row[0]), float(row[1])


def verdicts(stack: Stack) -> set[str]:
    """What was ever concluded of a host."""
    with psycopg.connect(stack.server.database_url) as connection:
        rows = connection.execute("SELECT DISTINCT reason FROM events_event WHERE kind = 'host'").fetchall()
    return {row[0] for row in rows} & {"silent", "declared_lost"}


@pytest.mark.survive(6, 23, 40)
def test_an_outage_longer_than_the_limit_ends_nothing_and_a_host_that_is_gone_is_lost(stack: Stack) -> None:
    experiment = stack.submit(halting(LINES), config(4))
    stack.wait_lines(experiment, LINES)
    keys = stack.run_keys(experiment)
    before, _ = presence(stack)

    stack.server.kill()
    pids = {key: processes_with_marker(key) for key in keys}
    threading.Event().wait(3 * LOST_AFTER_SECONDS)
    stack.server.start()
    stack.token = stack.server.token()

    def watched() -> bool:
        era, seconds = presence(stack)
        return era > before and seconds > 2 * LOST_AFTER_SECONDS

    stack.wait(watched, LIMIT_SECONDS, "the server to have looked for longer than the limit")
    assert verdicts(stack) == set()
    assert {host.name: stack.host_state(host.name) for host in stack.hosts} == dict.fromkeys(
        [host.name for host in stack.hosts], "ready"
    )
    assert {key: processes_with_marker(key) for key in keys} == pids, "the same processes as before"
    stack.go_on(keys)
    assert stack.wait_end(experiment) == "STATE_COMPLETED"
    stack.assert_complete(experiment, LINES)
    assert stack.trial(experiment)["restarts"] == 0

    gone, other = stack.hosts
    gone.cut()
    stack.wait(lambda: stack.host_state(gone.name) == "lost", LIMIT_SECONDS, f"{gone.name} to be lost")
    assert stack.host_state(other.name) == "ready"
    gone.restore()
    stack.post(f"/api/v1/hosts/{gone.name}/doctor")
    stack.wait(lambda: stack.host_state(gone.name) == "ready", LIMIT_SECONDS, f"{gone.name} to be back")
    _, begun = presence(stack)
    stack.wait(lambda: presence(stack)[1] > begun + LOST_AFTER_SECONDS, LIMIT_SECONDS, "more sweeps")
    assert stack.host_state(gone.name) == "ready", "it stays"
