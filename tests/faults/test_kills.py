"""Kill -9 of every part in the middle of a run: the training goes on unharmed, ends with its true result, and its log
is complete. Outages of minutes are scaled down to seconds by settings (tests/rig/server.py)."""

import os
import signal
from pathlib import Path

import pytest

from tests.rig.hosts import processes_with_marker
from tests.rig.stack import Stack, config, counting, halting

pytestmark = pytest.mark.hosts

LAST = 80
PAUSE_SECONDS = 0.1
#: the word in a runner's command line that tells it from the launcher
ROLE = b"ship"


def begin(stack: Stack) -> int:
    """A gang of four ranks on two hosts that has printed some of its lines."""
    experiment = stack.submit(counting(LAST, PAUSE_SECONDS), config(4))
    stack.wait_lines(experiment, 20)
    return experiment


def assert_unharmed(stack: Stack, experiment: int) -> None:
    assert stack.wait_end(experiment) == "STATE_COMPLETED"
    assert stack.trial(experiment)["restarts"] == 0
    stack.assert_complete(experiment, LAST)
    stack.assert_nothing_runs(stack.run_keys(experiment))


@pytest.mark.survive(6, 22, 23)
@pytest.mark.parametrize("part", ["web", "worker", "forkserver", "redis", "postgres"])
def test_a_killed_part_of_the_server_harms_no_run(stack: Stack, part: str) -> None:
    experiment = begin(stack)
    victim = stack.server.kill_part(part)
    stack.server.wait_replaced(part, victim)
    assert_unharmed(stack, experiment)


@pytest.mark.survive(6)
def test_up_itself_killed_and_started_again_adopts_the_run(stack: Stack) -> None:
    experiment = begin(stack)
    stack.server.kill()
    stack.server.start()
    stack.token = stack.server.token()
    assert_unharmed(stack, experiment)


@pytest.mark.survive(6)
def test_a_run_that_ends_while_the_server_is_down_keeps_its_true_result(stack: Stack) -> None:
    experiment = begin(stack)
    keys = stack.run_keys(experiment)
    stack.server.kill()
    stack.wait(lambda: not any(processes_with_marker(key) for key in keys), 60, "the ranks to end")
    stack.server.start()
    stack.token = stack.server.token()
    assert_unharmed(stack, experiment)


def test_a_killed_runner_is_started_anew_beside_the_living_training(stack: Stack) -> None:
    experiment = stack.submit(halting(LAST), config(4))
    stack.wait_lines(experiment, 4 * LAST // 2)
    keys = stack.run_keys(experiment)
    runners = [pid for key in keys for pid in runners_of(key)]
    assert len(runners) == 2
    for pid in runners:
        os.kill(pid, signal.SIGKILL)
    stack.go_on(keys)
    assert_unharmed(stack, experiment)


@pytest.mark.survive(1)
def test_a_cut_link_changes_nothing_but_what_is_shown(stack: Stack) -> None:
    if not stack.hosts[0].isolated:
        pytest.skip("needs network namespaces to cut a link")
    experiment = begin(stack)
    host = stack.hosts[1]
    host.cut()
    try:
        stack.wait(
            lambda: stack.get(f"/api/v1/hosts/{host.name}")["host"]["state"] == "silent",
            60,
            "the host to be silent",
        )
    finally:
        host.restore()
    assert_unharmed(stack, experiment)
    stack.wait(
        lambda: stack.get(f"/api/v1/hosts/{host.name}")["host"]["state"] == "ready", 60, "the host to be back"
    )


def runners_of(run_key: str) -> list[int]:
    """Pids of the runner processes of a run (`… trainmaster/runner ship <folder>`; `keep` is the launcher)."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if ROLE in words and any(run_key.encode() in word for word in words):
            found.append(int(process.name))
    return found
