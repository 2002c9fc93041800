"""Deadlines: what goes ahead of its turn, how far, that it is kept, and what is said of a deadline."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings

from scheduling.deadlines import LONGEST_PASSED, Look, Outcome, look
from scheduling.forecast import Forecast, forecast
from scheduling.group_shares import path_of
from scheduling.plan import decide
from scheduling.reasons import depends
from scheduling.runs import standing
from scheduling.world import GroupShare, Plan, Request, Snapshot
from tests.rig.pool_worlds import World, check, host
from tests.rig.random_pools import ANY_POOL, PATHS, SEEDS, random_world

HOUR = 3600.0


def seen(snapshot: Snapshot, plan: Plan, late: Collection[str] = ()) -> Look:
    """What the pass that made this plan sees, once it has a forecast."""

    def play(order: Sequence[str], tasks: Sequence[str]) -> Forecast:
        return forecast(snapshot, replace(plan, order=tuple(order)), asked=tasks)

    return look(snapshot, plan, forecast(snapshot, plan), play, late=late)


def moved(snapshot: Snapshot, found: Look) -> Snapshot:
    """The snapshot with the new positions, as `jobs.deadlines.go_ahead` gives them."""
    for move in found.moves.values():
        peers = sorted(snapshot.requests, key=standing)
        anchor = next(each for each in peers if each.job_id == move.ahead_of)
        before = [
            each.position
            for each in peers
            if each.priority == anchor.priority and each.position < anchor.position
        ]
        position = (before[-1] + anchor.position) / 2 if before else anchor.position - 1
        snapshot = replace(
            snapshot,
            requests=tuple(
                replace(each, position=position, usual_position=each.usual_position or each.position)
                if each.job_id == move.job_id
                else each
                for each in snapshot.requests
            ),
        )
    return snapshot


def lasting(hours: float) -> tuple[float, float]:
    return (hours * HOUR / 2, hours * HOUR)


def one_host(**pool: Any) -> World:
    """A host of one slot that is held for an hour."""
    world = World([host(1, 1)], **{"preemption": False, **pool})
    world.submit("runs", 1)
    world.tick()
    ends_within(world, "runs", 1)
    return world


def ends_within(world: World, label: str, hours: float) -> None:
    running = world[label].running
    assert running is not None
    world.edit(label, running=replace(running, ends=(world.now + hours * HOUR / 2, world.now + hours * HOUR)))


def waits(world: World, *jobs: tuple[str, float, float | None], **fields: Any) -> Look:
    """(label, hours that it runs, deadline in hours) of work that waits, in this order."""
    for label, hours, deadline in jobs:
        at = None if deadline is None else deadline * HOUR
        world.submit(label, 1, lasts=lasting(hours), deadline=at, **fields)
    world.tick()
    return seen(world.snapshot, world.plan)


def served(world: World, found: Look) -> Look:
    """Carry the moves out, and look again."""
    world._snapshot = moved(world.snapshot, found)
    world.tick()
    return seen(world.snapshot, world.plan)


def order(world: World) -> list[str]:
    return [task for task in world.plan.order if task in world.plan.waits]


def test_a_job_goes_ahead_only_as_far_as_its_deadline_needs() -> None:
    world = one_host()
    found = waits(world, ("a", 2, None), ("b", 2, None), ("c", 2, None), ("due", 1, 4.6))
    assert found.moves["due"].ahead_of == "b" and found.moves["due"].passes == ("b", "c")
    assert found.verdicts["due"].outcome is Outcome.AT_RISK
    after = served(world, found)
    assert order(world) == ["a", "due", "b", "c"]
    assert after.verdicts["due"].outcome is Outcome.MET and not after.moves
    assert after.verdicts["due"].sentence == "meets its deadline, 04:36 UTC; it was moved ahead for that"


def test_a_deadline_that_is_met_anyway_moves_nothing_and_adds_nothing_to_the_reason() -> None:
    found = waits(one_host(), ("a", 2, None), ("due", 1, 9.0))
    assert not found.moves and found.verdicts["due"].outcome is Outcome.MET
    assert not found.verdicts["due"].tells


def test_a_deadline_that_cannot_be_met_is_told_early_and_moves_nothing() -> None:
    found = waits(one_host(), ("a", 2, None), ("due", 3, 1.8))
    assert not found.moves and found.verdicts["due"].outcome is Outcome.LATE
    assert found.verdicts["due"].sentence.startswith(
        "cannot meet its deadline, 01:48 UTC, even if it runs for only 1 h 30 min: it starts at "
    )


def test_what_a_shorter_run_would_meet_is_not_given_up() -> None:
    world = one_host()
    waits(world, ("a", 2, None))
    world.submit("due", 1, lasts=(HOUR, 4 * HOUR), deadline=3.8 * HOUR)  # its latest start is over
    world.tick()
    found = seen(world.snapshot, world.plan)
    assert found.verdicts["due"].outcome is Outcome.AT_RISK and found.moves["due"].passes == ("a",)


def test_a_gang_that_gains_nothing_at_any_place_stays_and_is_told_early() -> None:
    world = World([host(1, 8)], preemption=False)
    for number in range(8):
        world.submit(f"runs{number}", 1)
    world.tick()
    for number in range(8):
        ends_within(world, f"runs{number}", 1 if number < 3 else 20)
    waits(world, *((f"a{number}", 2, None) for number in range(4)))
    world.submit("gang", 8, lasts=lasting(1), deadline=7 * HOUR)
    world.tick()
    found = seen(world.snapshot, world.plan)
    assert not found.moves and found.verdicts["gang"].outcome is Outcome.LATE


def test_an_array_goes_where_its_last_element_ends_in_time_at_once() -> None:
    world = one_host()
    waits(world, *((f"a{number}", 1, None) for number in range(5)))
    for number in range(4):
        world.submit(f"e{number}", 1, lasts=lasting(0.5), deadline=4.4 * HOUR, job_id="array", position=100.0)
    world.tick()
    found = seen(world.snapshot, world.plan)
    assert 1 < len(found.moves["array"].passes) < 5
    assert served(world, found).verdicts["array"].outcome is Outcome.MET


def test_what_waits_for_something_else_than_slots_passes_nobody() -> None:
    world = one_host()
    waits(world, ("a", 2, None))
    blocked = depends([("exp 9", "end", False)])
    found = waits(world, ("due", 1, 1.5), blocked=blocked)
    assert found.verdicts["due"].outcome is Outcome.UNKNOWN and not found.moves


def test_a_lost_element_of_an_array_makes_it_late_but_the_others_can_start() -> None:
    world, lost = one_host(), depends([("cmd 1", "success", True)])
    array: dict[str, Any] = {"job": "array", "is_element": True, "deadline": 9 * HOUR, "lasts": lasting(1)}
    world.submit("e0", 1, blocked=lost, **array)
    world.submit("e1", 1, **array)
    world.tick()
    sentence = "cannot meet its deadline, 09:00 UTC: {} can never start here"
    verdict = seen(world.snapshot, world.plan).verdicts["array"]
    assert verdict.outcome is Outcome.LATE
    assert verdict.sentence == sentence.format("one element of its array")
    world.edit("e1", blocked=lost)
    world.tick()
    assert seen(world.snapshot, world.plan).verdicts["array"].sentence == sentence.format("it")


def test_what_has_waited_too_long_is_not_passed_any_more() -> None:
    world = one_host()
    running = world["runs"].running
    assert running is not None
    world.edit("runs", running=replace(running, ends=None))
    waits(world, ("old", 2, None), ("new", 2, None))
    world.edit("old", submitted_at=world.now - LONGEST_PASSED)
    assert waits(world, ("due", 1, 1.5)).moves["due"].passes == ("new",)


def test_of_what_starts_now_the_end_is_known() -> None:
    world = World([host(1, 1)], preemption=False)
    world.submit("due", 1, lasts=lasting(1), deadline=9 * HOUR)
    snapshot = world.snapshot
    plan = decide(snapshot)
    assert [start.task_id for start in plan.starts] == ["due"]
    assert seen(snapshot, plan).verdicts["due"].outcome is Outcome.MET


def test_jobs_that_are_late_do_not_use_up_the_plays_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduling.deadlines.MOST_PLAYED", 1)  # one play in each look
    world = one_host()
    waits(world, ("late", 3, 1.8), priority=50)
    waits(world, ("a", 2, None))
    waits(world, ("b", 2, None), ("late too", 3, 1.9), priority=50)
    found = waits(world, ("due", 1, 3.5))
    assert found.verdicts["late too"].outcome is Outcome.LATE and not found.moves
    found = seen(world.snapshot, world.plan, late=["late too"])
    assert found.verdicts["late too"].outcome is Outcome.LATE and found.moves["due"].passes == ("a",)


def test_without_any_estimate_it_is_said_that_nobody_knows() -> None:
    world = one_host()
    world.submit("due", 1, deadline=9 * HOUR)
    world.tick()
    found = seen(world.snapshot, world.plan)
    assert not found.moves and found.verdicts["due"].sentence == (
        "whether it meets its deadline, 09:00 UTC, is not known: it has no time limit, and nothing similar has run "
        "here yet; max_time would tell"
    )


@pytest.mark.parametrize(("deadline", "goes"), [(9.0, False), (1.5, True)])
def test_if_nobody_knows_when_it_starts_it_goes_ahead_once_it_is_short_of_time(
    deadline: float, goes: bool
) -> None:
    world = World([host(1, 1)], preemption=False)
    world.submit("endless", 1)
    world.tick()
    found = waits(world, ("a", 2, None), ("due", 1, deadline))
    assert found.verdicts["due"].outcome is Outcome.UNKNOWN
    assert ("due" in found.moves) is goes


def test_it_passes_no_better_priority_and_is_not_stopped_by_what_it_passed() -> None:
    world = one_host(preemption=True)
    world.edit("runs", priority=1)
    waits(world, ("better", 2, None), priority=10)
    waits(world, ("a", 4, None), priority=42)
    found = waits(world, ("due", 1, 3.5), priority=42)
    assert found.moves["due"].passes == ("a",)
    served(world, found)
    assert order(world) == ["better", "due", "a"]
    world.finish("runs")
    world.cancel("better")
    world.now = HOUR
    world.tick()
    assert world.running == {"due"}
    world.settle()
    assert world.running == {"due"} and world.released == []


def test_a_person_wins() -> None:
    world = one_host()
    waits(world, ("a", 2, None))
    world.edit("a", moved_at=world.now)
    assert not waits(world, ("due", 1, 2.3)).moves  # it does not pass what a user has moved
    world.edit("a", moved_at=None)
    world.edit("due", moved_at=world.now)
    world.tick()
    assert not seen(world.snapshot, world.plan).moves  # and stays where a user has put it


def test_of_two_deadlines_the_earlier_one_is_not_passed() -> None:
    found = waits(one_host(), ("first", 2, 3.5), ("second", 1, 3.6))
    assert not found.moves
    assert found.verdicts["second"].outcome in {Outcome.LATE, Outcome.AT_RISK}


def test_a_run_that_will_end_too_late_is_told_too() -> None:
    world = one_host()
    world.edit("runs", deadline=HOUR / 4)
    world.tick()
    assert seen(world.snapshot, world.plan).verdicts["runs"].sentence == (
        "cannot meet its deadline, 00:15 UTC: it should end at 00:30 UTC at the earliest"
    )


def test_in_a_fair_share_pool_deadlines_move_nothing() -> None:
    world = World([host(1, 1)], scheduler="fair_share")
    assert not waits(world, ("a", 1, None), ("b", 1, None), ("due", 1, 1.5)).moves


def test_among_groups_it_passes_its_own_only_and_the_turns_of_the_groups_stay() -> None:
    world = one_host(shares={"vision": GroupShare(), "speech": GroupShare()})
    vision, speech = {"groups": ("vision",)}, {"groups": ("speech",)}
    waits(world, ("v1", 2, None), **vision)
    waits(world, ("s1", 2, None), **speech)
    waits(world, ("v2", 2, None), **vision)
    waits(world, ("s2", 2, None), **speech)
    found = waits(world, ("due", 1, 6.5), **vision)
    groups = [path_of(world[task]) for task in order(world)]
    assert set(found.moves["due"].passes) <= {"v1", "v2"}
    served(world, found)
    assert [path_of(world[task]) for task in order(world)] == groups
    assert order(world).index("due") < order(world).index("v2")


def with_deadlines(seed: int, rules: dict[str, Any]) -> Snapshot:
    """A pool after random events in which most ends are known, few jobs were moved by a user, and many are due."""
    random, world = Random(seed), random_world(seed, **rules)
    for number in range(15):
        groups = random.choice(PATHS)
        world.submit(f"more{number}", random.choice([1, 1, 2, 4]), priority=42, groups=groups)
    snapshot = world.snapshot
    jobs = {each.job_id: random.choice([None, 200.0, 400.0, 900.0, 2000.0]) for each in snapshot.requests}
    users = {job for job in jobs if random.random() < 0.1}
    firsts = {each.job_id: each for each in reversed(snapshot.requests)}

    def changed(request: Request) -> Request:
        ends = (snapshot.now + random.choice([30.0, 200.0]), snapshot.now + random.choice([250.0, 500.0]))
        return replace(
            request,
            lasts=random.choice([(30.0, 60.0), (30.0, 60.0), (100.0, 300.0), (100.0, 300.0), None]),
            deadline=None if (due := jobs[request.job_id]) is None else snapshot.now + due,
            priority=firsts[request.job_id].priority,  # these three are the job's
            position=firsts[request.job_id].position,
            moved_at=firsts[request.job_id].moved_at if request.job_id in users else None,
            running=request.running and replace(request.running, ends=ends),
        )

    return replace(snapshot, requests=tuple(map(changed, snapshot.requests)))


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, rules=ANY_POOL)
def test_what_goes_ahead_passes_its_own_priority_and_group_only(seed: int, rules: dict[str, Any]) -> None:
    snapshot = with_deadlines(seed, rules)
    found = seen(snapshot, decide(snapshot))
    after = moved(snapshot, found)
    was, now = decide(snapshot), decide(after)
    check(after, now)
    of_job = {each.job_id: each for each in snapshot.requests}
    priorities = {each.task_id: each.priority for each in snapshot.requests}
    for move in found.moves.values():
        job, anchor = of_job[move.job_id], of_job[move.ahead_of]
        assert job.deadline is not None and job.priority == anchor.priority and anchor.moved_at is None
        assert anchor.deadline is None or anchor.deadline > job.deadline
        assert not snapshot.pool.shares or path_of(job) == path_of(anchor)
    if not snapshot.pool.shares:
        assert [priorities[task] for task in now.order] == [priorities[task] for task in was.order]
    if not found.moves:
        assert now == was


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, rules=ANY_POOL)
def test_no_run_is_stopped_for_what_it_has_passed(seed: int, rules: dict[str, Any]) -> None:
    snapshot = with_deadlines(seed, rules)
    passed: dict[str, set[str]] = {}
    label_of = {each.label: each.job_id for each in snapshot.requests}
    world = World(snapshot.hosts)
    world.now, world._snapshot = snapshot.now, snapshot
    job_of = {each.task_id: each.job_id for each in snapshot.requests}
    for _ in range(6):
        before = world.snapshot
        found = seen(before, decide(before))
        for move in found.moves.values():
            passed.setdefault(move.job_id, set()).update(label_of[label] for label in move.passes)
            assert not any(move.job_id in passed.get(label_of[label], ()) for label in move.passes)
        world._snapshot = moved(before, found)
        plan = world.tick()
        for release in plan.releases:
            if release.for_task_id is not None:
                assert job_of[release.for_task_id] not in passed.get(job_of[release.task_id], ())
        world.stops_end()


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, rules=ANY_POOL)
def test_deadlines_alone_change_no_plan(seed: int, rules: dict[str, Any]) -> None:
    snapshot = with_deadlines(seed, rules)
    without = tuple(replace(each, deadline=None) for each in snapshot.requests)
    assert decide(snapshot) == decide(replace(snapshot, requests=without))
