"""Every blocker of one request."""

import pytest

from scheduling.explain import explain
from tests.rig.pool_worlds import World, host


def sentences(world: World, label: str) -> list[str]:
    return [reason.sentence for reason in explain(world.snapshot, label)]


def test_every_blocker_is_named_not_the_first_alone() -> None:
    world = World(
        [host(1, 4), host(2, 4, outside={0: "root", 1: "root"}), host(3, 4, silent=True)], preemption=False
    )
    world.submit("exp 1", 3, priority=10)
    world.submit("cmd 2", 2, preemptible=False)
    world.settle()
    world.submit("exp 3", 4, max_slots=6)
    world.settle()
    assert sentences(world, "exp 3") == [
        "needs 4 on one host: gpu-1 has 1 free, 3 held by exp 1",
        "not used for it: gpu-3 (silent) and gpu-2 (held from outside (root, 2 slots))",
        "gpu-1: 1 of 4 free; held by exp 1 (3, runs to its end)",
        "2 jobs stand before it",
        "pool default stops nothing for it: preemption is off there",
    ]


def test_what_runs_or_starts_has_no_blockers_and_never_has_one() -> None:
    world = World([host(1, 8)])
    world.submit("exp 1", 8)
    assert sentences(world, "exp 1") == []
    world.settle()
    assert sentences(world, "exp 1") == []
    world.submit("exp 2", 12)
    assert sentences(world, "exp 2") == ["asks 12; hosts here have 8: 8 or fewer, or a multiple of 8"]
    with pytest.raises(KeyError, match="neither waits nor runs"):
        explain(world.snapshot, "exp 9")


def test_a_holder_that_may_not_be_stopped_is_said_to_be_so() -> None:
    world = World([host(1, 2)])
    world.submit("cmd 1", 1, preemptible=False, priority=90)
    world.submit("exp 2", 1, priority=90)
    world.settle()
    world.submit("exp 3", 2, priority=1)
    world.settle()
    held = next(sentence for sentence in sentences(world, "exp 3") if sentence.startswith("gpu-1: "))
    assert "cmd 1 (1, may not be stopped)" in held
    assert "exp 2 (1, may be stopped, which is not enough here)" in held


def test_a_share_is_named() -> None:
    world = World([host(1, 4)], scheduler="fair_share")
    for job in ("a", "b"):
        for number in range(4):
            world.submit(f"{job}{number}", 1, job=job)
    world.settle()
    assert "a3 holds 2; its fair share now is 2 slots" in sentences(world, "a3")
