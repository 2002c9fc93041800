"""Every pair of a pool's hosts meets for real: over what, how fast; and no gang spans a pair that cannot."""

import json
import re
import sys
from collections.abc import Iterator

import pytest

from tests.rig.hosts import HostRig
from tests.rig.stack import Json, Pages, Stack, config, counting, running_stack

pytestmark = pytest.mark.hosts

LIMIT_SECONDS = 90
DOCTOR = "/api/v1/resource-pools/default/doctor"


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """Two hosts with a slot each, on one bridge."""
    if not host_rig.take(1)[0].isolated:
        pytest.skip("needs network namespaces to keep two hosts apart")
    with running_stack(host_rig) as stack:
        stack.add_hosts(slots=1, python=sys.executable)
        yield stack


def doctor(stack: Stack) -> tuple[int, Json]:
    """Exit code and answer of `host doctor --pool default`."""
    done = stack.server.cli("host", "doctor", "--pool", "default", "-o", "json")
    assert "Pair 1 of 1" in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def reasons(stack: Stack, experiment: int) -> str:
    job = stack.experiment(experiment)["jobId"]
    tasks = stack.get(f"/api/v1/jobs/{job}/explain")["tasks"]
    return " ".join(row["sentence"] for task in tasks for row in task["blockers"])


def test_a_gang_waits_while_its_hosts_cannot_meet_and_starts_when_they_can(stack: Stack) -> None:
    code, found = doctor(stack)
    (pair,) = found["pairs"]
    assert code == 0 and pair["ok"], found
    assert (pair["first"], pair["second"], pair["interface"]) == ("gpu1", "gpu2", "eth0")
    assert pair["roundTripMs"] > 0 and pair["mbPerSecond"] > 0 and pair["allReduceMbPerSecond"] > 0, pair
    assert found["interfaces"][0]["everywhere"] and "gpu1 and gpu2 meet on 10.203." in found["advice"]

    for host in stack.hosts:
        host.keep_from_peers(True)
    code, found = doctor(stack)
    (pair,) = found["pairs"]
    assert code == 1 and not pair["ok"]
    assert "gpu1 does not reach gpu2 at 10.203." in pair["sentence"]
    assert found["interfaces"] == []
    assert "1 pair cannot be in one gang" in Pages(stack.server).text("/pools/default/pairs")
    experiment = stack.submit(counting(1, 0), config(2))
    stack.wait(
        lambda: "no gang spans hosts whose ranks cannot meet: gpu1 and gpu2" in reasons(stack, experiment),
        LIMIT_SECONDS, "the reason",
    )  # fmt: skip
    assert not stack.holders()

    for host in stack.hosts:
        host.keep_from_peers(False)
    Pages(stack.server).press("/pools/default/pairs", "/pools/default/pairs/test")
    assert stack.wait_end(experiment, LIMIT_SECONDS) == "STATE_COMPLETED"
    (pair,) = stack.get(DOCTOR)["pairs"]
    assert pair["ok"]
    shown = stack.server.cli("host", "doctor", "--pool", "default").stdout
    assert re.search(r"gpu1 +\| · +\| [\d.]+ MB/s", shown), shown
