"""Requests whose config allows some hosts only: where they run, and what they are told while they wait."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given

from scheduling.explain import explain
from scheduling.forecast import forecast
from scheduling.plan import decide
from scheduling.reasons import WaitCode
from tests.rig.pool_worlds import World, host
from tests.rig.random_pools import ANY_POOL, SEEDS, random_request, random_world, worlds


@worlds
@given(seed=SEEDS, pool=ANY_POOL)
def test_no_member_is_ever_placed_on_a_host_that_its_config_does_not_allow(
    seed: int, pool: dict[str, Any]
) -> None:
    """Every pass of these worlds is checked (`pool_worlds.check`), whatever stops, ends and waits again."""
    random, world = Random(seed), random_world(seed, **pool)
    names = [view.name for view in world.snapshot.hosts]
    for number in range(8):
        slots = random.choice([0, 1, 1, 2, 4, 8, 16])
        world.submit(f"only{number}", slots, **random_request(random))
        world.allow(f"only{number}", *random.sample(names, random.randint(1, len(names))))
    for _ in range(6):
        world.tick()
        world.stops_end()
        if world.running:
            world.finish(random.choice(sorted(world.running)))
    for request in world.snapshot.requests:
        if request.only_hosts and request.running is None:
            assert all(reason.sentence for reason in explain(world.snapshot, request.task_id))


def sentences(world: World, label: str) -> list[str]:
    return [reason.sentence for reason in explain(world.snapshot, label)]


def test_it_waits_for_its_own_host_while_another_is_free() -> None:
    world = World([host(1, 2), host(2, 2)])
    world.submit("exp 1", 2)
    world.allow("exp 1", "gpu-1")
    world.settle()
    world.submit("exp 2", 2)
    world.allow("exp 2", "gpu-1")
    world.submit("exp 3", 1)
    world.allow("exp 3", "gpu-1", "gpu-9")
    world.settle()
    assert world.host_of("exp 1") == "h1" and world.running == {"exp 1"}
    assert sentences(world, "exp 2") == [
        "needs 2 slots on one host: gpu-1 is reserved for it (0 of 2 free); waiting for exp 1 to end",
        "only gpu-1 is allowed by its config",
        "gpu-1: 0 free, 2 needed; held by exp 1 (2, same priority)",
        "1 job ahead",
    ]
    assert (
        world.why("exp 3").sentence == "gpu-1 is reserved for exp 2, ahead of it; exp 1 runs there until then"
    )
    assert "not available to it: gpu-9 (not in the pool any more)" in sentences(world, "exp 3")


def test_the_short_reason_names_the_hosts() -> None:
    world = World([host(1, 2), host(2, 2)])
    for number in (1, 2):
        world.submit(f"exp {number}", 1, priority=1)
        world.allow(f"exp {number}", "gpu-1")
    world.submit("exp 3", 1)
    world.allow("exp 3", "gpu-1")
    world.settle()
    assert (
        world.why("exp 3").sentence
        == "no slot is free on an allowed host; only gpu-1 is allowed by its config"
    )
    assert world.why("exp 3").code == WaitCode.NO_ROOM


@pytest.mark.parametrize(
    ("slots", "names", "code", "said"),
    [
        (1, ["gpu-7"], "hosts_gone", "waits for host gpu-7, which is not in the pool any more"),
        (
            1,
            ["gpu-7", "gpu-8"],
            "hosts_gone",
            "waits for hosts gpu-7 and gpu-8, which are not in the pool any more",
        ),
        (
            8,
            ["gpu-1", "gpu-2"],
            "never_fits",
            "needs 8 slots; the 2 hosts here have 4 slots in total; only gpu-1 and gpu-2 are allowed by its config",
        ),
        (
            4,
            ["gpu-1", "gpu-7"],
            "never_fits",
            "needs 4 slots; the only host here has 2 slots; only gpu-1 and gpu-7 are allowed by its config, "
            "and gpu-7 is not in the pool any more",
        ),
        (
            2,
            ["gpu-3"],
            "hosts_off",
            "needs 2 slots on hosts that are unavailable: gpu-3 is draining; only gpu-3 is allowed by its config",
        ),
        (
            1,
            ["gpu-5"],
            "hosts_off",
            "needs 1 slot on hosts that are unavailable: gpu-5 is not ready; only gpu-5 is allowed by its config",
        ),
    ],
)
def test_what_its_hosts_cannot_take_is_said_with_their_names(
    slots: int, names: list[str], code: str, said: str
) -> None:
    world = World(
        [host(1, 2), host(2, 2), host(3, 2, draining=True), host(4, 8)], unready=frozenset({"gpu-5"})
    )
    world.submit("exp 1", slots)
    world.allow("exp 1", *names)
    world.settle()
    assert (str(world.why("exp 1").code), world.why("exp 1").sentence) == (code, said)
    assert world.running == set()


def test_a_gang_takes_whole_hosts_of_those_that_it_may_have() -> None:
    world = World([host(1, 4), host(2, 2), host(3, 4), host(4, 2)])
    world.submit("exp 1", 4)
    world.allow("exp 1", "gpu-2", "gpu-4")
    world.settle()
    running = world["exp 1"].running
    assert running is not None and set(running.slots) == {"h2", "h4"}


def test_a_forecast_goes_by_the_end_on_its_own_host() -> None:
    world = World([host(1, 2), host(2, 2)])
    for label, where, end in (("late", "h1", 9000.0), ("soon", "h2", 100.0)):
        world.submit(label, 2)
        first = int(where[1]) * 100
        world.place(label, {where: (first, first + 1)}, 0.0, ends=(end, end + 60))
    world.submit("exp 3", 2)
    world.allow("exp 3", "gpu-1")
    first, _ = forecast(world.snapshot, decide(world.snapshot)).spans["exp 3"]
    assert first > 5000
