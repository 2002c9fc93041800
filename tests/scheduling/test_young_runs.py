"""A pool's minimum run time: others do not stop what has not run for so long, unless a user wants it."""

from datetime import UTC, datetime
from typing import Any

from scheduling.explain import explain
from scheduling.forecast import forecast
from scheduling.reasons import WaitCode, clock
from tests.rig.pool_worlds import World, host

MINUTE = 60.0


def busy(**pool: Any) -> World:
    """One host of one slot, on which `low` has run since second 2."""
    world = World([host(1, 1)], **({"min_runtime": ((1, 10 * MINUTE),)} | pool))
    world.submit("low", 1, priority=60)
    world.tick()
    assert world.running == {"low"}
    return world


def test_a_young_run_is_left_alone_until_it_has_run_for_the_minimum() -> None:
    world = busy()
    world.submit("high", 1, priority=10)
    world.tick()
    assert world.released == []
    world.now = 2 + 10 * MINUTE - 2
    world.tick()
    assert world.released == []
    world.tick()
    assert world.released == ["low"]


def test_what_waits_is_told_when_the_run_may_be_stopped() -> None:
    world = busy()
    world.submit("high", 1, priority=10)
    world.submit("behind", 1, priority=70)
    world.tick()
    at = f"{datetime.fromtimestamp(2 + 10 * MINUTE, UTC):%H:%M} UTC"
    assert world.why("high").code == WaitCode.NO_ROOM
    assert world.why("high").sentence.endswith(f"low started recently, may be stopped from {at} on")
    assert "recently" not in world.why("behind").sentence
    rows = [reason.sentence for reason in explain(world.snapshot, "high")]
    assert any(f"held by low (1, started recently, may be stopped from {at} on)" in row for row in rows), rows


def test_a_time_of_another_day_is_told_with_the_day() -> None:
    now = datetime(2026, 11, 27, 23, 50, tzinfo=UTC).timestamp()
    assert clock(now + 5 * MINUTE, now) == "23:55 UTC"
    assert clock(now + 20 * MINUTE, now) == "Nov 28 00:10 UTC"
    assert clock(now + 365 * 24 * 60 * MINUTE, now) == "Nov 27, 2027 23:50 UTC"


def test_the_minimum_depends_on_the_priority_of_the_run() -> None:
    for min_runtime, is_stopped in (
        (((1, 600.0), (50, 0.0)), True),
        (((1, 0.0), (60, 600.0)), False),
        (((61, 600.0),), True),
    ):
        world = busy(min_runtime=min_runtime)
        world.submit("high", 1, priority=10)
        world.tick()
        assert (world.released == ["low"]) is is_stopped, min_runtime


def test_the_time_counts_from_the_start_of_the_processes() -> None:
    world = World([host(1, 1)], min_runtime=((1, 100.0),))
    world.submit("low", 1, priority=60)
    world.place("low", {"h1": (100,)}, 1.0)  # it has its slots, and is still being launched
    world.submit("high", 1, priority=10)
    world.now = 500.0
    world.tick()
    assert world.released == []
    world.place("low", {"h1": (100,)}, 1.0, running_since=450.0)
    world.tick()
    assert world.released == []
    world.now = 550.0
    world.tick()
    assert world.released == ["low"]


def test_a_user_who_moves_a_job_ahead_has_young_runs_stopped() -> None:
    world = busy()
    world.submit("same", 1, priority=60)
    world.submit("high", 1, priority=10)
    world.tick()
    assert world.released == []
    world.move_ahead("same", of="low")
    world.tick()
    assert world.released == ["low"]
    lower = busy()
    lower.submit("high", 1, priority=10)
    lower.tick()
    lower.edit("high", moved_at=lower.now + 1)  # moved to the top of its own priority
    lower.tick()
    assert lower.released == ["low"]


def test_what_started_after_the_move_is_left_alone() -> None:
    world = busy()
    world.submit("high", 1, priority=10, moved_at=0.5)
    world.tick()
    assert world.released == []


def test_a_run_that_a_user_moved_behind_is_stopped() -> None:
    world = busy()
    world.submit("high", 1, priority=10)
    world.edit("low", moved_at=world.now + 1, position=99.0)
    world.now += 1
    world.tick()
    assert world.released == ["low"]


def test_work_that_is_lent_the_slots_of_a_gang_gives_them_back_at_once() -> None:
    world = World([host(1, 1), host(2, 1)], min_runtime=((1, 10 * MINUTE),))
    world.submit("first", 1)
    world.tick()
    world.submit("gang", 2)
    world.submit("small", 1)
    world.settle()
    assert world.backfilled == {"small"}
    world.finish("first")
    world.tick()
    assert world.released == ["small"]


def test_in_a_pool_by_shares_work_above_its_share_is_left_alone_while_it_is_young() -> None:
    world = World([host(1, 2)], scheduler="fair_share", min_runtime=((1, 10 * MINUTE),))
    world.submit("a1", 1, job="a")
    world.submit("a2", 1, job="a")
    world.settle()
    world.submit("b1", 1, job="b")
    world.settle()
    assert world.released == []
    assert "started recently" in world.why("b1").sentence
    world.now += 10 * MINUTE
    world.tick()
    assert len(world.released) == 1


def test_a_gang_reserves_hosts_that_can_be_had_sooner() -> None:
    """The young run on the first host may be stopped soon, that on the second goes on for hours."""
    world = World([host(1, 2), host(2, 2)], min_runtime=((50, 100.0),))
    for label, number, ends in (("young", 1, (5000.0, 9000.0)), ("long", 2, (600.0, 800.0))):
        world.submit(label, 1, priority=60 if label == "young" else 10)
        world.place(label, {f"h{number}": (number * 100,)}, 1.0, running_since=world.now, ends=ends)
    world.submit("gang", 2, priority=20)
    world.tick()
    assert world.plan.reservations == {"gang": ("h1",)}
    world.now += 101
    world.tick()
    assert world.released == ["young"]


def test_the_forecast_knows_when_a_young_run_may_be_stopped() -> None:
    world = busy()
    world.edit("low", running=None)
    world.place("low", {"h1": (100,)}, 2.0, running_since=2.0, ends=(50_000.0, 90_000.0))
    world.submit("high", 1, priority=10, lasts=(50.0, 60.0))
    world.tick()
    spans = forecast(world.snapshot, world.plan).spans
    earliest, latest = spans["high"]
    until = 2 + 10 * MINUTE
    assert until * 0.8 <= earliest <= latest <= until * 1.3


def test_a_request_is_not_told_of_young_runs_on_hosts_that_it_avoids() -> None:
    world = busy()
    world.submit("high", 1, priority=10, avoid_hosts=frozenset({"h1"}))
    world.tick()
    assert "recently" not in world.why("high").sentence
