"""Every pair of a pool's hosts meets for real: over what, how fast; and no gang spans a pair that cannot."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.rig import network
from tests.rig.hosts import HostRig
from tests.rig.stack import Json, Pages, Stack, config, counting, running_stack

pytestmark = [pytest.mark.hosts, pytest.mark.chaos]  # more than a minute together

LIMIT_SECONDS = 240
DOCTOR = "/api/v1/resource-pools/default/doctor"


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    """Two hosts with a slot each, on one bridge."""
    if not host_rig.take(1)[0].isolated:
        pytest.skip("needs network namespaces to keep two hosts apart")
    with running_stack(host_rig) as stack:
        stack.add_hosts(slots=1, python=sys.executable)
        yield stack


@pytest.fixture
def second_network(stack: Stack) -> Iterator[str]:
    """The interface of a cable between the two hosts that is faster than their bridge, which is slowed down."""
    one, other = (str(host.namespace) for host in stack.hosts)
    network.ip("link", "add", "eth1", "netns", one, "type", "veth", "peer", "name", "eth1", "netns", other)
    for number, namespace in enumerate((one, other), 1):
        network.ip("-n", namespace, "addr", "add", f"10.204.0.{number}/24", "dev", "eth1")
        network.ip("-n", namespace, "link", "set", "eth1", "up")
        slow = [
            "qdisc",
            "add",
            "dev",
            "eth0",
            "root",
            "tbf",
            "rate",
            "200mbit",
            "burst",
            "128kb",
            "latency",
            "50ms",
        ]
        subprocess.run(["tc", "-n", namespace, *slow], check=True)
    yield "eth1"
    network.ip("-n", one, "link", "del", "eth1")
    for namespace in (one, other):
        subprocess.run(["tc", "-n", namespace, "qdisc", "del", "dev", "eth0", "root"], check=True)


def doctor(stack: Stack) -> tuple[int, Json]:
    """Exit code and answer of `host doctor --pool default`."""
    done = stack.server.cli("host", "doctor", "--pool", "default", "-o", "json")
    assert "Pair 1 of 1" in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def reasons(stack: Stack, experiment: int) -> str:
    job = stack.experiment(experiment)["jobId"]
    tasks = stack.get(f"/api/v1/jobs/{job}/explain")["tasks"]
    return " ".join(row["sentence"] for task in tasks for row in task["blockers"])


@pytest.mark.survive(17)
def test_a_gang_waits_while_its_hosts_cannot_meet_and_starts_when_they_can(stack: Stack) -> None:
    code, found = doctor(stack)
    (pair,) = found["pairs"]
    assert code == 0 and pair["ok"], found
    assert (pair["first"], pair["second"], pair["interface"]) == ("gpu1", "gpu2", "eth0")
    assert pair["roundTripMs"] > 0 and pair["mbPerSecond"] > 0 and pair["allReduceMbPerSecond"] > 0, pair
    assert found["interfaces"][0]["everywhere"] and "gpu1 and gpu2 connect over 10.203." in found["advice"]

    for host in stack.hosts:
        host.keep_from_peers(True)
    code, found = doctor(stack)
    (pair,) = found["pairs"]
    assert code == 1 and not pair["ok"]
    assert "gpu1 cannot reach gpu2 at 10.203." in pair["sentence"]
    assert found["interfaces"] == []
    assert "1 pair cannot be in one gang" in Pages(stack.server).text("/pools/default/pairs")
    experiment = stack.submit(counting(1, 0), config(2))
    stack.wait(
        lambda: "no gang can span hosts that cannot reach each other: gpu1 and gpu2" in reasons(stack, experiment),
        LIMIT_SECONDS, "the reason",
    )  # fmt: skip
    stack.wait_free()

    for host in stack.hosts:
        host.keep_from_peers(False)
    Pages(stack.server).press("/pools/default/pairs", "/pools/default/pairs/test")
    assert stack.wait_end(experiment, LIMIT_SECONDS) == "STATE_COMPLETED"
    (pair,) = stack.get(DOCTOR)["pairs"]
    assert pair["ok"]
    shown = stack.server.cli("host", "doctor", "--pool", "default").stdout
    assert re.search(r"gpu1 +\| · +\| [\d.]+ MB/s", shown), shown


@pytest.mark.skipif(shutil.which("tc") is None, reason="needs tc (iproute2) to slow a link down")
def test_the_fastest_common_network_is_found_and_named(stack: Stack, second_network: str) -> None:
    code, found = doctor(stack)
    (pair,) = found["pairs"]
    assert code == 0 and pair["interface"] == second_network, found
    assert [(row["interface"], row["everywhere"]) for row in found["interfaces"]] == [
        ("eth1", True),
        ("eth0", True),
    ]
    assert found["interfaces"][0]["mbPerSecond"] > 2 * found["interfaces"][1]["mbPerSecond"]
    assert pair["allReduceMbPerSecond"] > 25, "200 Mbit/s are 25 MB/s: it went over the cable"
    assert "--network-interface eth1" in found["advice"]
    print(stack.server.cli("host", "doctor", "--pool", "default").stdout)
