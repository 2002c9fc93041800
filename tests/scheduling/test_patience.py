"""Patience: when hosts are reserved for a gang, what that costs, and that every gang gets its turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from scheduling import idle_slots
from scheduling.forecast import forecast
from scheduling.plan import decide
from scheduling.reasons import WaitCode
from tests.rig.pool_worlds import World, check, host
from tests.rig.random_pools import ANY_POOL, SEEDS, random_world

HOUR = 3600.0


def half_full(patience: float | None, ends: tuple[float, float] | None) -> World:
    """A host of four slots, one held; a gang of four waits, then work for one slot."""
    world = World([host(1, 4)], preemption=False, patience=patience)
    world.submit("runs", 1)
    world.tick()
    running = world["runs"].running
    assert running is not None
    world.edit("runs", running=replace(running, ends=ends))
    world.submit("gang", 4, lasts=(60.0, 120.0))
    world.submit("small", 1, lasts=(60.0, 120.0))
    world.tick()
    return world


@pytest.mark.parametrize(
    ("patience", "ends", "kept"),
    [
        (None, (9 * HOUR, 9 * HOUR), True),
        (HOUR, (9 * HOUR, 9 * HOUR), False),
        (10 * HOUR, (9 * HOUR, 9 * HOUR), True),
        (HOUR, None, False),
        (0, (9 * HOUR, 9 * HOUR), False),
    ],
)
def test_hosts_are_reserved_once_the_start_is_within_the_patience(
    patience: float | None, ends: tuple[float, float] | None, kept: bool
) -> None:
    world = half_full(patience, ends)
    assert ("gang" in world.plan.reservations) is kept
    assert ("small" in world.running) is not kept
    assert world.why("gang").code == (WaitCode.HELD if kept else WaitCode.UNRESERVED)


def test_the_time_that_a_gang_has_waited_counts() -> None:
    world = half_full(HOUR, (9 * HOUR, 9 * HOUR))
    reason = world.why("gang")
    assert reason.sentence == (
        "needs 4 slots on one host; no hosts are reserved for it yet: it may have to wait until 09:00 UTC, "
        "and patience allows that once that is at most 1 h away"
    )
    assert forecast(world.snapshot, world.plan).unknown["gang"] == reason.sentence
    world.now = 4.1 * HOUR
    world.finish("small")
    world.submit("next", 1)
    world.tick()
    assert "gang" in world.plan.reservations and "next" not in world.running


def test_if_nobody_knows_when_it_could_start_it_waits_as_long_as_the_patience() -> None:
    world = half_full(HOUR, None)
    assert "nobody knows when it could start" in world.why("gang").sentence
    world.now = 1.1 * HOUR
    world.tick()
    assert "gang" in world.plan.reservations


def test_a_reservation_is_kept_although_an_estimate_grows() -> None:
    world = half_full(HOUR, (0.9 * HOUR, HOUR))
    assert "gang" in world.plan.reservations
    running = world["runs"].running
    assert running is not None
    world.edit("runs", running=replace(running, ends=(HOUR, 9 * HOUR)))
    snapshot = world.snapshot
    assert "gang" not in decide(snapshot).reservations
    kept = replace(snapshot, pool=replace(snapshot.pool, reserved=frozenset({"gang"})))
    assert "gang" in decide(kept).reservations


def test_many_gangs_that_are_too_early_hide_no_near_one() -> None:
    world = World([host(1, 4), host(2, 4)], preemption=False, patience=HOUR, max_reservations=4)
    for label, hours in (("near", 0.5), ("far", 9)):
        world.submit(label, 1)
        world.tick()
        running = world[label].running
        assert running is not None
        world.edit(label, running=replace(running, ends=(hours * HOUR, hours * HOUR)))
        world.submit(f"fills {label}", 3)
        world.tick()
    for number in range(6):
        world.submit(f"wide{number}", 8)
    world.submit("gang", 4)
    world.tick()
    assert world.why("wide5").code == world.why("wide0").code == WaitCode.UNRESERVED
    world.finish("fills near")
    world.tick()
    assert "gang" in world.plan.reservations


def test_what_a_reservation_costs_is_added_up() -> None:
    world = half_full(None, None)
    labels = {"gang": "gang"}
    first = idle_slots.costs({}, world.plan, labels, world.now)["gang"]
    assert (first.free, first.slot_seconds, first.keeps_from, first.hosts) == (3, 0.0, 1, ("gpu-1",))
    found = first
    for minutes in range(4, 61, 4):
        found = idle_slots.costs({"gang": found.record()}, world.plan, labels, world.now + 60 * minutes)[
            "gang"
        ]
    assert found.slot_seconds == 3 * HOUR and found.since == first.since
    assert idle_slots.told(found.record()) == "3.0 slot-hours idle there so far"
    after = idle_slots.costs({"gang": found.record()}, world.plan, labels, world.now + 60 * HOUR)["gang"]
    assert after.slot_seconds == 3 * HOUR + 3 * idle_slots.LONGEST_GAP  # nobody looked in between
    assert idle_slots.told(first.record()) == ""


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, rules=ANY_POOL)
def test_a_plan_with_patience_is_legal_and_a_long_one_changes_nothing(
    seed: int, rules: dict[str, Any]
) -> None:
    snapshot = random_world(seed, **rules).snapshot
    hurried = replace(snapshot, pool=replace(snapshot.pool, patience=5.0))
    check(hurried, decide(hurried))
    waited = tuple(replace(each, submitted_at=-1e9) for each in snapshot.requests)
    patient = replace(snapshot, requests=waited, pool=replace(snapshot.pool, patience=1e6))
    assert decide(patient) == decide(replace(snapshot, requests=waited))
