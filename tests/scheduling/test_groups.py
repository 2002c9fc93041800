"""Groups that share a pool: what is guaranteed, limited, borrowed and taken back."""

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.explain import explain
from scheduling.forecast import forecast
from scheduling.plan import applied, decide
from scheduling.reasons import WaitCode
from scheduling.world import GroupShare, Request, Snapshot
from tests.rig.pool_worlds import World, host
from tests.rig.random_pools import PATHS, SEEDS, SHARES, random_world, something_happens

VISION, SPEECH = ("vision",), ("speech",)
TWO = {"vision": GroupShare(guarantee=4), "speech": GroupShare(guarantee=4)}
BOTH = pytest.mark.parametrize("scheduler", ["priority", "fair_share"])


def world_of(slots: int, shares: dict[str, GroupShare], **pool: Any) -> World:
    return World([host(1, slots)], shares=shares, **pool)


def submit(world: World, group: tuple[str, ...], count: int, slots: int = 1, **fields: Any) -> None:
    taken = len(world.snapshot.requests)
    for number in range(taken, taken + count):
        world.submit(f"{'.'.join(group) or 'nobody'}{number}", slots, groups=group, **fields)


def held(world: World) -> Counter[str]:
    found = Counter[str]()
    for request in world.snapshot.requests:
        if request.running is not None and not request.running.stopping:
            found[".".join(request.groups)] += request.slots
    return found


@BOTH
def test_what_a_group_leaves_unused_others_borrow_and_it_is_reclaimed(scheduler: str) -> None:
    world = world_of(8, TWO, scheduler=scheduler)
    submit(world, VISION, 8)
    world.settle()
    assert held(world) == {"vision": 8}
    submit(world, SPEECH, 6, priority=90)
    world.tick()
    assert sorted(world.released) == ["vision4", "vision5", "vision6", "vision7"], (
        "the youngest, and as few as possible"
    )
    world.stops_end()
    world.settle()
    assert held(world) == {"vision": 4, "speech": 4}


def test_a_reclaim_ignores_the_switch_for_preemption_but_not_what_is_not_preemptible() -> None:
    world = world_of(4, {"speech": GroupShare(guarantee=2)}, preemption=False)
    submit(world, VISION, 3, preemptible=False)
    world.settle()
    assert held(world) == {"vision": 2}, "it may borrow only what is guaranteed to nobody"
    assert world.why("vision2").code == WaitCode.NOT_RECLAIMABLE
    submit(world, VISION, 2)
    world.settle()
    submit(world, SPEECH, 3)
    world.settle()
    assert held(world) == {"vision": 2, "speech": 2}


def test_other_groups_are_not_stopped_for_a_priority_beyond_the_guarantee() -> None:
    world = world_of(4, {"speech": GroupShare(guarantee=1)})
    submit(world, VISION, 4, priority=50)
    world.settle()
    submit(world, SPEECH, 2, priority=1)
    submit(world, VISION, 1, priority=40)
    world.settle()
    assert held(world) == {"vision": 3, "speech": 1}
    assert "vision6" in world.running, "within a group priorities count"


@BOTH
def test_a_limit_holds_and_says_so(scheduler: str) -> None:
    world = world_of(8, {"vision": GroupShare(limit=3)}, scheduler=scheduler)
    submit(world, VISION, 5)
    submit(world, VISION, 1, slots=4)
    submit(world, (), 2)
    world.settle()
    assert held(world) == {"vision": 3, "": 2}
    assert world.why("vision4").sentence == "group vision holds 3 of at most 3 slots; this needs 1 more"
    assert world.why("vision5").sentence == "needs 4 slots; group vision may hold at most 3"


@BOTH
@pytest.mark.parametrize(
    ("usage", "expected"), [(0.0, {"vision": 9, "speech": 3}), (9.0, {"vision": 6, "speech": 6})]
)
def test_what_is_left_over_is_shared_by_weight_and_past_use(
    scheduler: str, usage: float, expected: dict[str, int]
) -> None:
    shares = {"vision": GroupShare(weight=3.0, usage=usage), "speech": GroupShare(weight=1.0)}
    world = world_of(12, shares, scheduler=scheduler)
    submit(world, SPEECH, 12)
    submit(world, VISION, 12)
    world.settle()
    assert held(world) == expected


@BOTH
def test_a_team_gets_its_guarantee_from_its_department(scheduler: str) -> None:
    shares = {
        "research": GroupShare(guarantee=4),
        "vision": GroupShare(guarantee=2, parent="research"),
        "product": GroupShare(guarantee=4),
    }
    world = world_of(8, shares, scheduler=scheduler)
    submit(world, ("product",), 4)
    submit(world, ("research", "speech"), 4)
    world.settle()
    submit(world, ("research", "vision"), 3)
    world.settle()
    assert held(world) == {"product": 4, "research.speech": 2, "research.vision": 2}


def test_explain_says_what_is_guaranteed_and_what_is_borrowed() -> None:
    world = world_of(14, {"vision": GroupShare(guarantee=8), "speech": GroupShare(guarantee=6)})
    submit(world, VISION, 13)
    submit(world, SPEECH, 2)
    world.settle()
    assert "group vision holds 12 slots, 8 of them guaranteed; 4 are borrowed and may be reclaimed" in [
        reason.sentence for reason in explain(world.snapshot, "vision12")
    ]
    assert world.why("vision12").code == WaitCode.NO_ROOM
    world = world_of(3, {"vision": GroupShare(guarantee=1), "speech": GroupShare(guarantee=2)})
    submit(world, SPEECH, 2)
    submit(world, VISION, 2)
    world.settle()
    [row] = [text for reason in explain(world.snapshot, "vision3") if "held by" in (text := reason.sentence)]
    assert "speech0 (1, guaranteed to speech)" in row and "vision2 (1, same priority)" in row


def test_a_forecast_follows_the_turns_of_groups_and_their_limits() -> None:
    world = world_of(2, {"vision": GroupShare(weight=2.0), "speech": GroupShare(limit=1)})
    ends = {"lasts": (100.0, 100.0)}
    submit(world, SPEECH, 3, priority=1, **ends)
    submit(world, VISION, 3, priority=90, **ends)
    world.settle()
    for label in ("speech0", "vision3"):
        running = world[label].running
        assert running is not None
        world.edit(label, running=replace(running, ends=(world.now + 100, world.now + 100)))
    found = forecast(world.snapshot, world.plan).spans
    assert found.keys() == {"speech1", "speech2", "vision4", "vision5"}
    assert found["speech1"][0] < found["speech2"][0], "one after the other"
    assert found["vision4"][0] < found["vision5"][0] and found["vision4"][0] < found["speech2"][0]


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, scheduler=st.sampled_from(["priority", "fair_share"]))
def test_without_shares_groups_change_nothing(seed: int, scheduler: str) -> None:
    snapshot = random_world(seed, scheduler=scheduler).snapshot
    nobodys = replace(snapshot, requests=tuple(replace(request, groups=()) for request in snapshot.requests))
    assert decide(snapshot) == decide(nobodys)


def protected(snapshot: Snapshot, level: int) -> set[str]:
    """Runs within the guarantee of their group on this level: first those that nobody may stop, then the oldest of
    the highest priority; a department's begin with those of its teams."""
    runs = [
        r for r in snapshot.requests if r.running and not r.running.stopping and not r.running.on_sufferance
    ]
    inner = protected(snapshot, 1) if level == 0 else set()

    def order(run: Request) -> tuple[Any, ...]:
        assert run.running is not None
        saved = run.running.last_saved_at is not None or run.running.asked_preempt
        return (
            run.task_id not in inner,
            run.preemptible,
            run.priority,
            saved,
            run.running.started_at,
            run.task_id,
        )

    kept, found = Counter[str](), set()
    for run in sorted(runs, key=order):
        name = group_of(run, level)
        if kept[name] + run.slots <= guaranteed(name):
            kept[name] += run.slots
            found.add(run.task_id)
    return found


def group_of(request: Request, level: int) -> str:
    return request.groups[level] if len(request.groups) > level else ""


def guaranteed(name: str) -> int:
    return SHARES[name].guarantee if name in SHARES else 0


def splits_at(one: Request, other: Request) -> int | None:
    """The level of the first groups that differ; None if they are in the same."""
    return next((level for level in (0, 1) if group_of(one, level) != group_of(other, level)), None)


def firm_slots(snapshot: Snapshot, name: str, level: int) -> int:
    """Held by what keeps its slots."""
    return sum(
        run.slots
        for run in snapshot.requests
        if run.running
        and not run.running.stopping
        and not run.running.on_sufferance
        and group_of(run, level) == name
    )


GROUPED = settings(max_examples=150, deadline=None)


@GROUPED
@given(seed=SEEDS, preemption=st.booleans())
def test_nobodys_guarantee_is_touched_and_only_what_is_within_one_reclaims(
    seed: int, preemption: bool
) -> None:
    random = Random(seed)
    world = random_world(seed, scheduler="priority", preemption=preemption, shares=SHARES)
    for number in range(50, 60):
        something_happens(random, world, number)
        snapshot = world.snapshot
        requests = {request.task_id: request for request in snapshot.requests}
        safe = [protected(snapshot, level) for level in (0, 1)]
        asked = Counter[tuple[int, str]]()
        for task in {release.for_task_id for release in world.tick().releases if release.for_task_id}:
            asker = requests[task]
            victims = [
                requests[release.task_id] for release in world.plan.releases if release.for_task_id == task
            ]
            levels = {level for run in victims if (level := splits_at(asker, run)) is not None
                      and run.running and not run.running.on_sufferance}  # fmt: skip
            for run in victims:
                level = splits_at(asker, run)
                if level is not None and run.running and not run.running.on_sufferance:
                    assert run.task_id not in safe[level]
            for level in levels:
                asked[level, group_of(asker, level)] += asker.slots
        for (level, name), slots in asked.items():
            assert firm_slots(snapshot, name, level) + slots <= guaranteed(name)


@GROUPED
@given(seed=SEEDS)
def test_no_group_below_its_guarantee_waits_while_another_borrows_what_would_do(seed: int) -> None:
    """Once what was stopped has ended: for work that fits on one host, on hosts that are not kept for others."""
    random = Random(seed)
    shares = {name: replace(share, limit=None) for name, share in SHARES.items()}
    world = World([host(number, 8) for number in range(1, random.randint(2, 4))], shares=shares)
    for number in range(random.randint(5, 40)):
        slots = random.choice([1, 1, 2, 4, 8])
        world.submit(f"t{number}", slots, groups=random.choice(PATHS), priority=random.choice([10, 42, 50]))
        if random.random() < 0.5:
            world.tick()
    world.settle()
    snapshot = world.snapshot
    safe = protected(snapshot, 0)
    kept = {host_id for hosts in world.plan.reservations.values() for host_id in hosts}
    waiting = sorted((r for r in snapshot.requests if not r.running), key=lambda r: (r.priority, r.position))
    firsts = {
        request.groups: request for request in reversed(waiting)
    }  # a path's other requests wait for its first
    for request in firsts.values():
        name = group_of(request, 0)
        wanted = sum(each.slots for each in firsts.values() if group_of(each, 0) == name)
        if firm_slots(snapshot, name, 0) + wanted <= guaranteed(name):
            for view in snapshot.hosts:
                usable = sum(slot.held_by is None for slot in view.slots)
                for run in snapshot.requests:
                    if run.running and run.task_id not in safe and group_of(run, 0) != name:
                        usable += len(run.running.slots.get(view.id, ()))
                assert usable < request.slots or view.id in kept, (request.task_id, view.id)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, preemption=st.booleans())
def test_who_is_within_a_guarantee_waits_one_pass_at_most_while_others_borrow_what_would_do(
    seed: int, preemption: bool
) -> None:
    """One slot each, so that nothing but borrowed slots can be in the way: it starts, or its slot is coming free."""
    random = Random(seed)
    shares = {name: replace(share, limit=None) for name, share in SHARES.items()}
    world = World([host(number, 4) for number in (1, 2, 3)], shares=shares, preemption=preemption)
    for number in range(random.randint(10, 40)):
        world.submit(f"t{number}", 1, groups=random.choice(PATHS), priority=random.choice([10, 42, 50]))
        if random.random() < 0.4:
            world.tick()
        if random.random() < 0.3:
            world.stops_end()
    for path in PATHS:
        world.submit(".".join(path) or "nobody", 1, groups=path)
    snapshot = world.snapshot
    safe = protected(snapshot, 0)
    borrowed = [
        r for r in snapshot.requests if r.running and not r.running.stopping and r.task_id not in safe
    ]
    plan = world.tick()
    started = {start.task_id for start in plan.starts}
    for name in ("research", "product"):
        waiting = [r for r in snapshot.requests if not r.running and group_of(r, 0) == name]
        served = [
            r for r in waiting if r.task_id in started or plan.waits[r.task_id].code == WaitCode.COMING_FREE
        ]
        within = min(len(waiting), guaranteed(name) - firm_slots(snapshot, name, 0))
        others = [run for run in borrowed if group_of(run, 0) != name]
        assert len(served) >= min(within, len(others)), (name, within, len(served))


@GROUPED
@given(seed=SEEDS, scheduler=st.sampled_from(["priority", "fair_share"]))
def test_a_pool_of_groups_comes_to_rest_and_then_nothing_is_decided(seed: int, scheduler: str) -> None:
    world = random_world(seed, scheduler=scheduler, shares=SHARES)
    world.settle()
    assert (world.plan.starts, world.plan.releases) == ((), ())
    again = decide(applied(world.snapshot, world.plan))
    assert (again.starts, again.releases, again.order) == ((), (), world.plan.order)


@GROUPED
@given(seed=SEEDS)
def test_equal_groups_are_served_in_the_order_of_their_requests(seed: int) -> None:
    random = Random(seed)
    world = World([host(1, 8)], shares={name: GroupShare() for name in "abc"})
    names = [random.choice("abc") for _ in range(12)]
    for number, name in enumerate(names):
        world.submit(f"{name}{number}", 1, groups=(name,))
    world.tick()
    expected, counts = [], Counter[str]()
    left = dict(enumerate(names))
    for _ in range(8):
        number = min(left, key=lambda number: (counts[left[number]], number))
        counts[left[number]] += 1
        expected.append(f"{left[number]}{number}")
        del left[number]
    assert [start.task_id for start in world.plan.starts] == expected
