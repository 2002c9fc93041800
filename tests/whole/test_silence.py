"""Silence is not death: a silent host keeps its own work, its gang's slots go free, and only a declared loss starts
the trial elsewhere. The runner that returns too late is refused and stops its ranks."""

import json
from collections.abc import Iterator

import pytest

from tests.rig.hosts import Host, HostRig, processes_with_marker
from tests.rig.stack import LAUNCHER, Stack, config, running_stack

pytestmark = pytest.mark.hosts

SILENT_SECONDS = 4.0  # in tests/rig/server.py it is 6
SETTINGS = {"TRAINMASTER_HOST_SILENT_AFTER_SECONDS": "4", "TRAINMASTER_GANG_FAILURE_GRACE_SECONDS": "1"}

#: Counts for ever; rank 0 fails when told to by a file, which says so on its own host.
WORKER = """
import os, pathlib, sys, time
rank = int(sys.argv[1])
number = 0
while True:
    number += 1
    print(f"line {number}", flush=True)
    if rank == 0 and pathlib.Path("fail").exists():
        sys.exit(9)
    time.sleep(0.2)
"""
#: The same, but ends by itself.
SHORT = WORKER.replace("while True", "while number < 20")


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """Two hosts with two slots each and links that can be cut."""
    if not host_rig.take(1)[0].isolated:
        pytest.skip("needs network namespaces to cut a link")
    with running_stack(host_rig, settings=SETTINGS) as stack:
        stack.add_hosts()
        yield stack


@pytest.fixture
def whole_links(stack: Stack) -> Iterator[None]:
    """Whatever the test cuts is whole again afterwards."""
    yield
    for host in stack.hosts:
        host.restore()
        stack.wait(lambda host=host: stack.host_state(host.name) in {"ready", "lost"}, 60, "the hosts to be back")


def cut_until_silent(stack: Stack, host: Host) -> None:
    host.cut()
    stack.wait(lambda: stack.host_state(host.name) == "silent", 60, f"{host.name} to be silent")


def passes(stack: Stack, count: int) -> None:
    """Wait until the scheduler has looked at the pool so many times: what it would do, it has done."""
    seen: set[str] = set()

    def looked() -> bool:
        seen.add(str(stack.get("/api/v1/job-queues-v2").get("plannedAt")))
        return len(seen) > count

    stack.wait(looked, 30, f"{count} passes of the scheduler")


def attempts(stack: Stack, experiment: int) -> int:
    task = stack.trial(experiment)["taskId"]
    return len(stack.get(f"/api/v1/tasks/{task}")["task"]["allocations"])


def test_a_silent_hosts_job_is_neither_released_nor_started_again(stack: Stack, whole_links: None) -> None:
    experiment = stack.submit({"launch.py": LAUNCHER, "worker.py": SHORT}, config(1, max_restarts=5))
    stack.wait_lines(experiment, 1)
    held = stack.holders()
    host = next(host for host in stack.hosts if f"{host.name}/" in next(iter(held)))
    key = stack.run_keys(experiment)[0]
    cut_until_silent(stack, host)
    stack.wait(lambda: not processes_with_marker(key), 30, "the job to end behind the cut link")
    assert stack.holders() == held
    assert attempts(stack, experiment) == 1
    assert stack.experiment(experiment)["state"] not in {"STATE_COMPLETED", "STATE_ERROR"}
    host.restore()
    assert stack.wait_end(experiment, 60) == "STATE_COMPLETED"
    stack.assert_complete(experiment, 20, ranks=1)
    assert attempts(stack, experiment) == 1
    assert stack.trial(experiment)["restarts"] == 0
