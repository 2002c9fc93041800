"""Determined's priority scheduler written down plainly, to have something to be compared with.

As its documents and features describe it (fits on one host or on wholly unused hosts of one size; victims from priority
99 upwards, the latest first, until the request fits): every request looks at every host, and every victim that is
considered means another look. It answers counts, for it is measured and not used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduling.world import Request, Snapshot


@dataclass
class Agent:
    """A host: its slots, and how many each task holds there."""

    slots: int
    used: dict[str, int] = field(default_factory=dict)

    @property
    def free(self) -> int:
        return self.slots - sum(self.used.values())


def one_pass(snapshot: Snapshot) -> tuple[int, int]:
    """(requests started, tasks released)"""
    agents = agents_of(snapshot)
    released: set[str] = set()
    started = 0
    blocked = False  # something of a higher priority could not be placed: only backfill is left
    running = [request for request in snapshot.requests if request.running is not None]
    for priority in sorted({request.priority for request in snapshot.requests}):
        placed_all = True
        for request in by_position(r for r in snapshot.requests if r.priority == priority and not r.running):
            may_start = not released and (not blocked or (snapshot.pool.preemption and request.preemptible))
            if may_start and place(request, agents):
                started += 1
                continue
            placed_all = False
            if snapshot.pool.preemption:
                make_room(request, agents, running, released)
        blocked = blocked or not placed_all
    return started, len(released)


def agents_of(snapshot: Snapshot) -> dict[str, Agent]:
    agents = {host.id: Agent(len(host.slots)) for host in snapshot.hosts}
    for request in snapshot.requests:
        if request.running is not None:
            for host_id, ids in request.running.slots.items():
                agents[host_id].used[request.task_id] = len(ids)
    return agents


def by_position(requests: Iterable[Request]) -> list[Request]:
    return sorted(requests, key=lambda request: request.position)


def fits(request: Request, agents: dict[str, Agent]) -> dict[str, int]:
    """Host -> slots there; empty if it does not fit."""
    shared = [(agent.free, host) for host, agent in agents.items() if agent.free >= request.slots]
    if shared:
        return {min(shared)[1]: request.slots}
    unused: dict[int, list[str]] = {}
    for host, agent in agents.items():
        if not agent.used:
            unused.setdefault(agent.slots, []).append(host)
    for size in sorted(unused, reverse=True):
        count, rest = divmod(request.slots, size)
        if rest == 0 and count <= len(unused[size]):
            return dict.fromkeys(unused[size][:count], size)
    return {}


def place(request: Request, agents: dict[str, Agent]) -> bool:
    found = fits(request, agents)
    for host, count in found.items():
        agents[host].used[request.task_id] = count
    return bool(found)


def make_room(request: Request, agents: dict[str, Agent], running: list[Request], released: set[str]) -> bool:
    """Release the fewest from the back of the queue that let it in; nobody if that is never enough."""
    if place(request, agents):  # what has been released already is enough
        return True
    taken: list[tuple[str, Agent, int]] = []
    victims: list[str] = []
    for victim in sorted(running, key=lambda run: (run.priority, run.position), reverse=True):
        if (victim.priority, victim.position) < (request.priority, request.position):
            break
        if not victim.preemptible or victim.task_id in released:
            continue
        for agent in agents.values():
            if victim.task_id in agent.used:
                taken.append((victim.task_id, agent, agent.used.pop(victim.task_id)))
        victims.append(victim.task_id)
        if place(request, agents):
            released.update(victims)
            return True
    for task_id, agent, count in taken:
        agent.used[task_id] = count
    return False
