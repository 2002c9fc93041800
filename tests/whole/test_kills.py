"""Kill -9 of any part in the middle of a run: the run goes on unharmed and its log is complete, once and in order."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rig import parts
from tests.rig.hosts import Host, HostRig
from tests.rig.runs import END_STATES, Cluster, Run, expected
from tests.rig.server import Server
from webui.embedded import processes

pytestmark = pytest.mark.hosts

LINES = 300
SECONDS = 6.0


@pytest.fixture(scope="module")
def cluster(host_rig: HostRig) -> Iterator[Cluster]:
    """One server and two hosts for all kills, so that each test costs one run."""
    with parts.private_folder("kills") as path:
        path.chmod(0o711)
        server = Server(path / "data", host_rig.server_address)
        try:
            made = Cluster(server.start(), host_rig.take(2))
            made.add_hosts()
            yield made
        finally:
            server.close()


def goes_on(cluster: Cluster, folder: Path, disturb: Callable[[Run], None]) -> None:
    """Run a counting gang, disturb it after its first lines, and assert its true end and its whole log."""
    run = cluster.count(folder, LINES, SECONDS)
    run.wait_line("line 10")
    disturb(run)
    assert run.wait_ended() == "COMPLETED", run.log()
    assert run.lines() == expected(LINES)
    assert run.trial()["restarts"] == 0
    assert run.marked() == []


@pytest.mark.parametrize("name", ["web", "worker", "beat", "redis", "postgres"])
def test_a_run_outlives_the_kill_of_a_part(cluster: Cluster, tmp_path: Path, name: str) -> None:
    def disturb(_run: Run) -> None:
        cluster.server.wait_replaced(name, cluster.server.kill_part(name))

    goes_on(cluster, tmp_path / f"kill-{name}", disturb)


def test_a_run_outlives_the_kill_of_up_itself(cluster: Cluster, tmp_path: Path) -> None:
    def disturb(_run: Run) -> None:
        cluster.server.kill()
        cluster.server.start()

    goes_on(cluster, tmp_path / "kill-up", disturb)


def test_a_run_outlives_the_kill_of_its_runners(cluster: Cluster, tmp_path: Path) -> None:
    def disturb(run: Run) -> None:
        victims = runners(run)
        assert len(victims) == 2, victims
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    goes_on(cluster, tmp_path / "kill-runner", disturb)


def runners(run: Run) -> list[int]:
    """The processes that tail and ship; they do not carry the run's marker."""
    found = []
    for arguments in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = arguments.read_bytes().decode(errors="replace").split("\0")
            if "ship" in words and any(run.task_id() in word for word in words):
                found.append(int(arguments.parent.name))
    return found


def test_a_run_outlives_a_cut_link(cluster: Cluster, tmp_path: Path) -> None:
    host: Host = cluster.hosts[1]
    if not host.isolated:
        pytest.skip("needs network namespaces")

    def disturb(run: Run) -> None:
        host.cut()
        try:
            near = expected(LINES)[0]
            assert processes.wait_until(lambda: run.lines().get(0) == near, 60)
            assert run.state() not in END_STATES, "the silent host's ranks may still run"
        finally:
            host.restore()

    goes_on(cluster, tmp_path / "cut", disturb)
