"""One pass of the planner over 1,000 hosts of 8 slots, beside a plain port of Determined's priority scheduler.

The pool is idle, or every slot is held; 1,000 to 100,000 requests wait, of 1 to 16 slots in priorities 1 to 99, every
tenth one that never fits; then the same with 20 groups of people, beside the pass without. No database: dispatch is
measured elsewhere, and as there, no garbage is collected during a pass. `python -m benchmarks.scheduling` writes
benchmarks/reports/scheduling.md; PASSES and LARGEST shorten it.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import plain_port
from benchmarks.rows import Row, finish, size
from scheduling.group_shares import shared
from scheduling.plan import decide
from scheduling.reasons import depends
from scheduling.runs import standing
from scheduling.world import (
    GroupShare,
    HostView,
    Placement,
    PoolView,
    Request,
    SlotView,
    Snapshot,
    Start,
    WindowView,
)

PASSES = size("PASSES", 7, quick=2)
LARGEST = size("LARGEST", 100_000, quick=10_000)
SIZES = [size for size in (1_000, 10_000, 100_000) if size <= LARGEST]
HOSTS, SLOTS = 1_000, 8
GOAL_MS = 100.0
#: the port runs over ever more hosts, ten waiting requests for each, until one pass took so long
PORT_SECONDS = float(size("PORT_SECONDS", 60, quick=1))
MIXED = (1, 1, 1, 2, 2, 3, 4, 4, 8, 16)
NEVER_FITS = 12
GOAL_PORT = 200.0
#: a pass among groups, windows and dependencies, beside the same pass without: at most, and the goal
MOST_GROUPS, GOAL_GROUPS = 1.25, 1.0
DEPARTMENTS, TEAMS = 4, 4
REPORT = Path(__file__).parent / "reports" / "scheduling.md"


@dataclass(frozen=True)
class Situation:
    """`held`: sizes of the runs that fill the pool; none, and it is idle. `tasks`: requests of one job."""

    name: str
    held: tuple[int, ...]
    pool: PoolView
    tasks: int = 1


SITUATIONS = [
    Situation("idle, priority", (), PoolView()),
    Situation("full of 1-slot runs, priority, preemption on", (1,), PoolView()),
    Situation("full of 1 to 16-slot runs, priority, preemption on", MIXED, PoolView()),
    Situation("full of 1-slot runs, priority, preemption off", (1,), PoolView(preemption=False)),
    Situation("idle, fair share", (), PoolView(scheduler="fair_share"), 50),
    Situation("full of 1-slot runs, fair share", (1,), PoolView(scheduler="fair_share"), 50),
    Situation("full of 1 to 16-slot runs, fair share", MIXED, PoolView(scheduler="fair_share"), 50),
]


def snapshot_of(situation: Situation, waiting: int, hosts: int = HOSTS) -> Snapshot:
    random = Random(1)
    runs = running(random, situation, hosts) if situation.held else []
    holders = {
        slot_id: run.running.allocation_id
        for run in runs
        if run.running is not None
        for ids in run.running.slots.values()
        for slot_id in ids
    }
    views = tuple(
        HostView(
            f"h{number}",
            f"gpu-{number}",
            tuple(
                SlotView(slot, slot % SLOTS, held_by=holders.get(slot))
                for slot in range(number * SLOTS, (number + 1) * SLOTS)
            ),
        )
        for number in range(hosts)
    )
    queue = [
        request(
            random, "new", number, NEVER_FITS if number % 10 == 0 else random.choice(MIXED), situation.tasks
        )
        for number in range(waiting)
    ]
    requests = runs + queue
    random.shuffle(requests)
    return Snapshot(2e6, situation.pool, views, tuple(requests))


def among_groups(snapshot: Snapshot) -> Snapshot:
    """The same with 20 groups, 16 of them teams, whose guarantees are half of the pool; each job is of a team."""
    random = Random(5)
    paths = [
        shared((f"department {number}", f"team {number}.{team}"))
        for number in range(DEPARTMENTS)
        for team in range(TEAMS)
    ]
    half = sum(len(host.slots) for host in snapshot.hosts) // 2
    shares = {
        top: GroupShare(half // DEPARTMENTS, usage=50.0 * place) for place, (top, _) in enumerate(paths)
    }
    for place, (top, team) in enumerate(paths):
        shares[team] = GroupShare(half // len(paths) // 2, weight=1.0 + place % TEAMS, parent=top)
    of_job = {job: random.choice(paths) for job in dict.fromkeys(each.job_id for each in snapshot.requests)}
    requests = tuple(replace(each, groups=of_job[each.job_id]) for each in snapshot.requests)
    return replace(snapshot, pool=replace(snapshot.pool, shares=shares), requests=requests)


def among_windows(snapshot: Snapshot) -> Snapshot:
    """The same with three windows; a third of the work has a time limit, and a tenth of what waits depends on a job."""
    random, now = Random(6), snapshot.now
    some = frozenset(host.name for host in snapshot.hosts[::20])
    windows = (
        WindowView("drivers", now + 3600, now + 7200, hosts=some),
        WindowView("course", now + 7200, now + 36000, slots=len(snapshot.hosts), group="department 1"),
        WindowView("power", now - 600, now + 3600, slots=len(snapshot.hosts) // 4),
    )
    waits = depends([("exp 1", "success", False)])
    requests = tuple(
        replace(
            each,
            time_left=random.choice([None, None, 1800.0]),
            notice=random.choice([60.0, 300.0]),
            blocked=waits if each.running is None and random.random() < 0.1 else None,
        )
        for each in snapshot.requests
    )
    return replace(snapshot, pool=replace(snapshot.pool, windows=windows), requests=requests)


def running(random: Random, situation: Situation, hosts: int) -> list[Request]:
    """Runs that hold every slot; a run of 16 holds two hosts."""
    runs: list[Request] = []
    slot = 0
    while slot < hosts * SLOTS:
        room = SLOTS - slot % SLOTS
        size = random.choice(
            [s for s in situation.held if s <= room or (room == SLOTS and slot + s <= hosts * SLOTS)]
            or [room]
        )
        ids = range(slot, slot + size)
        held = {
            f"h{host}": tuple(i for i in ids if i // SLOTS == host)
            for host in range(ids[0] // SLOTS, ids[-1] // SLOTS + 1)
        }
        number = len(runs)
        placement = Placement(
            f"r{number}.1", held, float(number), asked_preempt=bool(number % 2), ends=(3e6, 4e6)
        )
        runs.append(replace(request(random, "old", number, size, situation.tasks), running=placement))
        slot += size
    return runs


def request(random: Random, kind: str, number: int, slots: int, tasks: int) -> Request:
    fields: dict[str, Any] = {"priority": random.randint(1, 99), "preemptible": random.random() < 0.9}
    at = float(number if kind == "old" else 1_000_000 + number)
    label = f"{kind} {number // tasks}"
    return Request(f"{kind}-{number}", label, label, slots, position=at, submitted_at=at, **fields)


@dataclass(frozen=True)
class Times:
    """Milliseconds, the median of the passes: on the clock, and of this process."""

    wall: float
    cpu: float


def timed(work: Callable[[], object], passes: int = PASSES) -> Times:
    wall, cpu = [], []
    for _ in range(passes):
        begun = time.perf_counter(), time.process_time()
        work()
        wall.append((time.perf_counter() - begun[0]) * 1000)
        cpu.append((time.process_time() - begun[1]) * 1000)
    return Times(statistics.median(wall), statistics.median(cpu))


def measure(situation: Situation) -> list[Times]:
    found = []
    for waiting in SIZES:
        snapshot = snapshot_of(situation, waiting)
        plan = decide(snapshot)
        found.append(timed(lambda snapshot=snapshot: decide(snapshot)))
        print(
            f"{situation.name}, {waiting:,} waiting: {found[-1].wall:.0f} ms (CPU {found[-1].cpu:.0f}); "
            f"{len(plan.starts):,} starts, {len(plan.releases):,} stops",
            flush=True,
        )
    return found


def beside_no_groups(situation: Situation) -> list[Times]:
    """A pass over 10,000 waiting requests without groups, with, and with windows and dependencies too: the least of
    each, measured in turn."""
    plain = snapshot_of(situation, 10_000)
    grouped = among_groups(plain)
    all_three = plain, grouped, among_windows(grouped)
    found: list[list[Times]] = [[], [], []]
    for _ in range(PASSES):
        for times, snapshot in zip(found, all_three, strict=True):
            times.append(timed(lambda snapshot=snapshot: decide(snapshot), 1))
    least = [min(times, key=lambda each: each.cpu) for times in found]
    print(f"{situation.name}, groups, windows: {[round(each.cpu) for each in least]} ms of CPU", flush=True)
    return least


def bare(snapshot: Snapshot) -> int:
    """What any pass in Python does at least: sort what waits, hand out the free slots, note who waits. Starts.

    No gangs, rights, limits, reservations, hosts to avoid, stops or reasons.
    """
    queue = sorted((each for each in snapshot.requests if each.running is None), key=standing)
    bins = {
        SLOTS: [
            (host.id, [slot.id for slot in host.slots if slot.held_by is None]) for host in snapshot.hosts
        ]
    }
    starts, waits, without_room = [], {}, set()
    for request in queue:
        need = request.slots
        found = (
            None
            if need in without_room
            else next((bins[n] for n in range(need, SLOTS + 1) if bins.get(n)), None)
        )
        if found is None:
            without_room.add(need)
            waits[request.task_id] = "no room"
            continue
        host, ids = found.pop()
        starts.append(Start(request.task_id, ((host, tuple(ids[:need])),), False))
        if len(ids) > need:
            bins.setdefault(len(ids) - need, []).append((host, ids[need:]))
    return len(starts)


def beside_the_port(situation: Situation) -> list[tuple[int, Times, Times, Times]]:
    """(hosts, the port's, ours, that of `bare`), until a pass of the port takes longer than it is worth."""
    found: list[tuple[int, Times, Times, Times]] = []
    hosts = 10
    while hosts <= HOSTS and (not found or found[-1][1].wall < PORT_SECONDS * 1000):
        snapshot = snapshot_of(situation, 10 * hosts, hosts)
        port = timed(lambda snapshot=snapshot: plain_port.one_pass(snapshot), 1)
        ours = timed(lambda snapshot=snapshot: decide(snapshot))
        found.append((hosts, port, ours, timed(lambda snapshot=snapshot: bare(snapshot))))
        print(
            f"{situation.name}, {hosts} hosts: the port {port.wall:.0f} ms, here {ours.wall:.1f} ms",
            flush=True,
        )
        hosts = hosts * 2 if hosts * 2 <= HOSTS or hosts == HOSTS else HOSTS
    return found


def report(
    passes: list[tuple[Situation, list[Times]]],
    groups: list[tuple[Situation, list[Times]]],
    port: list[tuple[Situation, list[tuple[int, Times, Times, Times]]]],
) -> str:
    lines = [
        "# One pass of the planner",
        "",
        f"{HOSTS:,} hosts of {SLOTS} slots; requests of 1 to 16 slots in priorities 1 to 99, a tenth of them never "
        f"fits. Milliseconds on the clock (of CPU), median of {PASSES} passes on {os.cpu_count()} cores, load average "
        f"{os.getloadavg()[0]:.1f}. Goal: {GOAL_MS:.0f} for 10,000 waiting on a quiet machine.",
        "",
        "| pool | "
        + " | ".join(f"{waiting:,} waiting" for waiting in SIZES)
        + " | last step: 10 x the jobs |",
        "|---|" + "---|" * (len(SIZES) + 1),
    ]
    for situation, times in passes:
        cells = [f"{one.wall:.0f} ({one.cpu:.0f})" for one in times]
        growth = f"{times[-1].cpu / times[-2].cpu:.1f} x the time" if len(times) > 1 else ""
        lines.append(f"| {situation.name} | {' | '.join(cells)} | {growth} |")
    lines += [
        "",
        f"With {DEPARTMENTS} departments of {TEAMS} teams, then with 3 windows and dependencies of a tenth of the jobs "
        f"too, 10,000 waiting, ms of CPU (the least of {PASSES}, in turn):",
        "",
        "| pool | without groups | among groups | ratio | with windows and dependencies | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for situation, (without, among, windows) in groups:
        cells = [f"{each.cpu:.0f} | {each.cpu / without.cpu:.2f}" for each in (among, windows)]
        lines.append(f"| {situation.name} | {without.cpu:.0f} | {' | '.join(cells)} |")
    lines += [
        "",
        "Beside a plain Python port of Determined's algorithm (benchmarks/plain_port.py), ten waiting requests a host; "
        "`bare` is a loop that only sorts what waits, hands out free slots and notes who waits, without any rule:",
        "",
        "| pool | hosts | waiting | plain port, s | here, s | ratio | bare, s | the port / bare |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for situation, sizes in port:
        hosts, theirs, ours, least = sizes[-1]
        lines.append(
            f"| {situation.name} | {hosts:,} | {hosts * 10:,} | {theirs.cpu / 1000:.2f} | {ours.cpu / 1000:.4f} "
            f"| {theirs.cpu / ours.cpu:,.0f} | {least.cpu / 1000:.4f} | {theirs.cpu / least.cpu:,.0f} |"
        )
    return "\n".join([*lines, "", _WHY_NOT_200, ""])


_WHY_NOT_200 = (
    "In the idle pool, 200 x would leave little more time than the bare loop takes, and none for gangs, rights, "
    "limits, reservations and reasons."
)


def main() -> int:
    gc.disable()
    passes = [(situation, measure(situation)) for situation in SITUATIONS]
    groups = [(situation, beside_no_groups(situation)) for situation in SITUATIONS]
    port = [(situation, beside_the_port(situation)) for situation in SITUATIONS[:3]]
    text = report(passes, groups, port)
    found = [
        Row(f"beside a plain port: {situation.name}", theirs.cpu / ours.cpu, "x faster", goal=GOAL_PORT)
        for situation, sizes in port
        for _, theirs, ours, _ in sizes[-1:]
    ]
    for situation, times in passes if 10_000 in SIZES else []:
        at = times[SIZES.index(10_000)]
        found.append(Row(f"10,000 wait: {situation.name}", at.cpu, "ms of processor", goal=GOAL_MS))
    found += [
        Row(
            f"groups, windows, dependencies: {situation.name}",
            windows.cpu / without.cpu,
            "x without",
            most=MOST_GROUPS,
            goal=GOAL_GROUPS,
        )
        for situation, (without, _, windows) in groups
    ]
    return finish(REPORT, text, found)


if __name__ == "__main__":
    sys.exit(main())
