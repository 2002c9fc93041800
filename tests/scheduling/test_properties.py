"""What must hold of every plan, whatever the world looks like."""

import gc
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduling.plan import applied, decide, ended
from scheduling.reasons import WaitCode
from scheduling.world import PoolView, Request, Snapshot
from tests.rig.pool_worlds import World, host
from tests.rig.random_pools import ANY_POOL, SEEDS, gangs, planned, random_request, random_world, worlds


@worlds
@given(seed=SEEDS, pool=ANY_POOL)
def test_no_slot_is_given_twice(seed: int, pool: dict[str, Any]) -> None:
    snapshot, plan = planned(seed, pool)
    held = [slot.id for view in snapshot.hosts for slot in view.slots if slot.held_by is not None]
    given = [slot_id for _, parts in gangs(snapshot, plan) for ids in parts.values() for slot_id in ids]
    assert len(set(held + given)) == len(held) + len(given)
    assert len({start.task_id for start in plan.starts}) == len(plan.starts)
    assert len({release.allocation_id for release in plan.releases}) == len(plan.releases)


@worlds
@given(seed=SEEDS, pool=ANY_POOL)
def test_no_host_holds_more_than_its_size_nor_more_zero_slot_work_than_it_may(
    seed: int, pool: dict[str, Any]
) -> None:
    snapshot, plan = planned(seed, pool)
    slots, places = Counter[str](), Counter[str]()
    for request, parts in gangs(snapshot, plan):
        for view, ids in parts.items():
            assert set(ids) <= {slot.id for slot in view.slots}
            slots[view.id] += len(ids)
            places[view.id] += request.slots == 0
    for view in snapshot.hosts:
        held = sum(slot.held_by is not None for slot in view.slots)
        assert slots[view.id] + held <= len(view.slots)
        assert not places[view.id] or places[view.id] + view.aux_held <= view.aux_capacity


@worlds
@given(seed=SEEDS, pool=ANY_POOL)
def test_nothing_is_placed_on_hosts_and_slots_that_are_off_held_from_outside_or_avoided(
    seed: int, pool: dict[str, Any]
) -> None:
    snapshot, plan = planned(seed, pool)
    for request, parts in gangs(snapshot, plan):
        for view, ids in parts.items():
            assert view.off is None
            assert not {view.id, view.name} & request.avoid_hosts
            assert set(ids) <= {slot.id for slot in view.slots if slot.usable}


@worlds
@given(seed=SEEDS, pool=ANY_POOL)
def test_gangs_start_whole_or_not_at_all_on_whole_hosts_of_equal_size(
    seed: int, pool: dict[str, Any]
) -> None:
    snapshot, plan = planned(seed, pool)
    for request, parts in gangs(snapshot, plan):
        assert sum(len(ids) for ids in parts.values()) == request.slots
        assert len(parts) == 1 or not request.single_host
        if len(parts) > 1:
            for view, ids in parts.items():
                assert len(ids) == sum(slot.usable for slot in view.slots)
                assert all(slot.held_by is None for slot in view.slots)
            sizes = {len(ids) for ids in parts.values()}
            assert len(sizes) == 1 or snapshot.pool.allow_heterogeneous_fits
            meet = {frozenset({one.id, other.id}) for one in parts for other in parts}
            assert not meet & snapshot.pool.bad_pairs


@worlds
@given(seed=SEEDS, pool=ANY_POOL)
def test_a_plan_applied_twice_changes_nothing(seed: int, pool: dict[str, Any]) -> None:
    snapshot, plan = planned(seed, pool)
    again = decide(applied(snapshot, plan))
    assert (again.starts, again.releases) == ((), ())


@worlds
@given(seed=SEEDS, pool=ANY_POOL)
def test_the_same_input_in_any_order_gives_the_same_plan(seed: int, pool: dict[str, Any]) -> None:
    snapshot, plan = planned(seed, pool)
    requests = list(snapshot.requests)
    Random(seed).shuffle(requests)
    assert decide(replace(snapshot, requests=tuple(requests))) == plan


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, pool=ANY_POOL)
def test_a_pass_leaves_no_cycles(seed: int, pool: dict[str, Any]) -> None:
    """Else all that it made stays until garbage is collected, which then has thousands of values to look at."""
    snapshot = random_world(seed, **pool).snapshot
    gc.collect()
    gc.disable()
    try:
        decide(snapshot)
        assert gc.collect() == 0
    finally:
        gc.enable()


@worlds
@given(seed=SEEDS, pool=ANY_POOL)
def test_every_request_that_waits_has_a_reason(seed: int, pool: dict[str, Any]) -> None:
    snapshot, plan = planned(seed, pool)
    started = {start.task_id for start in plan.starts}
    assert set(plan.waits) == {r.task_id for r in snapshot.requests if r.running is None} - started
    assert sorted(plan.order) == sorted(request.task_id for request in snapshot.requests)


@worlds
@given(seed=SEEDS, pool=ANY_POOL)
def test_only_preemptible_work_is_stopped_and_only_preemptible_work_is_lent_slots(
    seed: int, pool: dict[str, Any]
) -> None:
    snapshot, plan = planned(seed, pool)
    requests = {request.task_id: request for request in snapshot.requests}
    for release in plan.releases:
        run = requests[release.task_id]
        assert run.preemptible and run.running is not None and not run.running.stopping
        if snapshot.pool.scheduler == "priority":
            assert snapshot.pool.preemption
            assert requests[release.for_task_id].priority <= run.priority
    assert all(requests[start.task_id].preemptible for start in plan.starts if start.on_sufferance)


def test_in_a_pool_by_shares_a_command_above_its_share_is_not_stopped_and_none_is_lent_slots() -> None:
    world = World([host(1, 4)], scheduler="fair_share")
    for number in range(4):
        world.submit(f"cmd {number}", 1, job="cmds", preemptible=False)
    world.settle()
    world.submit("exp 9", 2)
    world.settle()
    assert world.released == []
    lending = World([host(1, 4)])
    lending.submit("cmd 1", 1, preemptible=False)
    lending.settle()
    lending.submit("gang", 4)
    lending.submit("cmd 2", 1, preemptible=False)
    lending.submit("exp 3", 1)
    lending.settle()
    assert (lending.running, lending.backfilled) == ({"cmd 1", "exp 3"}, {"exp 3"})


@worlds
@given(seed=SEEDS, pool=ANY_POOL)
def test_max_slots_and_the_quota_for_work_that_may_not_be_stopped_hold(
    seed: int, pool: dict[str, Any]
) -> None:
    world = random_world(seed, **pool)
    world.tick()
    held, unpreemptible = Counter[str](), 0
    most = world.snapshot.pool.unpreemptible_slots
    for request in world.snapshot.requests:
        if request.running is not None:
            held[request.job_id] += request.slots
            unpreemptible += 0 if request.preemptible else request.slots
            longest = world.snapshot.pool.longest_max_time
            assert longest is None or request.max_time is None or request.max_time <= longest
    assert all(held[r.job_id] <= r.max_slots for r in world.snapshot.requests if r.max_slots is not None)
    assert most is None or unpreemptible <= most


@pytest.mark.survive(27)
@worlds
@given(seed=SEEDS, pool=ANY_POOL)
def test_nothing_is_stopped_in_vain(seed: int, pool: dict[str, Any]) -> None:
    """Those for whom work is stopped start as soon as it has ended."""
    world = random_world(seed, **pool)
    plan = world.tick()
    snapshot = world.snapshot
    stopping = [r.running.allocation_id for r in snapshot.requests if r.running and r.running.stopping]
    # for good: what was stopped and stands before whom others are stopped for would come back and go first
    after = decide(ended(snapshot, stopping, False, world.now))
    assert {release.for_task_id for release in plan.releases} <= {start.task_id for start in after.starts}


@worlds
@given(seed=SEEDS)
def test_no_run_is_stopped_that_could_have_gone_on(seed: int) -> None:
    """Where one request alone stops others for a single host, none of them is needless."""
    world = random_world(seed, scheduler="priority")
    for request in waiting(world):
        alone = only(world.snapshot, request)
        releases = decide(alone).releases
        stopped = {release.allocation_id for release in releases}
        for spared in stopped if len(stopped) > 1 and request.single_host else ():
            left = ended(alone, stopped - {spared}, False, world.now)
            assert request.task_id not in {start.task_id for start in decide(left).starts}


def waiting(world: World) -> list[Request]:
    return [r for r in world.snapshot.requests if r.running is None and r.blocked is None]


def only(snapshot: Snapshot, request: Request) -> Snapshot:
    """What runs, all of it for good, and this request."""
    stopping = [r.running.allocation_id for r in snapshot.requests if r.running and r.running.stopping]
    calm = ended(snapshot, stopping, False, snapshot.now)
    requests = tuple(r for r in calm.requests if r.running is not None or r.task_id == request.task_id)
    return replace(calm, requests=requests)


@worlds
@given(seed=SEEDS)
def test_a_higher_priority_never_waits_for_a_lower_one_that_would_do(seed: int) -> None:
    """What would start if all lower preemptible work of other jobs were gone starts, or work is stopped for it."""
    world = random_world(seed, scheduler="priority")
    for request in waiting(world):
        snapshot = only(world.snapshot, request)
        lower = [
            r.running.allocation_id
            for r in snapshot.requests
            if r.running and r.preemptible and r.priority > request.priority and r.job_id != request.job_id
            if not held_for_good(snapshot, r)
        ]
        free = decide(ended(snapshot, lower, False, snapshot.now))
        if request.task_id in {start.task_id for start in free.starts}:
            plan = decide(snapshot)
            helped = {release.for_task_id for release in plan.releases}
            assert request.task_id in helped | {start.task_id for start in plan.starts}


def held_for_good(snapshot: Snapshot, run: Request) -> bool:
    """Slots that drain, or on a host that does: nobody is stopped for these, they are waited for."""
    assert run.running is not None
    usable = {s.id for view in snapshot.hosts if view.off is None for s in view.slots if s.usable}
    return any(not usable.issuperset(ids) for ids in run.running.slots.values())


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, pool=ANY_POOL)
def test_every_pool_comes_to_rest(seed: int, pool: dict[str, Any]) -> None:
    random_world(seed, **pool).settle()


def started_at(world: World, task: str) -> tuple[float, str]:
    running = world[task].running
    assert running is not None
    return (running.started_at, task)


@pytest.mark.survive(27)
@settings(max_examples=15, deadline=None)
@given(
    seed=SEEDS,
    scheduler=st.sampled_from(["priority", "fair_share"]),
    min_runtime=st.sampled_from([(), ((1, 10.0),)]),
)
@example(
    seed=6076, scheduler="fair_share", min_runtime=()
)  # what was lent a gang's hosts held them once granted
def test_no_gang_starves_under_a_stream_of_small_jobs(
    seed: int, scheduler: str, min_runtime: tuple[tuple[int, float], ...]
) -> None:
    """Runs end at some time, the older the sooner; new small ones never cease."""
    random = Random(seed)
    size, count = random.choice([(4, 2), (2, 4), (8, 1), (8, 3)])
    hosts = [host(n, size) for n in range(1, count + 1)]
    preemption = random.random() < 0.5
    world = World(hosts, scheduler=scheduler, preemption=preemption, min_runtime=min_runtime)
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


@worlds
@given(seed=SEEDS)
def test_shares_are_max_min_fair_and_what_is_held_follows_them(seed: int) -> None:
    """Of one-slot work nobody could get more but from one who has less for its weight."""
    random = Random(seed)
    world = World(
        [host(n, random.choice([1, 2, 4])) for n in range(1, random.randint(1, 4) + 1)],
        scheduler="fair_share",
    )
    weight, demand, most = {}, {}, {}
    for job in "abcd"[: random.randint(1, 4)]:
        weight[job], demand[job] = random.choice([1.0, 2.0, 3.0]), random.randint(1, 12)
        most[job] = random.choice([None, None, 2])
        for number in range(demand[job]):
            world.submit(f"{job}{number}", 1, job=job, weight=weight[job], max_slots=most[job])
            if random.random() < 0.3:
                world.tick()
    world.settle()
    shares = world.plan.shares
    wants = {job: min(demand[job], most[job] or demand[job]) for job in weight}
    total = sum(len(view.slots) for view in world.snapshot.hosts)
    assert {job: world.held_by_job()[job] for job in weight} == dict(shares)
    assert sum(shares.values()) == min(total, sum(wants.values()))
    for poor in (job for job in weight if shares[job] < wants[job]):
        assert all((shares[rich] - 1) / weight[rich] <= shares[poor] / weight[poor] for rich in weight)


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


def test_hosts_whose_ranks_cannot_meet_are_never_in_one_gang() -> None:
    bad = frozenset({frozenset({"h1", "h2"}), frozenset({"h1", "h3"})})
    world = World([host(n, 2) for n in (1, 2, 3)], bad_pairs=bad)
    world.submit("gang", 4)
    world.submit("larger", 6)
    start = world.tick().starts[0]
    assert [host_id for host_id, _ in start.hosts] == ["h2", "h3"]
    assert world.why("larger").code == WaitCode.BAD_PAIR


def test_work_that_may_not_be_stopped_has_a_quota() -> None:
    world = World([host(1, 8)], unpreemptible_slots=4)
    for label in ("cmd 1", "cmd 2", "cmd 3"):
        world.submit(label, 2, preemptible=False)
    world.submit("exp 4", 2)
    world.settle()
    assert world.running == {"cmd 1", "cmd 2", "exp 4"}
    assert world.why("cmd 3").code == WaitCode.UNPREEMPTIBLE


def test_what_asks_to_run_longer_than_the_pool_allows_never_starts() -> None:
    world = World([host(1, 8)], longest_max_time=3600.0)
    world.submit("long", 1, max_time=7200.0)
    world.submit("short", 1, max_time=3600.0)
    world.settle()
    assert (world.running, world.why("long").code) == ({"short"}, WaitCode.TIME_LIMIT)


def test_the_pool_view_has_the_defaults_of_the_decisions() -> None:
    assert (PoolView().scheduler, PoolView().fitting, PoolView().preemption) == ("priority", "best", True)


def test_what_yields_is_stopped_first_whatever_its_priority() -> None:
    world = World([host(1, 2), host(2, 2)], min_runtime=((1, 3600.0),))
    world.submit("burn-in", 2, priority=1, yields=True)
    world.submit("low", 2, priority=99)
    world.settle()
    world.submit("mine", 2, priority=99)
    world.settle()
    assert world.running == {"low", "mine"}


@worlds
@given(seed=SEEDS, pool=ANY_POOL)
def test_nothing_is_stopped_or_kept_for_what_yields(seed: int, pool: dict[str, Any]) -> None:
    world = random_world(seed, **pool)
    waiting = [each for each in world.snapshot.requests if each.running is None]
    chosen = {each.task_id for each in waiting if Random(f"{seed}{each.task_id}").random() < 0.3}
    for task_id in chosen:
        world.edit(task_id, yields=True, preemptible=True)
    plan = world.tick()
    assert not chosen & {release.for_task_id for release in plan.releases}
    assert all(start.on_sufferance for start in plan.starts if start.task_id in chosen)
    assert not chosen & set(plan.reservations)
