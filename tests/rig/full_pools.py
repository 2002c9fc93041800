"""Full pools for tests of the planner: hosts held by mixed runs, and requests that wait for them to be stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from random import Random
from typing import Any

from scheduling.world import HostView
from tests.rig.pool_worlds import World, host

#: neighbors: who may stop whom changes from each to the next
PRIORITIES = (41, 42, 43)
#: slots of runs that share a host with others
MIXED = (1, 1, 2, 2, 3, 4)
#: runs and waiting requests came before, newcomers come after
NOW = 1000.0


def full_pool(random: Random, runs: tuple[int, ...] = MIXED, **pool: Any) -> World:
    """Before its first pass. Runs `r…` hold nearly every slot; requests `w…` wait, some moved ahead by a user."""
    sizes = random.choice([(4,), (4,), (2,), (8,), (4, 2)])
    hosts = [host(number, random.choice(sizes)) for number in range(1, random.randint(2, 5) + 1)]
    world = World(hosts, **pool)
    world.now = NOW
    jobs = [shared(random, f"job{number}") for number in range(3)]
    for number, slots in enumerate(held(random, hosts, runs)):
        label, started_at = f"r{number:02}", random.uniform(1, NOW)
        fields = fields_of(random, jobs)
        world.submit(label, sum(map(len, slots.values())), **fields)
        sufferance = random.random() < 0.1 and fields["preemptible"]
        saved = random.choice([None, started_at])
        world.place(label, slots, started_at, on_sufferance=sufferance, last_saved_at=saved)
    largest = max(len(view.slots) for view in hosts)
    for number in range(random.randint(1, 5)):
        slots = random.choice([1, 1, 2, 3, largest, largest, 2 * largest])
        single_host = random.random() < 0.1
        world.submit(f"w{number}", slots, single_host=single_host, **fields_of(random, jobs))
    return world


def held(
    random: Random, hosts: list[HostView], runs: tuple[int, ...]
) -> Iterator[Mapping[str, tuple[int, ...]]]:
    """What each run holds: a part of one host, or two whole hosts of one size."""
    left = {view.id: [slot.id for slot in view.slots] for view in hosts}
    for one, other in pairwise(hosts):
        both = [tuple(left[view.id]) for view in (one, other)]
        if runs is MIXED and random.random() < 0.2 and len(both[0]) == len(both[1]) > 0:
            yield {one.id: both[0], other.id: both[1]}
            left[one.id] = left[other.id] = []
    for host_id, ids in left.items():
        while ids:
            count = min(len(ids), random.choice(runs))
            if random.random() < 0.85:
                yield {host_id: tuple(ids[:count])}
            del ids[:count]


def fields_of(random: Random, jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """Of a job of its own, or of one of these."""
    of_job = random.choice(jobs) if random.random() < 0.25 else shared(random)
    return {**of_job, "submitted_at": random.uniform(1, NOW)}


def shared(random: Random, job: str | None = None) -> dict[str, Any]:
    """What all tasks of a job have alike. Some jobs were moved to the front, the latest foremost."""
    moved_at = random.uniform(1, NOW) if random.random() < 0.15 else None
    return {
        **({"job": job} if job else {}),
        "priority": random.choice(PRIORITIES),
        "position": random.uniform(1, NOW) if moved_at is None else 1 - moved_at / NOW,
        "moved_at": moved_at,
        "preemptible": random.random() < 0.8,
    }


def newcomer(random: Random, world: World, number: int) -> None:
    """Of lower standing than all who wait."""
    world.submit(f"n{number}", random.choice([1, 1, 2, 4, 8]), priority=max(PRIORITIES) + 1)
