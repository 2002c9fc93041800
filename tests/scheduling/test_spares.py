"""Spares: hosts that are kept for attempts whose own host has failed, and what the other work of a pool is told."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings

from scheduling.explain import explain
from scheduling.forecast import forecast
from scheduling.plan import decide
from scheduling.reasons import NEVER, WaitCode
from scheduling.spares import Spares
from scheduling.world import GroupShare, HostView, Plan, Request, Snapshot, WindowView
from tests.rig.pool_worlds import World, host
from tests.rig.random_pools import ANY_POOL, SEEDS, random_world, something_happens

HOUR = 3600.0
worlds = settings(max_examples=60, deadline=None)


def pool(hosts: int = 3, slots: int = 4, **rules: Any) -> World:
    return World([host(number, slots) for number in range(1, hosts + 1)], **{"spare_hosts": 1, **rules})


def spares(world: World) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Name of each spare -> slots that are free there, and what still runs."""
    return {one.name: (one.free, one.runs) for one in world.plan.spares}


def loses_its_host(world: World, label: str) -> None:
    """As after a fault: the host is out of use, and its attempt, with all that ran there, begins again."""
    running = world[label].running
    assert running is not None
    lost = next(iter(running.slots))
    there = [each.task_id for each in world.snapshot.requests if each.running and lost in each.running.slots]
    world.stops_end(*there)
    for each in there:
        world.edit(each, recovers=True)
    world.edit_host(lost, draining=True)


def test_new_work_leaves_the_spare_free_and_is_told_so() -> None:
    world = pool()
    for label in ("exp 1", "exp 2", "exp 3"):
        world.submit(label, 4)
    world.tick()
    world.submit("exp 4", 1)
    world.tick()
    assert world.running == {"exp 1", "exp 2"}
    assert spares(world) == {"gpu-1": (4, ())}
    assert world.why("exp 3").sentence == (
        "needs 4 slots on one host: gpu-2 is reserved for it (0 of 4 free); waiting for exp 1 to end; "
        "1 host is kept as a spare (gpu-1)"
    )
    assert world.why("exp 4").code == WaitCode.NO_ROOM
    assert world.why("exp 4").sentence == "no slot is free; 1 host is kept as a spare (gpu-1)"
    sentences = [each.sentence for each in explain(world.snapshot, "exp 4")]
    assert "not available to it: gpu-1 (kept as a spare)" in sentences


def test_an_attempt_that_lost_its_host_begins_again_on_the_spare_ahead_of_what_waits() -> None:
    world = pool()
    world.submit("gang", 8)
    world.tick()
    world.submit("next", 4)
    world.tick()
    assert world.running == {"gang"}
    loses_its_host(world, "gang")
    world.tick()
    assert world.running == {"gang"}
    assert world["gang"].running and len(world["gang"].running.slots) == 2
    world.tick()
    [(free, runs)] = spares(world).values()
    assert (free, runs) == (0, ("gang",))  # none is left, so the next one that comes free becomes it


def test_the_kept_number_comes_back_with_a_repaired_host() -> None:
    world = pool()
    world.submit("gang", 8)
    world.submit("next", 4)
    world.tick()
    failed = world.host_of("gang")
    loses_its_host(world, "gang")
    world.tick()
    world.edit_host(failed, draining=False)
    world.tick()
    assert world.running == {"gang"}
    assert list(spares(world).values()) == [(4, ())]


def test_a_host_that_comes_free_is_kept_before_other_work_gets_it() -> None:
    world = pool(2, spare_hosts=0)
    world.submit("exp 1", 4)
    world.submit("exp 2", 4)
    world.tick()
    world.rules(spare_hosts=1)
    world.submit("exp 3", 4)
    world.tick()
    assert world.running == {"exp 1", "exp 2"} and not world.plan.releases  # nothing ends for a spare
    [(free, runs)] = spares(world).values()
    assert free == 0 and runs in (("exp 1",), ("exp 2",))
    [other] = {"exp 1", "exp 2"} - set(runs)
    world.finish(other)  # not the one where the least ran, but it is free now
    world.tick()
    assert "exp 3" not in world.running
    assert [free for free, _ in spares(world).values()] == [4]


def test_a_host_that_was_freed_for_a_job_is_not_kept_instead() -> None:
    world = pool(2, spare_hosts=0)
    world.submit("low 1", 4, priority=50)
    world.submit("low 2", 4, priority=50)
    world.tick()
    world.rules(spare_hosts=1)
    world.submit("high", 4, priority=1)
    world.tick()
    [stopped] = [release.task_id for release in world.plan.releases]
    world.stops_end()
    world.tick()
    assert "high" in world.running and stopped not in world.running
    assert not world.plan.releases


def test_nor_is_it_kept_once_it_has_been_cleaned_up() -> None:
    world = pool(2, spare_hosts=0)
    world.submit("low 1", 4, priority=50)
    world.submit("low 2", 4, priority=50)
    world.tick()
    world.rules(spare_hosts=1)
    world.submit("high", 4, priority=1)
    world.tick()
    [stopped] = [release.task_id for release in world.plan.releases]
    freed = world.host_of(stopped)
    world.stops_end()
    world.edit_host(freed, (0,), cleaning=stopped)
    for _ in range(2):
        world.tick()
        assert "high" not in world.running and not world.plan.releases
    world.edit_host(freed, (0,), cleaning=None)
    world.tick()
    assert world.host_of("high") == freed and not world.plan.releases


def test_work_that_a_job_may_stop_does_not_run_on_where_a_spare_is_wanted() -> None:
    world = pool(2, spare_hosts=0)
    world.submit("low", 4, priority=50)
    world.submit("high", 4, priority=1)
    world.tick()
    world.rules(spare_hosts=1)
    world.submit("middle", 4, priority=10)
    world.tick()
    assert list(spares(world).values()) == [(0, ("high",))]
    assert [release.task_id for release in world.plan.releases] == ["low"]


def test_burn_ins_run_on_spares_and_make_way_for_a_recovery() -> None:
    world = pool(2)
    world.submit("exp 1", 4)
    world.tick()
    world.submit("burn-in", 4, priority=99, yields=True)
    world.tick()
    assert world.running == {"exp 1", "burn-in"}
    assert list(spares(world).values()) == [(4, ())]
    world.submit("exp 2", 4)
    world.tick()
    assert not world.plan.releases  # what is not lent to it is not freed for it either
    loses_its_host(world, "exp 1")
    world.tick()
    assert [release.task_id for release in world.plan.releases] == ["burn-in"]
    world.stops_end()
    world.tick()
    assert world.running == {"exp 1"}


def test_without_preemption_a_burn_in_waits_for_another_host() -> None:
    world = pool(2, preemption=False)
    world.submit("exp 1", 4)
    world.submit("burn-in", 4, priority=99, yields=True)
    world.tick()
    assert world.running == {"exp 1"}


def test_hosts_of_the_most_frequent_size_are_kept() -> None:
    world = World([host(1, 8), host(2, 4), host(3, 4)], spare_hosts=1)
    world.tick()
    [name] = spares(world)
    assert name in {"gpu-2", "gpu-3"}
    world.submit("large", 8, single_host=True)
    world.submit("small", 4)
    world.tick()
    assert world.running == {"large", "small"}


def test_a_host_that_a_job_names_is_kept_only_if_no_other_is_free() -> None:
    world = pool(2)
    world.submit("exp 1", 4)
    world.allow("exp 1", "gpu-2")
    world.submit("exp 2", 4)
    world.allow("exp 2", "gpu-1")
    world.tick()
    assert len(world.running) == 1
    assert world.why(next(iter({"exp 1", "exp 2"} - world.running))).code == WaitCode.SPARE


def test_a_gang_that_needs_the_spare_too_is_told_that_it_never_starts() -> None:
    world = pool(2)
    world.submit("gang", 8)
    world.tick()
    reason = world.why("gang")
    assert reason.code in NEVER
    assert reason.sentence == (
        "needs 8 slots on 2 hosts; pool default has 2 hosts and keeps 1 of them as a spare: ask for fewer slots, or "
        "an admin can keep fewer with `trainmaster pool edit default --spare-hosts 0`"
    )
    world.edit("gang", recovers=True)  # it ran before the pool kept a spare
    world.tick()
    assert world.running == {"gang"}


def test_a_pool_that_has_lost_its_hosts_keeps_one_for_all_work() -> None:
    world = pool(2, spare_hosts=2)
    world.submit("exp 1", 4)
    world.tick()
    assert world.running == {"exp 1"}
    lost = pool(1, unready=frozenset({"gpu-2"}))  # which counts: its job is about to begin again on gpu-1
    lost.submit("exp 1", 4)
    lost.tick()
    assert lost.why("exp 1").code == WaitCode.SPARE


def test_a_gang_reserves_hosts_beside_the_spare() -> None:
    world = pool(4)
    world.submit("exp 1", 4, preemptible=False, lasts=(HOUR, HOUR))
    world.submit("exp 2", 4, preemptible=False)
    world.tick()
    world.submit("gang", 12)
    world.tick()
    kept = {one.host_id for one in world.plan.spares}
    assert len(world.plan.reservations["gang"]) == 3
    assert kept.isdisjoint(world.plan.reservations["gang"])
    world.submit("backfill", 4)
    world.tick()
    assert "backfill" in world.running and world.host_of("backfill") not in kept


def test_a_host_under_maintenance_is_no_spare() -> None:
    drivers = WindowView("drivers", 0.0, HOUR, hosts=frozenset({"gpu-1", "gpu-2"}))
    world = pool(3, windows=(drivers,))
    world.tick()
    assert list(spares(world)) == ["gpu-3"]


def test_a_forecast_counts_without_the_spare() -> None:
    def starts_in(kept: int) -> float:
        world = pool(2, spare_hosts=kept)
        for number in range(6):
            world.submit(f"exp {number}", 4, lasts=(HOUR, HOUR))
        world.tick()
        return forecast(world.snapshot, world.plan).spans["exp 5"][0] - world.now

    assert starts_in(1) == pytest.approx(2 * starts_in(0) + HOUR, abs=HOUR / 2)


def test_in_fair_share_a_recovery_is_granted_the_spare_and_is_not_stopped_there() -> None:
    world = pool(3, scheduler="fair_share")
    for label in ("exp 1", "exp 2", "exp 3"):
        world.submit(label, 4, max_slots=4)
    world.tick()
    assert world.running == {"exp 1", "exp 2"}
    assert world.plan.shares == {"exp 1": 4, "exp 2": 4, "exp 3": 0}
    loses_its_host(world, "exp 1")
    world.tick()
    assert world.running == {"exp 1", "exp 2"}
    assert not world["exp 1"].running.on_sufferance  # type: ignore[union-attr]
    for _ in range(3):
        world.tick()
        assert not world.plan.releases


@pytest.mark.parametrize("scheduler", ["priority", "fair_share"])
def test_a_guarantee_does_not_reach_the_spare(scheduler: str) -> None:
    shares = {"vision": GroupShare(guarantee=4), "speech": GroupShare(guarantee=4)}
    world = pool(3, scheduler=scheduler, shares=shares)
    world.submit("exp 1", 4, groups=("speech",))
    world.submit("exp 2", 4, groups=("speech",), preemptible=False)
    world.tick()
    world.submit("exp 3", 4, groups=("vision",))
    world.tick()
    assert [release.task_id for release in world.plan.releases] == ["exp 1"]
    world.stops_end()
    world.tick()
    assert world.running == {"exp 2", "exp 3"}


@pytest.mark.parametrize(("sizes", "asks"), [((8, 8, 4, 4), 16), ((8, 8, 8, 4, 4), 24)])
def test_a_gang_that_needs_all_hosts_of_a_size_gets_them_if_another_can_be_kept(
    sizes: tuple[int, ...], asks: int
) -> None:
    world = World([host(number, size) for number, size in enumerate(sizes, 1)], spare_hosts=1)
    world.submit("gang", asks)
    world.tick()
    assert world.running == {"gang"}
    assert [free for free, _ in spares(world).values()] == [4]


def test_of_two_spares_neither_is_what_a_gang_cannot_do_without() -> None:
    world = World([host(number, size) for number, size in enumerate((8, 8, 8, 4, 4), 1)], spare_hosts=2)
    world.submit("gang", 24)
    world.tick()
    assert world.running == {"gang"} and set(spares(world)) == {"gpu-4", "gpu-5"}


@pytest.mark.parametrize("scheduler", ["priority", "fair_share"])
def test_a_recovery_that_may_not_be_stopped_gets_its_spare_beside_guarantees(scheduler: str) -> None:
    world = pool(2, scheduler=scheduler, shares={"vision": GroupShare(guarantee=4)})
    world.submit("lost", 4, groups=("speech",), preemptible=False, recovers=True)
    world.submit("exp 1", 4, groups=("vision",), preemptible=False)
    world.tick()
    assert world.running == {"lost", "exp 1"}


def test_a_spare_that_is_still_busy_is_no_room_for_what_may_not_be_stopped() -> None:
    world = pool(3, spare_hosts=0, shares={"vision": GroupShare(guarantee=4)})
    world.submit("exp 1", 4, groups=("speech",))
    world.submit("exp 2", 4, groups=("speech",))
    world.submit("exp 3", 4, groups=("speech",))
    world.tick()
    world.rules(spare_hosts=1)
    world.submit("firm", 4, groups=("speech",), preemptible=False, priority=1)
    world.tick()
    assert [free for free, _ in spares(world).values()] == [0]
    world.submit("second", 4, groups=("speech",), preemptible=False, priority=1)
    world.tick()
    assert world.why("second").code == WaitCode.NOT_RECLAIMABLE


def test_a_recovery_takes_the_spare_only_if_no_other_host_is_free() -> None:
    world = pool(3)
    world.tick()
    [spare] = [one.host_id for one in world.plan.spares]
    world.submit("lost", 4, recovers=True)
    world.tick()
    assert world.host_of("lost") != spare


def test_a_free_spare_stays_one_though_somebody_uses_a_slot_of_it_or_one_is_cleaned_up() -> None:
    for blip in ({"outside": "ada"}, {"cleaning": "exp 9", "held_by": "exp 9.1"}):
        world = pool(2)
        world.submit("exp 1", 4)
        world.tick()
        [spare] = [one.host_id for one in world.plan.spares]
        world.edit_host(spare, (0,), **blip)
        world.tick()
        assert [(one.host_id, one.free) for one in world.plan.spares] == [(spare, 3)]


def test_a_host_that_a_window_takes_soon_is_kept_last_of_those_that_are_free() -> None:
    drivers = WindowView("drivers", HOUR, 2 * HOUR, hosts=frozenset({"gpu-1", "gpu-2"}))
    world = pool(3, windows=(drivers,))
    world.tick()
    assert list(spares(world)) == ["gpu-3"]


# --- properties -----------------------------------------------------------------------------------


def free_and_healthy(snapshot: Snapshot, plan: Plan) -> set[str]:
    """Ids of hosts whose slots are all usable, and held by nothing but what yields."""
    yielding = {each.running.allocation_id for each in snapshot.requests if each.running and each.yields}
    ordinary = {
        each.task_id for each in snapshot.requests if not (each.yields or each.recovers) and each.slots
    }
    used = {host_id for start in plan.starts if start.task_id in ordinary for host_id, _ in start.hosts}
    return {view.id for view in snapshot.hosts if view.id not in used and _is_free(view, yielding)}


def _is_free(view: HostView, yielding: set[str]) -> bool:
    slots = [
        slot for slot in view.slots if slot.usable and (slot.held_by is None or slot.held_by in yielding)
    ]
    return bool(view.slots) and view.off is None and len(slots) == len(view.slots)


def world_with_spares(seed: int, rules: dict[str, Any]) -> World:
    """A pool in which anything has happened; some work recovers, some yields to all, some waits for what was freed."""
    random = Random(seed)
    world = random_world(seed, **{**rules, "spare_hosts": random.randint(1, 3)})
    for each in world.snapshot.requests:
        if each.running is None and random.random() < 0.3:
            world.edit(each.task_id, recovers=True)
        elif random.random() < 0.1:
            world.edit(each.task_id, yields=True, preemptible=True, priority=99)
    return world


@given(seed=SEEDS, rules=ANY_POOL)
@worlds
def test_new_work_never_leaves_fewer_free_hosts_than_are_kept(seed: int, rules: dict[str, Any]) -> None:
    world = world_with_spares(seed, rules)
    snapshot = world.snapshot
    plan = world.tick()
    hosts = sum(bool(view.slots) for view in snapshot.hosts)
    promised = {
        host_id
        for each in snapshot.requests
        if each.running is not None and each.running.stopping_for
        for host_id in each.running.slots
    }
    names = {view.name: view.id for view in snapshot.hosts}
    promised |= {names[name] for hosts in snapshot.pool.promised.values() for name in hosts}
    before = free_and_healthy(snapshot, Plan()) - promised
    assert len(free_and_healthy(snapshot, plan)) >= min(snapshot.pool.spare_hosts, hosts - 1, len(before))


@given(seed=SEEDS, rules=ANY_POOL)
@worlds
def test_a_recovery_that_fits_on_a_free_spare_does_not_wait(seed: int, rules: dict[str, Any]) -> None:
    world = world_with_spares(seed, rules)
    world.submit("lost", 1, recovers=True, priority=1, groups=("product",))
    snapshot = world.snapshot
    kept = Spares.of(snapshot, None)
    hosts = [view for view in snapshot.hosts if kept and view.id in kept.ids]
    free = any(slot.usable and slot.held_by is None for view in hosts for slot in view.slots)
    recovering = [each for each in snapshot.requests if each.recovers and each.running is None]
    started = {start.task_id for start in world.tick().starts}
    if free and len(recovering) == 1:
        assert "lost" in started


@given(seed=SEEDS, rules=ANY_POOL)
@worlds
def test_nothing_is_stopped_that_would_run_on_if_nothing_were_kept_for_others(
    seed: int, rules: dict[str, Any]
) -> None:
    """Each stop is for a request that waits, on hosts that it may use: none makes a spare."""
    world = world_with_spares(seed, rules)
    snapshot = world.snapshot
    plan = decide(snapshot)
    kept = {one.host_id for one in plan.spares}
    requests = {each.task_id: each for each in snapshot.requests}
    for release in plan.releases:
        asker, run = requests.get(release.for_task_id or ""), requests[release.task_id]
        if asker is None:
            assert run.max_slots is not None  # its job gives back what it may not hold
        elif not _may_use_spares(asker):
            assert run.running is not None and not kept.issuperset(run.running.slots)


def _may_use_spares(request: Request) -> bool:
    return request.recovers or not request.slots or request.yields


@given(seed=SEEDS, rules=ANY_POOL)
@worlds
def test_what_recovers_changes_nothing_where_nothing_is_kept(seed: int, rules: dict[str, Any]) -> None:
    snapshot = random_world(seed, **rules).snapshot
    recovering = tuple(replace(each, recovers=True) for each in snapshot.requests)
    assert decide(replace(snapshot, requests=recovering)) == decide(snapshot)


@given(seed=SEEDS, rules=ANY_POOL)
@worlds
def test_passes_come_to_rest_with_spares(seed: int, rules: dict[str, Any]) -> None:
    """Once everything that is being stopped has ended, what runs keeps running: no pass undoes the one before."""
    world = world_with_spares(seed, rules)
    random = Random(seed)
    for number in range(3):
        something_happens(random, world, 90 + number)
    for _ in range(40):
        plan = world.tick()
        world.stops_end()
        if not plan.releases and not plan.starts:
            break
    assert not plan.releases
