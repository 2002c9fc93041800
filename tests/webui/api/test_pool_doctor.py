"""The pairs of a pool over REST: tested by admins, read by all."""

import pytest

from hosts import pair_checks
from hosts.models import ResourcePool
from hosts.pair_checks import PairFound
from tests.rig.api import Cast
from tests.rig.world import make_host

NETWORK = {"network": "10.0.0.0/24", "mb_per_second": 900.0, "round_trip_ms": 0.1, "speed_mbit": 10_000}


def test_all_pairs_are_asked_for_once_and_shown_with_the_bad_ones_first(
    cast: Cast, pool: ResourcePool
) -> None:
    one, other, third = (make_host(name, 1, pool) for name in ("gpu1", "gpu2", "gpu3"))
    met = {**NETWORK, "interfaces": {"gpu1": "eth0", "gpu2": "eth0"}}
    pair_checks.note(one, other, PairFound(True, "They meet.", "eth0", 0.1, 900.0, 400.0, [met]))
    pair_checks.note(third, other, PairFound(False, "gpu2 cannot reach gpu3 at 10.0.0.3: timed out."))
    asked = cast.admin.post("resource-pools/default/doctor")
    assert (asked["running"], asked["done"], asked["all"]) == (True, 0, 3)
    shown = cast.vic.get("resource-pools/default/doctor")
    assert shown["running"] and shown["hosts"] == ["gpu1", "gpu2", "gpu3"]
    assert [(pair["first"], pair["second"], pair["ok"]) for pair in shown["pairs"]] == [
        ("gpu2", "gpu3", False),
        ("gpu1", "gpu2", True),
    ]
    assert shown["pairs"][1]["allReduceMbPerSecond"] == 400.0
    assert shown["interfaces"][0]["hosts"] == {"gpu1": "eth0", "gpu2": "eth0"}
    assert not shown["interfaces"][0]["everywhere"]
    assert cast.admin.post("resource-pools/default/doctor")["startedAt"] == asked["startedAt"]


@pytest.mark.parametrize("who", ["ada", "vic", "stranger"])
def test_pairs_are_tested_by_admins_alone(cast: Cast, pool: ResourcePool, who: str) -> None:
    expected = 401 if who == "stranger" else 403
    assert getattr(cast, who).refused("POST", "resource-pools/default/doctor")[0] == expected


def test_a_pool_of_one_host_and_an_unknown_one_are_refused(cast: Cast, pool: ResourcePool) -> None:
    make_host("gpu1", 1, pool)
    status, sentence = cast.admin.refused("POST", "resource-pools/default/doctor")
    assert (status, sentence) == (409, "Pool default has one ready host; a pair needs two.")
    assert cast.admin.refused("GET", "resource-pools/nothing/doctor")[0] == 404
