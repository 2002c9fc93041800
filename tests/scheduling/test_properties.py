"""What must hold of every plan, whatever the world looks like."""

import time
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling import ranking, replay
from scheduling.plan import decide
from scheduling.world import HostView, PoolView, Request, Snapshot
from tests.rig.pool_worlds import World, check, host

SEEDS = st.integers(0, 2**32 - 1)


def random_hosts(random: Random) -> list[HostView]:
    sizes = random.choice([(8,), (4,), (1, 2, 4, 8), (2, 4)])
    hosts = []
    for number in range(1, random.randint(1, 6) + 1):
        off = {random.choice(["enabled", "draining", "silent"]): True} if random.random() < 0.1 else {}
        outside = {0: "root"} if random.random() < 0.1 else {}
        if "enabled" in off:
            off = {"enabled": False}
        hosts.append(host(number, random.choice(sizes), outside=outside, aux_capacity=2, **off))
    return hosts


def random_request(random: Random) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "priority": random.choice([1, 10, 42, 42, 42, 50]),
        "weight": random.choice([1.0, 2.0]),
    }
    fields["preemptible"] = random.random() < 0.8
    fields["single_host"] = random.random() < 0.1
    if random.random() < 0.1:
        fields["max_slots"] = random.randint(1, 8)
    if random.random() < 0.1:
        fields["avoid_hosts"] = frozenset({"gpu-1"})
    return fields


def random_world(seed: int, **pool: Any) -> World:
    """A pool after some dozens of random events, each followed by a checked pass or not."""
    random = Random(seed)
    pool = {"fitting": random.choice(["best", "worst"]), "preemption": random.random() < 0.8, **pool}
    world = World(random_hosts(random), **pool)
    for number in range(random.randint(1, 40)):
        event = random.random()
        waiting = [r.task_id for r in world.snapshot.requests if r.running is None]
        if event < 0.6:
            slots = random.choice([0, 1, 1, 1, 2, 4, 8, 12, 16])
            job = f"job{random.randint(0, 3)}" if random.random() < 0.2 else f"own{number}"
            world.submit(f"t{number:02}", slots, job=job, **random_request(random))
        elif event < 0.7 and world.running:
            world.finish(random.choice(sorted(world.running)))
        elif event < 0.8:
            world.stops_end()
        elif event < 0.85 and waiting:
            world.cancel(random.choice(waiting))
        elif event < 0.9 and waiting:
            world.move_ahead(random.choice(waiting), of=random.choice(world.snapshot.requests).task_id)
        if random.random() < 0.7:
            world.tick()
    return world


POOLS: list[dict[str, Any]] = [
    {"scheduler": "priority"},
    {"scheduler": "priority", "allow_heterogeneous_fits": True},
    {"scheduler": "priority", "max_reservations": 1},
    {"scheduler": "fair_share"},
]


@pytest.mark.parametrize("pool", POOLS, ids=str)
@settings(max_examples=80, deadline=None)
@given(seed=SEEDS)
def test_plans_are_safe_deterministic_and_change_nothing_when_applied_twice(
    pool: dict[str, Any], seed: int
) -> None:
    snapshot = random_world(seed, **pool).snapshot
    plan = decide(snapshot)
    check(snapshot, plan)
    assert decide(snapshot) == plan
    backwards = replace(snapshot, requests=snapshot.requests[::-1])
    assert decide(backwards).starts == plan.starts
    again = decide(replay.applied(snapshot, plan))
    assert (again.starts, again.releases) == ((), ())


@pytest.mark.parametrize("pool", POOLS, ids=str)
@settings(max_examples=80, deadline=None)
@given(seed=SEEDS)
def test_nothing_is_stopped_in_vain(pool: dict[str, Any], seed: int) -> None:
    world = random_world(seed, **pool)
    plan = world.tick()
    snapshot = world.snapshot
    stopping = [r.running.allocation_id for r in snapshot.requests if r.running and r.running.stopping]
    # for good: what was stopped and stands before whom others are stopped for would come back and go first
    after = decide(replay.ended(snapshot, stopping, False, world.now))
    assert {release.for_task_id for release in plan.releases} <= {start.task_id for start in after.starts}


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS)
def test_a_higher_priority_never_waits_for_a_lower_one_that_would_do(seed: int) -> None:
    """What waits would not start either if all preemptible work of lower priority were gone."""
    world = random_world(seed, scheduler="priority", preemption=True)
    world.tick()
    snapshot = world.snapshot
    stopping = [r.running.allocation_id for r in snapshot.requests if r.running and r.running.stopping]
    freed = replay.ended(snapshot, stopping, True, world.now)
    waiting = [r for r in ranking.in_order(freed.requests) if r.running is None and r.blocked_reason is None]
    for request in waiting[:1]:
        alone = decide(_without_lower(freed, request))
        if request.task_id in {start.task_id for start in alone.starts}:
            plan = decide(freed)
            helped = {release.for_task_id for release in plan.releases}
            assert request.task_id in helped | {start.task_id for start in plan.starts}


def _without_lower(snapshot: Snapshot, first: Request) -> Snapshot:
    """Only `first` and the work that it may not stop."""
    kept = tuple(
        r
        for r in snapshot.requests
        if r.task_id == first.task_id or (r.running and (not r.preemptible or r.priority <= first.priority))
    )
    gone = [r.running.allocation_id for r in snapshot.requests if r.running and r not in kept]
    left = replay.ended(snapshot, gone, False, snapshot.now)
    return replace(left, requests=tuple(r for r in left.requests if r in kept or r.running))


@pytest.mark.parametrize("pool", POOLS, ids=str)
@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_every_pool_comes_to_rest(pool: dict[str, Any], seed: int) -> None:
    random_world(seed, **pool).settle()


def started_at(world: World, task: str) -> tuple[float, str]:
    running = world[task].running
    assert running is not None
    return (running.started_at, task)


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_no_gang_starves_under_a_stream_of_small_jobs(seed: int) -> None:
    """Runs end at some time, the older the sooner; new small ones never cease."""
    random = Random(seed)
    size, count = random.choice([(4, 2), (2, 4), (8, 1), (8, 3)])
    world = World([host(n, size) for n in range(1, count + 1)], preemption=random.random() < 0.5)
    for number in range(size * count):
        world.submit(f"first{number}", 1)
    world.settle()
    gangs = [random.choice([size, size * count]) for _ in range(3)]
    for number, slots in enumerate(gangs):
        world.submit(f"gang{number}", slots)
    for number in range(150):
        world.submit(f"small{number}", random.choice([1, 1, 2]))
        world.tick()
        if random.random() < 0.9 and world.running:
            world.finish(random.choice(sorted(world.running, key=lambda task: started_at(world, task))[:4]))
        if random.random() < 0.5:
            world.stops_end()
    left = {request.task_id for request in world.snapshot.requests if request.running is None}
    assert not left & {"gang0", "gang1", "gang2"}


def test_thousands_of_events_leave_every_plan_safe() -> None:
    random = Random(7)
    world = World([host(number, 8) for number in range(1, 9)])
    for number in range(800):
        world.submit(f"t{number}", random.choice([0, 1, 1, 2, 4, 8, 16]), **random_request(random))
        world.tick()
        for _ in range(random.randint(0, 2)):
            if world.running:
                world.finish(random.choice(sorted(world.running)))
        if random.random() < 0.5:
            world.stops_end()
        if len(world.snapshot.requests) > 60:
            world.cancel(next(r.task_id for r in world.snapshot.requests if r.running is None))


@pytest.mark.parametrize("scheduler", ["priority", "fair_share"])
def test_a_pass_over_five_thousand_waiting_jobs_takes_well_under_a_second(scheduler: str) -> None:
    random = Random(1)
    world = World([host(number, 8) for number in range(1, 51)], scheduler=scheduler)
    requests = tuple(
        Request(
            f"t{number}",
            f"j{number}",
            f"exp {number}",
            random.choice([0, 1, 1, 2, 4, 8, 12, 16]),
            priority=random.randint(1, 99),
            position=float(number),
            submitted_at=float(number),
        )
        for number in range(5000)
    )
    empty = replace(world.snapshot, requests=requests)
    full = replay.applied(empty, decide(empty))
    lower = tuple(replace(r, priority=99) if r.running else r for r in full.requests)
    for snapshot in (empty, full, replace(full, requests=lower)):
        start = time.process_time()
        check(snapshot, decide(snapshot))
        assert time.process_time() - start < 1.0


def test_the_pool_view_has_the_defaults_of_the_decisions() -> None:
    assert (PoolView().scheduler, PoolView().fitting, PoolView().preemption) == ("priority", "best", True)
