"""Pools in which anything happens: made from a seed, for properties that every plan has."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from scheduling.plan import decide
from scheduling.world import GroupShare, HostView, Plan, Request, Snapshot
from tests.rig.pool_worlds import UPLOADED, World, host

SEEDS = st.integers(0, 2**32 - 1)
#: of two departments, one with two teams, and one group without a guarantee; some users are in none
SHARES = {
    "research": GroupShare(guarantee=6),
    "vision": GroupShare(guarantee=4, limit=12, parent="research"),
    "speech": GroupShare(guarantee=1, weight=2.0, parent="research"),
    "product": GroupShare(guarantee=2, weight=3.0),
    "guests": GroupShare(limit=4),
}
PATHS = [("research", "vision"), ("research", "speech"), ("research",), ("product",), ("guests",), ()]
POOLS: list[dict[str, Any]] = [
    {"scheduler": "priority"},
    {"scheduler": "priority", "preemption": False},
    {"scheduler": "priority", "allow_heterogeneous_fits": True},
    {"scheduler": "priority", "max_reservations": 1, "fitting": "worst"},
    {"scheduler": "priority", "bad_pairs": frozenset({frozenset({"h1", "h2"}), frozenset({"h2", "h3"})})},
    {"scheduler": "priority", "unpreemptible_slots": 4, "longest_max_time": 100.0},
    {"scheduler": "priority", "min_runtime": ((1, 12.0), (42, 5.0))},
    {"scheduler": "priority", "shares": SHARES},
    {"scheduler": "priority", "preemption": False, "shares": SHARES, "fitting": "worst"},
    {"scheduler": "fair_share", "shares": SHARES},
    {"scheduler": "fair_share"},
    {"scheduler": "fair_share", "min_runtime": ((1, 8.0),)},
    {"scheduler": "fair_share", "fitting": "worst", "allow_heterogeneous_fits": True},
]
ANY_POOL = st.sampled_from(POOLS)
worlds = settings(max_examples=120, deadline=None)


def random_hosts(random: Random) -> list[HostView]:
    sizes = random.choice([(8,), (4,), (1, 2, 4, 8), (2, 4), (2,)])
    hosts = []
    for number in range(1, random.randint(1, 6) + 1):
        outside = {0: "root"} if random.random() < 0.1 else {}
        hosts.append(host(number, random.choice(sizes), outside=outside, aux_capacity=2))
    return hosts


def random_request(random: Random) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "priority": random.choice([1, 10, 42, 42, 42, 50]),
        "weight": random.choice([1.0, 2.0]),
        "preemptible": random.random() < 0.8,
        "single_host": random.random() < 0.1,
        "avoid_hosts": random.choice([frozenset()] * 8 + [frozenset({"gpu-1"}), frozenset({"h2", "gpu-3"})]),
        "max_time": random.choice([None, None, 50.0, 500.0]),
    }
    if random.random() < 0.05:
        fields["blocked"] = UPLOADED
    return fields


def random_job(random: Random, number: int) -> dict[str, Any]:
    """A job of its own, or one of four that have several tasks; jobs 0 and 1 have a limit."""
    if random.random() > 0.25:
        return {"job": f"own{number}", "groups": PATHS[number % len(PATHS)]}
    shared = random.randint(0, 3)
    return {"job": f"job{shared}", "max_slots": {0: 3, 1: 8}.get(shared), "groups": PATHS[shared]}


def something_happens(random: Random, world: World, number: int) -> None:
    waiting = [r.task_id for r in world.snapshot.requests if r.running is None]
    event = random.random()
    if event < 0.6:
        slots = random.choice([0, 1, 1, 1, 2, 2, 4, 8, 12, 16])
        world.submit(f"t{number:02}", slots, **random_job(random, number), **random_request(random))
    elif event < 0.68 and world.running:
        world.finish(random.choice(sorted(world.running)))
    elif event < 0.78:
        world.stops_end()
    elif event < 0.82 and waiting:
        world.cancel(random.choice(waiting))
    elif event < 0.9 and waiting:
        world.move_ahead(random.choice(waiting), of=random.choice(world.snapshot.requests).task_id)
    elif event < 0.94 and world.running:
        saves(world, random.choice(sorted(world.running)))
    else:
        host_changes(random, world)


def saves(world: World, task: str) -> None:
    running = world[task].running
    assert running is not None
    world.edit(task, running=replace(running, last_saved_at=world.now, ends=(world.now + 10, world.now + 90)))


def host_changes(random: Random, world: World) -> None:
    view = random.choice(world.snapshot.hosts)
    change: dict[str, Any] = random.choice(
        [
            {"enabled": False},
            {"draining": True},
            {"silent": True},
            {"suspended": True},
            {"enabled": True, "draining": False, "silent": False, "suspended": False},
            {"slots": (0,), "draining": True},
            {"slots": (len(view.slots) - 1,), "enabled": False},
            {"slots": (0,), "outside": "root"},
            {"slots": tuple(range(len(view.slots))), "enabled": True, "draining": False, "outside": None},
        ]
    )
    world.edit_host(view.id, **change)


def random_world(seed: int, **pool: Any) -> World:
    """A pool after some dozens of random events, most of them followed by a pass."""
    random = Random(seed)
    world = World(random_hosts(random), **{"fitting": random.choice(["best", "worst"]), **pool})
    for number in range(random.randint(1, 40)):
        something_happens(random, world, number)
        if random.random() < 0.7:
            world.tick()
    return world


def planned(seed: int, pool: dict[str, Any]) -> tuple[Snapshot, Plan]:
    snapshot = random_world(seed, **pool).snapshot
    return snapshot, decide(snapshot)


def gangs(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[Request, dict[HostView, tuple[int, ...]]]]:
    """What starts, and on which slots of which hosts."""
    requests = {request.task_id: request for request in snapshot.requests}
    hosts = {view.id: view for view in snapshot.hosts}
    for start in plan.starts:
        yield requests[start.task_id], {hosts[host_id]: ids for host_id, ids in start.hosts}
