"""Silence is not death: a silent host keeps its own work, its gang's slots go free, and only a declared loss starts
the trial elsewhere. The runner that returns too late is refused and stops its ranks."""

from collections.abc import Iterator

import pytest

from tests.rig.hosts import Host, HostRig, processes_with_marker
from tests.rig.stack import LAUNCHER, Json, Pages, Stack, config, counting, halting, running_stack

pytestmark = pytest.mark.hosts

SETTINGS = {"TRAINMASTER_HOST_SILENT_AFTER_SECONDS": "4", "TRAINMASTER_GANG_FAILURE_GRACE_SECONDS": "1"}
LATE_SECONDS = 120

#: Every rank waits; rank 0 fails as soon as somebody lays a file into its folder.
WAITING = """
import pathlib, sys, time
print("line 1", flush=True)
while sys.argv[1] != "0" or not pathlib.Path("fail").exists():
    time.sleep(0.1)
sys.exit(9)
"""


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """Two hosts with two slots each and links that can be cut."""
    if not host_rig.take(1)[0].isolated:
        pytest.skip("needs network namespaces to cut a link")
    with running_stack(host_rig, settings=SETTINGS) as stack:
        stack.add_hosts()
        yield stack


@pytest.fixture(scope="module")
def pages(stack: Stack) -> Pages:
    return Pages(stack.server)


@pytest.fixture(autouse=True)
def whole_links(stack: Stack) -> Iterator[None]:
    """Whatever a test cuts is whole again afterwards."""
    yield
    for host in stack.hosts:
        host.restore()
        if stack.host_state(host.name) == "lost":
            stack.post(f"/api/v1/hosts/{host.name}/doctor")
    for host in stack.hosts:
        stack.wait(lambda host=host: stack.host_state(host.name) == "ready", 60, f"{host.name} to be back")


def host_of(stack: Stack, run_key: str) -> Host:
    """The host on which the run's folder lies."""
    return next(host for host in stack.hosts if (host.workdir / "runs" / run_key).exists())


def cut_until_silent(stack: Stack, host: Host) -> None:
    host.cut()
    stack.wait(lambda: stack.host_state(host.name) == "silent", 60, f"{host.name} to be silent")


def attempts(stack: Stack, experiment: int) -> list[Json]:
    task = stack.trial(experiment)["taskId"]
    return list(stack.get(f"/api/v1/tasks/{task}")["task"]["allocations"])


def assert_others_run(stack: Stack) -> None:
    """The scheduler is at work: a job submitted now gets a slot, runs and ends."""
    other = stack.submit(counting(1, 0), config(1))
    assert stack.wait_end(other) == "STATE_COMPLETED"


@pytest.mark.survive(1)
def test_a_silent_hosts_job_is_neither_released_nor_started_again(stack: Stack) -> None:
    experiment = stack.submit(halting(20), config(1, max_restarts=5))
    stack.wait_lines(experiment, 10)
    held, key = stack.holders(), stack.run_keys(experiment)[0]
    host = host_of(stack, key)
    cut_until_silent(stack, host)
    stack.go_on([key])
    stack.wait(lambda: not processes_with_marker(key), 60, "the job to end behind the cut link")
    assert_others_run(stack)
    assert stack.holders() == held
    assert len(attempts(stack, experiment)) == 1
    assert stack.experiment(experiment)["state"] == "STATE_RUNNING"
    host.restore()
    assert stack.wait_end(experiment) == "STATE_COMPLETED"
    stack.assert_complete(experiment, 20, ranks=1)
    assert len(attempts(stack, experiment)) == 1
    assert stack.trial(experiment)["restarts"] == 0


@pytest.mark.survive(1)
def test_a_silent_host_holds_its_trial_but_not_the_slots_of_its_gang(stack: Stack, pages: Pages) -> None:
    experiment = stack.submit({"launch.py": LAUNCHER, "worker.py": WAITING}, config(4))
    stack.wait_lines(experiment, 4)
    keys = stack.run_keys(experiment)
    near, far = host_of(stack, keys[0]), host_of(stack, keys[1])
    cut_until_silent(stack, far)
    (near.workdir / "runs" / keys[0] / "code" / "fail").touch()
    still_held = {f"{far.name}/0", f"{far.name}/1"}
    stack.wait(lambda: set(stack.holders()) == still_held, 60, "the slots of the reachable host to be free")
    assert processes_with_marker(keys[1]), "the silent host's ranks live on"
    assert stack.experiment(experiment)["state"] == "STATE_RUNNING"
    assert f"Held by silent {far.name}" in pages.text(f"/trials/{stack.trial(experiment)['id']}")
    assert_others_run(stack)
    assert set(stack.holders()) == still_held
    far.restore()
    assert stack.wait_end(experiment) == "STATE_ERROR"
    stack.assert_nothing_runs(keys)
    assert len(attempts(stack, experiment)) == 1
    words = " ".join(record["log"] for record in stack.records(stack.trial(experiment)["id"]))
    assert "rank 0" in words and "exit code 9" in words


def test_a_declared_loss_starts_the_trial_elsewhere_and_stops_the_late_run(
    stack: Stack, pages: Pages
) -> None:
    experiment = stack.submit(halting(40), config(1))
    stack.wait_lines(experiment, 3)
    key = stack.run_keys(experiment)[0]
    host = host_of(stack, key)
    cut_until_silent(stack, host)
    pages.press(f"/hosts/{host.name}", f"/hosts/{host.name}/lost")
    stack.wait(lambda: len(attempts(stack, experiment)) == 2, 60, "the second attempt")
    stack.wait(lambda: stack.holders(), 60, "slots elsewhere")
    assert {place.split("/")[0] for place in stack.holders()} == {
        other.name for other in stack.hosts if other is not host
    }
    assert processes_with_marker(key), "the lost host knows nothing of its loss"
    stack.go_on(stack.run_keys(experiment))
    host.restore()
    stack.wait(lambda: not processes_with_marker(key), LATE_SECONDS, "the late runner to stop its ranks")
    assert stack.wait_end(experiment) == "STATE_COMPLETED"
    assert stack.trial(experiment)["restarts"] == 0  # and max_restarts is 0
    printed = stack.lines_by_rank(experiment)[0]
    assert printed[-40:] == [f"line {number}" for number in range(1, 41)]
    assert printed[:-40] == [f"line {number}" for number in range(1, len(printed) - 39)]
