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


@pytest.fixture(scope="module")
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


def verdicts(stack: Stack, since: int = 0) -> set[str]:
    """What was concluded of any host after that event."""
    with psycopg.connect(stack.server.database_url) as connection:
        rows = connection.execute(
            "SELECT DISTINCT reason FROM events_event WHERE kind = 'host' AND id > %s", [since]
        ).fetchall()
    return {row[0] for row in rows} & {"silent", "declared_lost"}


def last_event(stack: Stack) -> int:
    with psycopg.connect(stack.server.database_url) as connection:
        row = connection.execute("SELECT max(id) FROM events_event").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.survive(6, 23, 40)
def test_an_outage_longer_than_the_limit_ends_nothing_and_a_host_that_is_gone_is_lost(stack: Stack) -> None:
    experiment = stack.submit(halting(LINES), config(4))
    stack.wait_lines(experiment, LINES)
    keys = stack.run_keys(experiment)
    before, _ = presence(stack)
    event = last_event(stack)

    stack.server.kill()
    pids = {key: processes_with_marker(key) for key in keys}
    threading.Event().wait(3 * LOST_AFTER_SECONDS)
    stack.server.start()
    stack.token = stack.server.token()

    def watched() -> bool:
        era, seconds = presence(stack)
        return era > before and seconds > 2 * LOST_AFTER_SECONDS

    stack.wait(watched, LIMIT_SECONDS, "the server to have looked for longer than the limit")
    assert verdicts(stack, event) == set()
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


@pytest.mark.survive(1, 40)
def test_when_no_host_can_be_reached_none_is_lost_and_all_work_goes_on(stack: Stack) -> None:
    experiment = stack.submit(halting(LINES), config(4))
    stack.wait_lines(experiment, LINES)
    keys = stack.run_keys(experiment)
    pids = {key: processes_with_marker(key) for key in keys}
    event = last_event(stack)
    for host in stack.hosts:
        host.cut()
    for host in stack.hosts:
        stack.wait(lambda host=host: stack.host_state(host.name) == "silent", LIMIT_SECONDS, "silence")
    threading.Event().wait(3 * LOST_AFTER_SECONDS)
    assert verdicts(stack, event) == {"silent"}
    for host in stack.hosts:
        host.restore()
    for host in stack.hosts:
        stack.wait(lambda host=host: stack.host_state(host.name) == "ready", LIMIT_SECONDS, "its return")
    assert {key: processes_with_marker(key) for key in keys} == pids, "the same processes as before"
    stack.go_on(keys)
    assert stack.wait_end(experiment) == "STATE_COMPLETED"
    stack.assert_complete(experiment, LINES)
    assert verdicts(stack, event) == {"silent"}
