"""Hosts measure the links between them by a gang: the one with a slow link is named, and nobody if all are well."""

import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.rig import network
from tests.rig.hosts import Host, HostRig
from tests.rig.stack import Pages, Stack, config, counting, running_stack

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.chaos,  # more than a minute
    pytest.mark.skipif(shutil.which("tc") is None, reason="needs tc (iproute2) to slow a link down"),
]
LIMIT_SECONDS = 300
HOSTS = ["gpu1", "gpu2", "gpu3", "gpu4"]


@pytest.fixture(scope="module")
def stack(host_rig: HostRig) -> Iterator[Stack]:
    if not host_rig.take(1)[0].isolated:
        pytest.skip("needs network namespaces to slow one host down")
    with running_stack(host_rig, hosts=len(HOSTS)) as stack:
        stack.add_hosts(slots=1, python=sys.executable)
        yield stack


@pytest.fixture
def slow(stack: Stack) -> Iterator[Host]:
    """A host whose link carries 40 Mbit/s."""
    host = stack.hosts[2]
    limits = ["root", "tbf", "rate", "40mbit", "burst", "64kb", "latency", "50ms"]
    subprocess.run(["tc", "-n", str(host.namespace), "qdisc", "add", "dev", "eth0", *limits], check=True)
    yield host
    subprocess.run(["tc", "-n", str(host.namespace), "qdisc", "del", "dev", "eth0", "root"], check=True)


def test_the_host_with_the_slow_link_is_named_after_it_has_given_way_to_other_work(
    stack: Stack, slow: Host
) -> None:
    asked = stack.server.cli("host", "burn-in", *HOSTS, "--together")
    assert asked.returncode == 0, asked.stderr
    command = stack.get("/api/v1/hosts/gpu1/health")["groupBurnIn"]["commandId"]
    stack.wait(lambda: "GB/s" in _log(stack, command), LIMIT_SECONDS, "the first rate")
    assert stack.wait_end(stack.submit(counting(1, 0), config(2))) == "STATE_COMPLETED"
    done = stack.server.cli("host", "burn-in", *HOSTS, "--together", "--wait")
    print(done.stdout, done.stderr)
    assert done.returncode == 1
    found = stack.get(f"/api/v1/group-burn-ins/{command}")
    assert found["hosts"] == HOSTS and "gave" not in found["ending"]
    [finding] = found["findings"]
    assert finding["host"] == slow.name
    assert finding["sentence"].startswith("gpu3: all-reduce with each of 3 others 0.00")
    assert finding["sentence"] in Pages(stack.server).text("/hosts/gpu3")
    pairs = [rate for rate in found["rates"] if rate["measure"] == "all_reduce" and len(rate["hosts"]) == 2]
    assert len(pairs) == 6
    assert max(rate["value"] for rate in pairs if slow.name in rate["hosts"]) < 0.006, (
        "40 Mbit/s are 0.005 GB/s"
    )
    proof = [rate for rate in found["rates"] if rate["hosts"] == ["gpu1", "gpu2", "gpu4"]]
    assert proof and proof[0]["value"] > 0.012, "without it the others are well"


@pytest.fixture
def unreachable(stack: Stack) -> Iterator[Host]:
    """A host that reaches the first host of the gang, and no other."""
    third, peers = stack.hosts[2], (stack.hosts[1], stack.hosts[3])
    for peer in peers:
        network.ip("-n", str(third.namespace), "route", "add", "blackhole", f"{peer.address}/32")
    yield third
    for peer in peers:
        network.ip("-n", str(third.namespace), "route", "del", "blackhole", f"{peer.address}/32")


def test_collectives_that_hang_end_and_the_other_rates_are_measured(stack: Stack, unreachable: Host) -> None:
    done = stack.server.cli("host", "burn-in", *HOSTS, "--together", "--wait")
    print(done.stdout, done.stderr)
    assert done.returncode == 1
    found = stack.get("/api/v1/hosts/gpu3/health")["groupBurnIn"]
    assert found["ending"].startswith("exit code 0")
    assert [finding["host"] for finding in found["findings"]] == [None] * 3
    whole, *two = sorted(finding["sentence"] for finding in found["findings"])
    assert two[0].startswith("gpu2 and gpu3: all-reduce fails") and two[1].startswith(
        "gpu3 and gpu4: all-reduce fails"
    )
    assert whole.startswith("all 4 together: all-reduce fails")
    pairs = {
        tuple(rate["hosts"]): rate["value"] for rate in found["rates"] if rate["measure"] == "all_reduce"
    }
    assert pairs["gpu1", "gpu3"] > 0.012 and pairs["gpu2", "gpu3"] == 0.0


def _log(stack: Stack, command: str) -> str:
    return " ".join(record["log"] for record in stack.task_records(command))
