"""When two hosts can be in one gang, over what, and what a person is told."""

from dataclasses import replace
from typing import Any

import pytest

from dispatch.watching import pair_verdict
from dispatch.watching.pair_verdict import Side, advice, common
from hosts.models import Host, PairCheck


def side(name: str, last: int, reached: dict[str, float | str], interface: str = "eth1") -> Side:
    """A host with 192.168.0.<last> on eth0, its peer address, 10.1.0.<last> and a bridge that all hosts have.

    `reached`: the other's address -> MB/s, or why it was not reached.
    """
    own = [
        ("eth0", f"192.168.0.{last}", 1000),
        (interface, f"10.1.0.{last}", 25000),
        ("docker0", "172.17.0.1", None),
    ]
    return Side(
        name,
        f"192.168.0.{last}",
        [{"interface": i, "address": a, "prefix": 24, "speed_mbit": speed} for i, a, speed in own],
        [_way(address, found, own[0][1]) for address, found in reached.items()],
    )


def _way(address: str, found: float | str, source: str) -> dict[str, Any]:
    if isinstance(found, str):
        return {"address": address, "ok": False, "error": found, "source": None}
    return {
        "address": address,
        "ok": True,
        "error": None,
        "source": source,
        "round_trip_ms": 0.2,
        "mb_per_second": found,
    }


BOTH = (
    side("gpu1", 1, {"192.168.0.2": 110.0, "10.1.0.2": 3100.0}),
    side("gpu2", 2, {"192.168.0.1": 112.0, "10.1.0.1": 3000.0}),
)


def test_addresses_that_both_hosts_have_are_not_dialled() -> None:
    assert pair_verdict.to_dial(*BOTH) == ["192.168.0.2", "10.1.0.2"]


def test_a_pair_meets_on_the_fastest_network_or_on_the_pools_interface() -> None:
    found = pair_verdict.judge(*BOTH, "")
    assert found.ok and (found.interface, found.mb_per_second) == ("eth1", 3000.0)
    assert found.sentence == "They connect over 10.1.0.0/24 (eth1): 0.2 ms, 3.0 GB/s."
    assert pair_verdict.link(*BOTH, "").address == "10.1.0.1"
    found = pair_verdict.judge(*BOTH, "eth0")
    assert found.ok and (found.interface, found.mb_per_second) == ("eth0", 110.0)
    assert pair_verdict.link(*BOTH, "eth0").interfaces == ("eth0", "eth0")


@pytest.mark.survive(17)
def test_a_pair_is_bad_if_one_way_to_a_gang_address_is_closed() -> None:
    closed = side("gpu2", 2, {"192.168.0.1": "timed out", "10.1.0.1": 3000.0})
    found = pair_verdict.judge(BOTH[0], closed, "")
    assert not found.ok
    assert found.sentence == (
        "gpu2 cannot reach gpu1 at 192.168.0.1: timed out. "
        "They do connect over 10.1.0.0/24 (eth1): set 10.1.0.1 and 10.1.0.2 as their gang addresses."
    )


@pytest.mark.survive(17)
def test_a_pair_is_bad_if_it_does_not_meet_on_the_pools_interface() -> None:
    found = pair_verdict.judge(*BOTH, "ib0")
    assert not found.ok
    assert "gpu1 and gpu2 cannot reach each other on ib0, the pool's interface for gangs." in found.sentence


def test_hosts_of_different_networks_meet_where_a_router_joins_them() -> None:
    far = replace(
        side("gpu2", 2, {"192.168.0.1": 90.0}),
        address="192.168.7.2",
        interfaces=[{"interface": "ens5", "address": "192.168.7.2", "prefix": 24, "speed_mbit": None}],
    )
    near = side("gpu1", 1, {"192.168.7.2": 80.0})
    found = pair_verdict.judge(near, far, "")
    assert found.ok and found.networks == []
    assert (found.interface, found.mb_per_second) == ("eth0", 80.0)
    assert pair_verdict.link(near, far, "").address == "192.168.0.1"


def test_an_all_reduce_that_fails_makes_the_pair_bad_and_one_that_cannot_be_tried_does_not() -> None:
    found = pair_verdict.judge(*BOTH, "")
    done = {"state": "done", "mb_per_second": 812.0}
    fast = pair_verdict.with_all_reduce(found, {"gpu1": done, "gpu2": {**done, "mb_per_second": 800.0}})
    assert fast.ok and fast.all_reduce_mb_per_second == 800.0
    assert fast.sentence.endswith("3.0 GB/s; all-reduce 800 MB/s.")
    failed = {"state": "failed", "message": "Connection closed by peer"}
    bad = pair_verdict.with_all_reduce(found, {"gpu1": done, "gpu2": failed})
    assert not bad.ok and "all-reduce fails: gpu2: Connection closed by peer." in bad.sentence
    untried = {"state": "untried", "message": "torch cannot be imported"}
    unknown = pair_verdict.with_all_reduce(found, {"gpu1": failed, "gpu2": untried})
    assert (
        unknown.ok and "The all-reduce test was not run: gpu2: torch cannot be imported." in unknown.sentence
    )


def check(first: Side, second: Side) -> PairCheck:
    found = pair_verdict.judge(first, second, "")
    return PairCheck(first=Host(name=first.name), second=Host(name=second.name), networks=found.networks)


def test_the_common_network_is_the_fastest_on_which_all_pairs_meet() -> None:
    third = side(
        "gpu3",
        3,
        {"192.168.0.1": 100.0, "192.168.0.2": 100.0, "10.1.0.1": 9000.0, "10.1.0.2": "no route to host"},
    )
    first = side("gpu1", 1, {"192.168.0.3": 105.0, "10.1.0.3": 9000.0})
    second = side("gpu2", 2, {"192.168.0.3": 105.0})
    networks = common([check(*BOTH), check(first, third), check(second, third)])
    assert [(one.network, one.everywhere, one.pairs) for one in networks] == [
        ("192.168.0.0/24", True, 3),
        ("10.1.0.0/24", False, 2),
    ]
    assert advice(networks, "lab", "") == (
        "All 3 hosts connect over 192.168.0.0/24 (eth0, 100 MB/s). "
        "To use it for gangs, run `trainmaster pool edit lab --network-interface eth0`."
    )
    two = common([check(*BOTH)])
    assert advice(two, "lab", "eth1") == (
        "gpu1 and gpu2 connect over 10.1.0.0/24 (eth1, 3.0 GB/s); on 192.168.0.0/24 (eth0) 110 MB/s."
    )
