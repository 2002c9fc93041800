"""Weighted max-min fair share over slots."""

import pytest

from scheduling.forecast import forecast
from scheduling.reasons import WaitCode
from scheduling.world import GroupShare
from tests.rig.pool_worlds import World, host


def fair(*sizes: int) -> World:
    return World([host(number, size) for number, size in enumerate(sizes, 1)], scheduler="fair_share")


def submit_many(world: World, job: str, count: int, slots: int = 1, **fields: object) -> None:
    for number in range(count):
        world.submit(f"{job}.{number:03}", slots, job=job, **fields)


@pytest.mark.parametrize(
    ("demands", "weights", "shares"),
    [
        ((3, 7), (10, 30), (2, 6)),
        ((10, 30), (1, 1), (4, 4)),
        ((10, 30), (3, 1), (6, 2)),
        ((1, 30), (1, 1), (1, 7)),
        ((8, 8), (1, 1), (4, 4)),
    ],
)
def test_shares_follow_weight_and_what_one_cannot_use_goes_to_the_other(
    demands: tuple[int, int], weights: tuple[float, float], shares: tuple[int, int]
) -> None:
    world = fair(8)
    for job, demand, weight in zip("ab", demands, weights, strict=True):
        submit_many(world, job, demand, weight=weight)
    world.settle()
    assert (world.held_by_job()["a"], world.held_by_job()["b"]) == shares
    assert world.plan.shares == dict(zip("ab", shares, strict=True))


def test_a_newcomer_gets_its_share_of_a_full_pool_at_once() -> None:
    world = fair(8)
    submit_many(world, "a", 8)
    world.settle()
    submit_many(world, "b", 8)
    plan = world.tick()
    assert len(plan.releases) == 4
    assert {release.task_id[0] for release in plan.releases} == {"a"}
    world.settle()
    assert (world.held_by_job()["a"], world.held_by_job()["b"]) == (4, 4)
    assert world.why("a.007").sentence == "a.007 holds 4; its fair share is now 4 slots"


def test_a_changed_weight_moves_slots() -> None:
    world = fair(8)
    submit_many(world, "a", 8)
    submit_many(world, "b", 8)
    world.settle()
    for number in range(8):
        world.edit(f"b.{number:03}", weight=3.0)
    world.settle()
    assert (world.held_by_job()["a"], world.held_by_job()["b"]) == (2, 6)


def test_the_weight_of_a_job_that_holds_nothing_counts() -> None:
    """Two slots for three jobs: nobody has anything yet, so only the weight tells them apart."""
    world = fair(2)
    for job, weight in (("old", 1.0), ("middle", 1.0)):
        submit_many(world, job, 1, weight=weight)
    world.settle()
    submit_many(world, "heavy", 1, weight=9.0)
    world.settle()
    assert world.plan.shares == {"old": 1, "middle": 0, "heavy": 1}
    assert world.running == {"old.000", "heavy.000"}
    assert world.why("middle.000").sentence == "middle.000 holds 0; its fair share is now 0 slots"


def test_a_forecast_serves_the_heaviest_of_those_that_hold_nothing_first() -> None:
    world = fair(1)
    submit_many(world, "runs", 1, preemptible=False)
    world.settle()
    world.place("runs.000", {"h1": (100,)}, world.now, ends=(900.0, 1100.0))
    for job, weight in (("light", 1.0), ("heavy", 9.0)):
        submit_many(world, job, 1, weight=weight, lasts=(1000.0, 1000.0))
    plan = world.tick()
    spans = forecast(world.snapshot, plan).spans
    assert spans["heavy.000"][1] < spans["light.000"][0]


def test_max_slots_caps_a_share() -> None:
    world = fair(8)
    submit_many(world, "a", 8, max_slots=2)
    submit_many(world, "b", 8)
    world.settle()
    assert (world.held_by_job()["a"], world.held_by_job()["b"]) == (2, 6)


def test_max_slots_of_0_leaves_the_share_to_others() -> None:
    world = fair(8)
    submit_many(world, "a", 8, max_slots=0)
    submit_many(world, "b", 8)
    world.settle()
    assert world.held_by_job()["b"] == 8 and world.plan.shares == {"a": 0, "b": 8}


def test_work_that_may_not_be_stopped_counts_as_given() -> None:
    world = fair(8)
    submit_many(world, "a", 6, preemptible=False)
    world.settle()
    submit_many(world, "b", 8)
    world.settle()
    assert (world.held_by_job()["a"], world.held_by_job()["b"]) == (6, 2)


def test_gangs_never_deadlock_each_other() -> None:
    world = fair(4, 4)
    world.submit("gang1", 8)
    world.submit("gang2", 8)
    world.settle()
    assert world.running == {"gang1"}
    world.finish("gang1")
    world.settle()
    assert world.running == {"gang2"}


def test_a_request_that_never_fits_takes_nobodys_share() -> None:
    world = fair(8)
    submit_many(world, "never", 1, slots=12)
    submit_many(world, "a", 8)
    world.settle()
    assert world.held_by_job()["a"] == 8
    assert world.why("never.000").code == WaitCode.NEVER_FITS


def test_zero_slot_work_starts_first_come_first_served() -> None:
    world = World([host(1, 1, aux_capacity=1)], scheduler="fair_share")
    submit_many(world, "aux", 2, slots=0)
    submit_many(world, "a", 1)
    world.settle()
    assert world.running == {"aux.000", "a.000"}


def test_a_gang_has_hosts_kept_for_its_share_while_small_work_never_ceases() -> None:
    world = fair(4, 4)
    submit_many(world, "small", 8, preemptible=False)
    world.settle()
    world.submit("gang", 4)
    submit_many(world, "more", 40)
    world.settle()
    for _ in range(8):
        if "gang" in world.running:
            break
        world.finish(min(task for task in world.running if task.startswith("small")))
        world.settle()
    assert "gang" in world.running


def test_what_started_on_sufferance_gives_way_to_a_gang_even_once_it_is_granted() -> None:
    world = fair(4, 4)
    world.submit("gang", 4)
    for label, slot, lent in (("first", 100, False), ("second", 101, False), ("lent", 200, True)):
        world.submit(label, 1)
        world.place(label, {f"h{slot // 100}": (slot,)}, world.now, on_sufferance=lent)
    plan = world.tick()
    assert plan.shares == {"gang": 4, "first": 1, "second": 1, "lent": 1}
    assert [(release.task_id, release.for_task_id) for release in plan.releases] == [("lent", "gang")]
    world.settle()
    assert (world.running, world.backfilled) == ({"gang", "first", "second", "lent"}, set())


def test_what_is_above_its_share_is_stopped_before_what_only_started_so() -> None:
    world = fair(3)
    world.submit("gang", 2)
    for label, slot, since in (("granted", 100, 3), ("above", 101, 1), ("more", 102, 2)):
        world.submit(label, 1)
        world.place(label, {"h1": (slot,)}, since, on_sufferance=True)
    assert [release.task_id for release in world.tick().releases] == ["more", "above"]


@pytest.mark.parametrize(
    "shares", [{}, {"vision": GroupShare(guarantee=1), "server": GroupShare(weight=9.0)}]
)
def test_what_yields_is_granted_nothing_and_gives_way_to_all(shares: dict[str, GroupShare]) -> None:
    world = World([host(1, 2)], scheduler="fair_share", shares=shares)
    submit_many(world, "training", 2, groups=("vision",))
    world.settle()
    world.submit("burn-in", 2, yields=True, groups=("server",), weight=9.0)
    world.settle()
    assert world.released == [] and world.running == {"training.000", "training.001"}
    for task in sorted(world.running):
        world.finish(task)
    world.settle()
    assert world.running == {"burn-in"}
    submit_many(world, "other", 1, groups=("vision",))
    world.settle()
    assert world.running == {"other.000"}


def test_in_a_pool_by_priority_it_gives_way_to_work_of_any_group_that_came_later() -> None:
    shares = {"vision": GroupShare(), "server": GroupShare(guarantee=2)}
    world = World([host(1, 2)], shares=shares)
    world.submit("training", 2, priority=99, groups=("vision",))
    world.settle()
    world.submit("burn-in", 2, priority=99, yields=True, groups=("server",))
    world.settle()
    assert world.released == []
    world.finish("training")
    world.settle()
    assert world.running == {"burn-in"}
    world.submit("later", 1, priority=99, groups=("vision",))
    world.settle()
    assert world.running == {"later"}
