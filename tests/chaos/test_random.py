"""Everything that can be disturbed is, at random and several at once, while jobs come and go. Nothing is lost, nothing
runs twice, no healthy run is ended, and every end is true.

It lasts CHAOS_MINUTES (default 10); CHAOS_SEED repeats the draws of a run, which prints its seed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tests.rig.disturbances import Chaos, World, wait_whole
from tests.rig.hosts import HostRig, processes_with_marker
from tests.rig.pace import wait_until
from tests.rig.server import SCALED
from tests.rig.stack import END_STATES, Stack, running_stack
from tests.rig.stamped_jobs import Ledger, Stream, leaks
from tests.rig.stepped_clock import SteppedClocks

pytestmark = [pytest.mark.chaos, pytest.mark.hosts]

HOSTS = 4
#: Longer than any disturbance lasts: no host is lost on evidence, so none may be declared lost.
LOST_AFTER_SECONDS = 120
END_LIMIT_SECONDS = 600.0
DEFAULT_MINUTES = 10.0


@pytest.fixture
def world(host_rig: HostRig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A server and four hosts with two slots each, and a clock of its own for each host and part."""
    if not host_rig.take(1)[0].isolated:
        pytest.skip("needs network namespaces (root and iproute2)")
    folder = host_rig.folder / "clocks"
    folder.mkdir(mode=0o755)
    try:
        clocks = SteppedClocks(folder)
    except RuntimeError as error:
        pytest.skip(str(error))
    host_rig.take(HOSTS)
    right = {host.name: (host.folder / "sshd_config").read_text() for host in host_rig.hosts}
    for host in host_rig.hosts:
        words = " ".join(f"{name}={value}" for name, value in clocks.of_host(host.name).items())
        (host.folder / "sshd_config").write_text(
            right[host.name].replace("SetEnv PATH=", f"SetEnv {words} PATH=")
        )
    try:
        with running_stack(host_rig, HOSTS, {**SCALED, **clocks.of_server()}) as stack:
            stack.add_hosts()
            rule = {"hostLostAfterSeconds": LOST_AFTER_SECONDS}
            stack.server.request("PATCH", "/api/v1/resource-pools/default", rule, token=stack.token)
            yield World(stack, clocks)
    finally:
        for host in host_rig.hosts:
            (host.folder / "sshd_config").write_text(right[host.name])


@pytest.mark.survive(1, 2, 3, 6, 10, 19, 20, 21, 22, 23, 25)
def test_whatever_is_disturbed_nothing_is_lost_and_nobody_is_ended(world: World, tmp_path: Path) -> None:
    seconds = 60.0 * float(os.environ.get("CHAOS_MINUTES") or DEFAULT_MINUTES)
    seed = int(os.environ.get("CHAOS_SEED") or time.time())
    print(f"CHAOS_SEED={seed}")
    tmp_path.chmod(0o755)
    stream, chaos = Stream(world.stack, tmp_path, seed), Chaos(world, seed)
    with ThreadPoolExecutor(1) as pool:
        submitting = pool.submit(stream.run)
        try:
            chaos.last(seconds)
        finally:
            stream.stopped.set()
        submitting.result()
    wait_whole(world.stack)
    print(f"{len(stream.jobs)} jobs; {chaos.counted}")
    wait_until(lambda: all_over(stream), END_LIMIT_SECONDS)
    wait_until(lambda: not leaks(world.stack), 180)
    assert {job.experiment for job in stream.jobs} == set(stream.states()), "each was submitted once"
    ledgers = [Ledger(stream, job, chaos.wrong_clocks) for job in stream.jobs]
    faults = [fault for ledger in ledgers for fault in ledger.faults()]
    assert not faults, f"CHAOS_SEED={seed}\n" + "\n".join(faults)
    assert not leaks(world.stack) and not world.stack.holders()
    assert not declared_lost(world.stack)
    left = {key: found for key in run_keys(world.stack) if (found := processes_with_marker(key))}
    assert not left, f"processes are left: {left}"


def all_over(stream: Stream) -> bool:
    return all(state in END_STATES for state in stream.states().values())


def run_keys(stack: Stack) -> list[str]:
    """Of every member of every attempt."""
    with psycopg.connect(stack.server.database_url) as connection:
        rows = connection.execute("SELECT allocation_id || '.' || index FROM jobs_member").fetchall()
    return [row[0] for row in rows]


def declared_lost(stack: Stack) -> list[str]:
    """The hosts of which it was said."""
    with psycopg.connect(stack.server.database_url) as connection:
        rows = connection.execute(
            "SELECT detail::text FROM events_event WHERE kind = 'host' AND reason = 'declared_lost'"
        ).fetchall()
    return [row[0] for row in rows]
