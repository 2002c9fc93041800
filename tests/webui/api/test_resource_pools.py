"""Resource pools over REST: made, edited and removed by admins, read by all."""

import pytest

from dispatch.passes import pool_pass
from hosts import slurm_nodes
from hosts.models import Host, ResourcePool
from hosts.slurm.facts import ClusterFacts, Held, NodeFacts, UserFacts
from jobs.models import Job
from tests.rig.api import Cast
from tests.rig.world import make_host, plan_of, submit_experiment


def test_a_pool_is_made_edited_and_removed(cast: Cast, pool: ResourcePool) -> None:
    made = cast.admin.post("resource-pools", {"name": "a100", "scheduler": "fair_share", "auxPerHost": 3})
    assert made["resourcePool"]["schedulerType"] == "SCHEDULER_TYPE_FAIR_SHARE"
    assert made["resourcePool"]["auxContainerCapacityPerAgent"] == 3
    answer = cast.admin.patch(
        "resource-pools/a100", {"priorityFloor": {"editor": 10}, "strict": True, "auxPerHost": 3}
    )
    assert answer["changed"] == ["priorityFloor", "strict"]
    shown = cast.vic.get("resource-pools/a100")["resourcePool"]
    assert (shown["priorityFloor"], shown["strict"], shown["preemption"]) == ({"editor": 10}, True, True)
    assert [each["name"] for each in cast.vic.get("resource-pools")["resourcePools"]] == ["a100", "default"]
    cast.admin.delete("resource-pools/a100")
    assert cast.vic.refused("GET", "resource-pools/a100")[0] == 404


@pytest.mark.parametrize("who", ["ada", "vic", "stranger"])
def test_pools_are_changed_by_admins_alone(cast: Cast, pool: ResourcePool, who: str) -> None:
    expected = 401 if who == "stranger" else 403
    api = getattr(cast, who)
    assert api.refused("POST", "resource-pools", {"name": "x"})[0] == expected
    assert api.refused("PATCH", "resource-pools/default", {"strict": True})[0] == expected
    assert api.refused("DELETE", "resource-pools/default")[0] == expected


@pytest.mark.parametrize(
    ("body", "status", "part"),
    [
        ({"name": "a b"}, 400, "is not allowed"),
        ({"name": "default"}, 409, "already"),
        ({"name": "x", "scheduler": "round_robin"}, 400, "scheduler: Found 'round_robin'"),
        ({"name": "x", "defaultPriority": 0}, 400, "allowed: a whole number from 1 to 99"),
        ({"name": "x", "colour": "blue"}, 400, "colour: unknown pool field"),
        ({"name": "x", "slurm": {"partition": "gpu"}}, 400, "slurm: login is required: the name or address"),
        ({"name": "x", "slurm": {"login": "stars"}, "loginRoute": {"port": 22}}, 400, "address"),
        (
            {"name": "x", "slurm": {"login": "stars", "accounts": "own"}, "sharedAccount": True},
            400,
            "contradicts accounts=own",
        ),
        (
            {"name": "x", "defaultMaxTimeSeconds": 9, "longestMaxTimeSeconds": 5},
            400,
            "longer than the longest",
        ),
    ],
)
def test_a_wrong_pool_is_refused_with_a_sentence(
    cast: Cast, pool: ResourcePool, body: dict[str, object], status: int, part: str
) -> None:
    code, sentence = cast.admin.refused("POST", "resource-pools", body)
    assert code == status
    assert part in sentence
    assert ResourcePool.objects.count() == 1


def test_a_pool_in_use_is_kept_and_says_why(cast: Cast, host: Host) -> None:
    code, sentence = cast.admin.refused("DELETE", "resource-pools/default")
    assert code == 409
    assert "it has gpu1" in sentence
    assert cast.admin.refused("PATCH", "resource-pools/moon", {"strict": True})[0] == 404


def test_the_scheduler_of_a_live_pool_changes_with_the_next_pass(cast: Cast, pool: ResourcePool) -> None:
    make_host("gpu1", 2)
    for number in range(4):
        submit_experiment(name=f"j{number}")
    pool_pass.run(pool.pk)
    pool.refresh_from_db()
    assert plan_of(pool)["shares"] == {}
    cast.admin.patch("resource-pools/default", {"scheduler": "fair_share"})
    pool_pass.run(pool.pk)
    pool.refresh_from_db()
    assert plan_of(pool)["shares"]
    cast.admin.patch("resource-pools/default", {"scheduler": "priority"})
    assert pool_pass.run(pool.pk)
    pool.refresh_from_db()
    assert plan_of(pool)["shares"] == {}


def test_work_that_names_no_pool_goes_to_the_default_of_its_kind(cast: Cast, pool: ResourcePool) -> None:
    cast.admin.post("resource-pools", {"name": "aux", "defaultAux": True})
    submit_experiment(name="none", slots=0)
    submit_experiment(name="one", slots=1)
    assert dict(Job.objects.values_list("name", "pool__name")) == {"none": "aux", "one": "default"}


def test_a_slot_used_from_outside_is_occupied_to_the_published_client(cast: Cast, host: Host) -> None:
    host.slots.filter(index=1).update(outside={"user": "root", "pid": 77, "command": "python"})
    agent = cast.vic.get("agents/gpu1")["agent"]
    assert agent["slots"]["1"]["container"]["id"] == "outside the queue: root pid 77 python"
    assert agent["containers"] == {}
    assert agent["slotStats"]["typeStats"]["TYPE_CUDA"]["states"] == {}


def test_windows_are_added_tried_changed_and_removed(cast: Cast, host: Host) -> None:
    path = "resource-pools/default/windows"
    body = {
        "name": "drivers", "starts": "2030-07-02T08:00", "ends": "2030-07-02T10:00", "timeZone": "Europe/Berlin",
        "weekly": True, "slots": 1,
    }  # fmt: skip
    tried = cast.admin.post(path, {**body, "dryRun": True})["window"]
    assert (tried["nextStart"], tried["takes"]) == ("2030-07-02T06:00:00.000000Z", [host.name])
    assert cast.vic.get(path)["windows"] == []
    made = cast.admin.post(path, body)["window"]
    assert made == tried
    assert (made["stops"], made["inTheWay"], made["group"]) == ([], [], "")
    cast.admin.patch(f"{path}/drivers", {"hosts": [host.name], "slots": None})
    [shown] = cast.vic.get(path)["windows"]
    assert (shown["hosts"], shown["weekly"], "slots" in shown) == ([host.name], True, False)
    status, sentence = cast.admin.refused("POST", path, {**body, "name": "x", "ends": "2020-01-01T00:00"})
    assert (status, sentence[:6]) == (400, "ends: ")
    assert "unknown window field" in cast.admin.refused("POST", path, {**body, "colour": "blue"})[1]
    assert cast.admin.refused("POST", path, {**body, "name": "x", "dryRun": "false"}) == (
        400,
        "dryRun: found 'false'; allowed: true or false.",
    )
    assert made["openUntil"] == "2030-07-01T06:00:00.000000Z"
    assert cast.ada.refused("POST", path, body)[0] == 403
    assert cast.ada.refused("DELETE", f"{path}/drivers")[0] == 403
    assert cast.admin.refused("DELETE", f"{path}/none")[0] == 404
    cast.admin.delete(f"{path}/drivers")
    assert cast.vic.get(path)["windows"] == []


def test_a_slurm_pool_is_made_and_tells_what_its_cluster_said(cast: Cast, pool: ResourcePool) -> None:
    jump = {"address": "10.0.0.1", "user": "ada"}
    body = {
        "name": "stars",
        "slurm": {"login": "stars1", "partition": "gpu"},
        "loginRoute": {"address": "10.0.0.2", "port": 2222, "user": "ada", "jumps": [jump]},
    }
    made = cast.admin.post("resource-pools", body)["resourcePool"]
    assert (made["kind"], made["slurm"], made["sharedAccount"]) == ("slurm", body["slurm"], True)
    assert (made["slurmCluster"]["loginHost"], made["slurmCluster"]["readAt"]) == ("stars-login", None)
    login = cast.admin.get("hosts/stars-login")["host"]
    assert (login["transport"], login["address"], login["port"]) == ("login", "10.0.0.2", 2222)
    assert [each["address"] for each in login["jumps"]] == ["10.0.0.1"]
    node = NodeFacts("g1", "MIXED", True, "g1", 64, 1000, {"a100": 4}, 4, "", [Held("bob", "7", 3)])
    users = [UserFacts("bob", 1, 2, 3)]
    told = ClusterFacts("22.05.8", "stars", False, "gpu", "UP", None, 30, [node], users)
    stars = ResourcePool.objects.get(name="stars")
    slurm_nodes.took_in(stars, slurm_nodes.login_of(stars), told)
    shown = cast.vic.get("resource-pools/stars")["resourcePool"]
    assert (shown["numAgents"], shown["slotsAvailable"], shown["accelerator"]) == (1, 4, "a100")
    cluster = shown["slurmCluster"]
    assert (cluster["nodes"], cluster["gpus"], cluster["nodeStates"]) == (1, {"a100": 4}, {"MIXED": 1})
    assert cluster["others"] == [{"user": "bob", "running": 1, "waiting": 2, "slots": 3}]
    assert cast.vic.get("resource-pools/default")["resourcePool"]["slurmCluster"] is None
    code, sentence = cast.admin.refused(
        "POST", "hosts", {"name": "gpu7", "pool": "stars", "address": "10.0.0.3"}
    )
    assert code == 400 and "whose hosts are the nodes that Slurm lists" in sentence
