"""Who is stopped for whom, in full pools and over several passes in a row."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.plan import decide, ended
from scheduling.runs import standing
from scheduling.world import Plan, Request, Snapshot
from tests.rig.full_pools import MIXED, full_pool, newcomer
from tests.rig.pool_worlds import World

SEEDS = st.integers(0, 2**32 - 1)
POOLS: list[dict[str, Any]] = [
    {},
    {"fitting": "worst"},
    {"allow_heterogeneous_fits": True},
]
ANY_POOL = st.sampled_from(POOLS)
worlds = settings(max_examples=300, deadline=None)


def may_stop(asker: Request, run: Request) -> bool:
    """The rule of a priority pool, in the words of its document."""
    assert run.running is not None
    if not run.preemptible or asker.priority > run.priority:
        return False
    if asker.priority < run.priority:
        return True
    if run.running.on_sufferance:
        return standing(asker) < standing(run)
    last_move = max(asker.moved_at or 0.0, run.moved_at or 0.0)
    return (
        standing(asker) < standing(run) and last_move > run.running.started_at and asker.job_id != run.job_id
    )


def passes(seed: int, pool: dict[str, Any]) -> Iterator[tuple[Snapshot, Plan]]:
    """Several in a row, until nothing is stopping: what each saw and decided.

    Between two of them runs end that were stopped for one request: not all of them, maybe. They are gone for good
    then (those that waited again might stand before others for whom work is stopped), and newcomers of lower
    standing arrive.
    """
    random = Random(seed)
    world = full_pool(random, **pool)
    for number in range(40):
        before = replace(world.snapshot, now=world.now + 1)
        yield before, world.tick()
        if not world.stopping:
            return
        over = random.choice(stops_to_end(world))
        world.stops_end(*random.sample(over, random.randint(1, len(over))), waits_again=False)
        newcomer(random, world, number)
    raise AssertionError("work is stopped again and again")


def stops_to_end(world: World) -> list[list[str]]:
    """Those for one request each; where they share a host with those for another, only the first in the queue's order.

    (The first to end would serve the first in the queue, and nothing told for whom the others are being stopped then.)
    """
    stopping = sorted(world.stopping.items(), key=lambda pair: standing(world[str(pair[1])]))
    found: list[list[str]] = []
    taken: set[str] = set()
    for _, group in groupby(stopping, key=lambda pair: pair[1]):
        labels = [label for label, _ in group]
        hosts = {
            host_id for label in labels if (running := world[label].running) for host_id in running.slots
        }
        if not hosts & taken:
            found.append(labels)
        taken |= hosts
    return found


def requests_of(snapshot: Snapshot) -> dict[str, Request]:
    return {request.task_id: request for request in snapshot.requests}


def started(plan: Plan) -> set[str]:
    return {start.task_id for start in plan.starts}


def helped(plan: Plan) -> set[str]:
    return {release.for_task_id for release in plan.releases}


@pytest.mark.survive(27)
@worlds
@given(seed=SEEDS, pool=ANY_POOL)
def test_nobody_is_stopped_but_by_the_rule(seed: int, pool: dict[str, Any]) -> None:
    for before, plan in passes(seed, pool):
        requests = requests_of(before)
        for release in plan.releases:
            assert may_stop(requests[release.for_task_id], requests[release.task_id])


@worlds
@given(seed=SEEDS)
def test_nobody_is_stopped_where_preemption_is_off(seed: int) -> None:
    assert not any(plan.releases for _, plan in passes(seed, {"preemption": False}))


@pytest.mark.parametrize("pool", POOLS)
def test_all_for_whom_others_are_stopped_start_and_nobody_more_is_stopped_for_them(
    pool: dict[str, Any],
) -> None:
    """In 250 fixed pools. About 1 in 1,000 fails: nothing tells for whom a slot was freed that is free now."""
    for seed in range(250):
        all_start_and_nobody_more_is_stopped(seed, pool)


def all_start_and_nobody_more_is_stopped(seed: int, pool: dict[str, Any]) -> None:
    enough: set[str] = set()
    for _, plan in passes(seed, pool):
        assert not enough & helped(plan)
        enough = (enough | helped(plan)) - started(plan)
    assert not enough


def alone(snapshot: Snapshot, request: Request) -> Snapshot:
    """What runs, and this request."""
    return replace(
        snapshot, requests=tuple(r for r in snapshot.requests if r.running or r.task_id == request.task_id)
    )


def first_sight(
    seed: int, pool: dict[str, Any], runs: tuple[int, ...] = MIXED
) -> Iterator[tuple[Snapshot, Request, Plan]]:
    """Each request that waits, as if it alone did."""
    snapshot = full_pool(Random(seed), runs, **pool).snapshot
    for request in snapshot.requests:
        if request.running is None:
            by_itself = alone(snapshot, request)
            yield by_itself, request, decide(by_itself)


@pytest.mark.survive(27)
@worlds
@given(seed=SEEDS, pool=st.sampled_from(POOLS[:2]))
def test_no_stop_is_needless(seed: int, pool: dict[str, Any]) -> None:
    for snapshot, request, plan in first_sight(seed, pool):
        stopped = {release.allocation_id for release in plan.releases}
        for spared in stopped:
            left = ended(snapshot, stopped - {spared}, False, snapshot.now)
            assert request.task_id not in started(decide(left))


@worlds
@given(seed=SEEDS, pool=st.sampled_from(POOLS[:2]))
def test_who_could_start_if_all_whom_it_may_stop_were_gone_is_helped(seed: int, pool: dict[str, Any]) -> None:
    for snapshot, request, plan in first_sight(seed, pool):
        over = [
            r.running.allocation_id
            for r in snapshot.requests
            if r.running is not None and may_stop(request, r)
        ]
        if request.task_id in started(decide(ended(snapshot, over, False, snapshot.now))):
            assert request.task_id in started(plan) | helped(plan)


@worlds
@given(seed=SEEDS, pool=st.sampled_from(POOLS[:2]))
def test_no_priority_is_touched_where_stopping_lower_ones_would_do(seed: int, pool: dict[str, Any]) -> None:
    """Where hosts are of one size; of several, one host that does comes before whole smaller ones."""
    for snapshot, _, plan in first_sight(seed, pool):
        requests = requests_of(snapshot)
        if plan.releases and len({len(view.slots) for view in snapshot.hosts}) == 1:
            highest = min(requests[release.task_id].priority for release in plan.releases)
            firm = tuple(
                replace(r, preemptible=r.preemptible and not (r.running and r.priority <= highest))
                for r in snapshot.requests
            )
            assert not decide(replace(snapshot, requests=firm)).releases


@worlds
@given(seed=SEEDS, pool=st.sampled_from(POOLS[:2]))
def test_of_equals_the_newest_that_has_saved_is_stopped(seed: int, pool: dict[str, Any]) -> None:
    """Where all that run hold one slot, and one slot is needed."""
    for snapshot, request, plan in first_sight(seed, pool, runs=(1,)):
        if request.slots == 1 and plan.releases:
            could = [r for r in snapshot.requests if r.running and may_stop(request, r)]
            assert [release.task_id for release in plan.releases] == [min(could, key=price).task_id]


def price(run: Request) -> tuple[int, bool, float]:
    assert run.running is not None
    return (-run.priority, run.running.last_saved_at is None, -run.running.started_at)
