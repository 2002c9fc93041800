"""Processes that outlive their run: one that SIGKILL does not end, and a whole run whose folder somebody removed.

A rank in a frozen cgroup is what a process is that waits in the kernel: state D, and it dies only when it comes out.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.hosts import HostRig, processes_with_marker
from tests.rig.pace import wait_until
from tests.rig.stack import Json, Stack, config, halting, running_stack
from trainmaster.processes import state_of

pytestmark = [pytest.mark.chaos, pytest.mark.hosts]

FREEZER = Path("/sys/fs/cgroup/freezer")
LIMITS = {"TRAINMASTER_UNKILLABLE_SECONDS": "3", "TRAINMASTER_CLEANING_GRACE_SECONDS": "1"}


@pytest.fixture
def one(host_rig: HostRig) -> Iterator[Stack]:
    """A server that soon finds a process unkillable, and one host with two slots."""
    if not host_rig.take(1)[0].isolated:
        pytest.skip("needs network namespaces (root and iproute2)")
    with running_stack(host_rig, 1, LIMITS) as stack:
        stack.add_hosts()
        yield stack


class Freezer:
    """A cgroup of version 1 whose processes no signal reaches while it is frozen."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def freeze(self, pid: int) -> None:
        (self.path / "cgroup.procs").write_text(str(pid))
        self._set("FROZEN")

    def thaw(self) -> None:
        self._set("THAWED")

    def _set(self, state: str) -> None:
        (self.path / "freezer.state").write_text(state)


@pytest.fixture
def freezer() -> Iterator[Freezer]:
    path = FREEZER / f"trainmaster-test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"needs the freezer of cgroup version 1: {error}")
    frozen = Freezer(path)
    yield frozen
    frozen.thaw()
    for pid in (path / "cgroup.procs").read_text().split():
        (FREEZER / "cgroup.procs").write_text(pid)
    assert wait_until(lambda: not path.exists() or _is_removed(path), 60)


def _is_removed(path: Path) -> bool:
    """What has just died is counted for a moment."""
    with contextlib.suppress(OSError):
        path.rmdir()
    return not path.exists()


def slots(stack: Stack) -> list[Json]:
    return list(stack.get("/api/v1/hosts/gpu1")["host"]["slots"])


def begun(stack: Stack, count: int) -> tuple[int, str]:
    """An experiment with a rank on each of its slots, which have written; and its run key."""
    experiment = stack.submit(halting(20), config(count))
    stack.wait_lines(experiment, 2 * count)
    return experiment, stack.run_keys(experiment)[0]


def assert_waits(stack: Stack, experiment: int, sentence: str) -> None:
    """The next pass has seen it, and it was given no slot."""
    job = stack.experiment(experiment)["jobId"]

    def said() -> bool:
        return sentence in str(stack.get(f"/api/v1/jobs/{job}/explain"))

    stack.wait(said, 120, f"{sentence!r} to be why it waits")
    assert stack.experiment(experiment)["state"] == "STATE_QUEUED"


@pytest.mark.survive(14)
def test_a_rank_that_sigkill_does_not_end_holds_its_slot_and_drains_its_host(
    one: Stack, freezer: Freezer
) -> None:
    experiment, key = begun(one, 2)
    rank = max(processes_with_marker(key))
    freezer.freeze(rank)
    one.wait(lambda: state_of(rank) == "D", 60, "the rank to be frozen")
    one.post(f"/api/v1/experiments/{experiment}/kill")
    assert one.wait_end(experiment) == "STATE_CANCELED"
    assert processes_with_marker(key) == [rank]
    one.wait(lambda: one.host_state("gpu1") == "draining", 180, "the host to be drained")
    reason = one.get("/api/v1/hosts/gpu1")["host"]["stateReason"]
    for part in (f"exp {experiment}", "admin", f"pid {rank}", "account root", "gpu1"):
        assert part in reason
    assert not one.holders() and all(slot["cleaning"]["remains"][0]["pid"] == rank for slot in slots(one))
    following = one.submit(halting(4), config(2))
    assert_waits(one, following, "draining")
    freezer.thaw()
    one.wait(lambda: one.host_state("gpu1") == "ready", 180, "the host to be used again")
    one.wait_lines(following, 2)
    one.go_on(one.run_keys(following))
    assert one.wait_end(following) == "STATE_COMPLETED"
    one.assert_nothing_runs([key])


@pytest.mark.survive(13)
def test_a_removed_run_folder_gives_no_slot_away_while_ranks_live(one: Stack, freezer: Freezer) -> None:
    experiment, key = begun(one, 2)
    rank = max(processes_with_marker(key))
    freezer.freeze(rank)
    shutil.rmtree(one.hosts[0].workdir / "runs" / key)
    assert one.wait_end(experiment) == "STATE_ERROR"
    following = one.submit(halting(4), config(2))
    assert_waits(one, following, f"being cleaned up after exp {experiment}")
    freezer.thaw()
    one.wait_lines(following, 2)
    assert not processes_with_marker(key), "never beside what lived of the run before"
    one.go_on(one.run_keys(following))
    assert one.wait_end(following) == "STATE_COMPLETED"
