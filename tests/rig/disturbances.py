"""Everything that is done to a running server and its hosts at random: DISTURBANCES, a list, and Chaos, which draws.

A disturbance begins at one target and ends by itself or with `end`. Nothing in the list may harm healthy work.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import redis

from embedded import processes
from tests.rig import network
from tests.rig.hosts import Host, descendants
from tests.rig.pace import wait_until
from tests.rig.server import PARTS
from tests.rig.stack import Stack
from tests.rig.stepped_clock import SteppedClocks

STEP_SECONDS = (30, 900)


@dataclass
class World:
    """What is disturbed, and what a disturbance has to know to end what it began."""

    stack: Stack
    clocks: SteppedClocks
    frozen: dict[str, list[processes.Process]] = field(default_factory=dict)

    def host(self, name: str) -> Host:
        return next(host for host in self.stack.hosts if host.name == name)

    def freeze(self, what: str, pids: list[int]) -> None:
        found = [process for pid in pids if (process := processes.identify(pid)) is not None]
        for process in found:
            process.signal(signal.SIGSTOP)
        self.frozen.setdefault(what, []).extend(found)

    def thaw(self, what: str) -> None:
        for process in self.frozen.pop(what, []):
            process.signal(signal.SIGCONT)


@dataclass(frozen=True)
class Disturbance:
    """`of`: disturbances of one kind are never at one target at once. `rest_seconds`: how long it is spared then."""

    name: str
    of: str
    targets: Callable[[World], list[str]]
    begin: Callable[[World, str, random.Random], object]
    end: Callable[[World, str], object] = lambda world, target: None
    rest_seconds: float = 2.0
    #: its end takes a while, before which all others end, so that they last no longer than planned
    slow: bool = False


def hosts(world: World) -> list[str]:
    return [host.name for host in world.stack.hosts]


def parts(world: World) -> list[str]:
    return list(PARTS)


def server(world: World) -> list[str]:
    return ["server"]


def postgres(world: World) -> list[str]:
    return ["postgres"]


def broker(world: World) -> list[str]:
    return ["redis"]


def clocks_of_parts(world: World) -> list[str]:
    return ["postgres", "web", "worker"]


def kill_part(world: World, name: str, chance: random.Random) -> None:
    if (part := world.stack.server.children().get(name)) is not None:
        part.signal(signal.SIGKILL)


def freeze_part(world: World, name: str, chance: random.Random) -> None:
    part = world.stack.server.children().get(name)
    if part is not None and part.alive():
        world.freeze(name, [part.pid, *descendants(part.pid)])


def end_connections(world: World, name: str, chance: random.Random) -> None:
    try:
        with psycopg.connect(world.stack.server.database_url, connect_timeout=2) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
    except psycopg.Error:
        return  # something else has just ended it


def stop_postgres_at_once(world: World, name: str, chance: random.Random) -> None:
    if (part := world.stack.server.children().get(name)) is not None:
        part.signal(signal.SIGQUIT)


def empty_redis(world: World, name: str, chance: random.Random) -> None:
    path = world.stack.server.data / "redis" / "redis.sock"
    try:
        with redis.Redis(unix_socket_path=str(path), socket_timeout=2) as connection:
            connection.flushall()
    except redis.RedisError:
        return


def runners(host: Host) -> list[int]:
    """Pids of what ships the logs of the host's runs."""
    assert host.namespace is not None
    return [pid for pid in network.pids(host.namespace) if b"ship" in _words(pid)]


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def kill_runners(world: World, name: str, chance: random.Random) -> None:
    for pid in runners(world.host(name)):
        if (runner := processes.identify(pid)) is not None:
            runner.signal(signal.SIGKILL)


def kill_sessions(world: World, name: str, chance: random.Random) -> None:
    for pid in world.host(name).sessions():
        if (session := processes.identify(pid)) is not None:
            session.signal(signal.SIGKILL)


def step_clock(world: World, name: str, chance: random.Random) -> None:
    world.clocks.step(name, chance.choice([-1, 1]) * chance.randint(*STEP_SECONDS))


#: A rank whose peer is silent for long is lost to the others, and rightly: a link rests for longer than it is cut.
LINK_RESTS_SECONDS = 30.0
DISTURBANCES = [
    Disturbance(
        "link cut",
        "link",
        hosts,
        lambda world, name, _: world.host(name).cut(),
        lambda world, name: world.host(name).restore(),
        LINK_RESTS_SECONDS,
    ),
    Disturbance(
        "sshd stopped",
        "link",
        hosts,
        lambda world, name, _: world.host(name).stop_sshd(),
        lambda world, name: world.host(name).start_sshd(),
    ),
    Disturbance(
        "sshd and its sessions frozen",
        "link",
        hosts,
        lambda world, name, _: world.freeze(f"sshd {name}", world.host(name).sessions()),
        lambda world, name: world.thaw(f"sshd {name}"),
    ),
    Disturbance("sessions killed", "link", hosts, kill_sessions),
    Disturbance(
        "runners frozen",
        "runner",
        hosts,
        lambda world, name, _: world.freeze(f"runner {name}", runners(world.host(name))),
        lambda world, name: world.thaw(f"runner {name}"),
    ),
    Disturbance("runners killed", "runner", hosts, kill_runners),
    Disturbance(
        "host's clock stepped", "clock", hosts, step_clock, lambda world, name: world.clocks.step(name, 0)
    ),
    Disturbance("part killed", "part", parts, kill_part),
    Disturbance("part frozen", "part", parts, freeze_part, lambda world, name: world.thaw(name)),
    Disturbance(
        "part's clock stepped",
        "clock",
        clocks_of_parts,
        step_clock,
        lambda world, name: world.clocks.step(name, 0),
    ),
    Disturbance("connections ended", "part", postgres, end_connections),
    Disturbance("stopped at once", "part", postgres, stop_postgres_at_once),
    Disturbance("emptied", "part", broker, empty_redis),
    Disturbance(
        "everything killed",
        "server",
        server,
        lambda world, name, _: world.stack.server.kill(),
        lambda world, name: world.stack.server.start(),
        rest_seconds=60.0,
        slow=True,
    ),
]


@dataclass
class _Active:
    disturbance: Disturbance
    target: str
    begun: float
    until: float


class Chaos:
    """Begins disturbances as a seed has them and ends them, some at once. Use it from the main thread."""

    AT_ONCE = 3
    PAUSE_SECONDS = (1.0, 6.0)
    LASTS_SECONDS = (1.0, 20.0)

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.began = time.monotonic()
        self.counted: dict[str, int] = {}
        #: monotonic times between which a clock was wrong
        self.wrong_clocks: list[tuple[float, float]] = []
        self._active: list[_Active] = []
        self._spared: dict[tuple[str, str], float] = {}

    def last(self, seconds: float) -> None:
        """Disturb for so long; afterwards nothing is disturbed any more."""
        until = self.began + seconds
        following = self.began
        try:
            while (now := time.monotonic()) < until:
                self._end([active for active in self._active if active.until <= now])
                if now >= following and len(self._active) < self.AT_ONCE:
                    self._begin()
                    following = time.monotonic() + self.chance.uniform(*self.PAUSE_SECONDS)
                time.sleep(0.1)  # time itself is what this is about
        finally:
            self._end(list(self._active))

    def _begin(self) -> None:
        disturbance = self.chance.choice(DISTURBANCES)
        target = self.chance.choice(disturbance.targets(self.world))
        seconds = self.chance.uniform(*self.LASTS_SECONDS)
        spared = self._spared.get((disturbance.of, target), 0.0)
        if spared > time.monotonic():
            return
        self._spared[disturbance.of, target] = float("inf")
        self.say(f"{target}: {disturbance.name}, for {seconds:.0f} s")
        self.counted[disturbance.name] = self.counted.get(disturbance.name, 0) + 1
        now = time.monotonic()
        self._active.append(_Active(disturbance, target, now, now + seconds))
        disturbance.begin(self.world, target, self.chance)

    def _end(self, due: list[_Active]) -> None:
        if any(active.disturbance.slow for active in due):
            due = list(self._active)
        for active in sorted(due, key=lambda each: each.disturbance.slow):
            self._active.remove(active)
            active.disturbance.end(self.world, active.target)
            self._spared[active.disturbance.of, active.target] = (
                time.monotonic() + active.disturbance.rest_seconds
            )
            if active.disturbance.of == "clock":
                self.wrong_clocks.append((active.begun, time.monotonic()))
            self.say(f"{active.target}: {active.disturbance.name}, over")

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self.began:7.1f} {what}", flush=True)


def wait_whole(stack: Stack) -> None:
    """Until all parts run and answer, and every host is ready."""

    def whole() -> bool:
        try:
            return stack.server.is_whole() and all(
                stack.host_state(host.name) == "ready" for host in stack.hosts
            )
        except OSError:
            return False

    assert wait_until(whole, 240), {host.name: stack.host_state(host.name) for host in stack.hosts}
