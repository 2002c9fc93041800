"""What a server that has nothing to do costs: a start of `up`, each minute after it, and the memory of each process.

`python -m benchmarks.idle` writes benchmarks/reports/idle.md. A server without hosts, then the same with ten idle ones
that it reaches over SSH; the hosts' own sshd and Python are not counted. SECONDS=20 shortens it.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from benchmarks.rows import Row, finish, size
from tests.rig.hosts import HostRig, descendants
from tests.rig.server import Server
from tests.rig.stack import Stack
from trainmaster.processes import stat_fields

REPORT = Path(__file__).parent / "reports" / "idle.md"
SECONDS = float(size("SECONDS", 60, quick=10))
STARTS = size("STARTS", 3, quick=1)
HOSTS = 10
SETTLE_SECONDS = float(size("SETTLE_SECONDS", 15, quick=5))
GOAL_CORES, GOAL_MEMORY = 0.02, 300 * 2**20
SUPERVISOR = "supervisor"
DATABASES = ("postgres", "redis")


class Part(NamedTuple):
    """What one part of the server, with its children, has used."""

    cpu: float  # seconds
    memory: int  # bytes, shared pages divided by the number of those who share them (PSS)


def tree(pid: int) -> Iterable[int]:
    return [pid, *descendants(pid)]


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these processes, and of children of theirs that have ended."""
    found = [fields for pid in pids if (fields := stat_fields(pid)) is not None]
    return sum(int(each) for fields in found for each in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def parts(server: Server) -> dict[str, Part]:
    """Each part by name. What another part has started is counted there."""
    assert server.process is not None
    first = {SUPERVISOR: server.process.pid, **{name: each.pid for name, each in server.children().items()}}
    found = {}
    for name, pid in first.items():
        others = {each for other, root in first.items() if other != name for each in tree(root)}
        own = [each for each in tree(pid) if each == pid or each not in others]
        found[name] = Part(cpu_seconds(own), sum(map(memory, own)))
    return found


def started(server: Server) -> float:
    """Seconds of the processor from nothing to the line that says it is ready."""
    server.start()
    assert server.process is not None
    return cpu_seconds(tree(server.process.pid))


def idle(server: Server) -> dict[str, Part]:
    """By part: seconds of the processor a minute, and the memory afterwards."""
    time.sleep(SETTLE_SECONDS)
    begin, before = time.monotonic(), parts(server)
    time.sleep(SECONDS)
    minutes, after = (time.monotonic() - begin) / 60, parts(server)
    return {name: Part((part.cpu - before[name].cpu) / minutes, part.memory) for name, part in after.items()}


def measure() -> tuple[list[float], dict[str, Part], dict[str, Part]]:
    """Seconds of each start, the parts without a host, the parts with hosts."""
    with tempfile.TemporaryDirectory(prefix="idle-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        rig = HostRig(folder / "hosts")
        server = Server(folder / "data", rig.server_address)
        server.settings.clear()  # as users have it: tests look more often for silence
        try:
            starts = [started(server)]
            for _ in range(STARTS - 1):
                server.stop()
                starts.append(started(server))
            alone = idle(server)
            Stack(server, rig.take(HOSTS)).add_hosts(slots=8, python=sys.executable)
            return starts, alone, idle(server)
        finally:
            server.close()
            rig.close()


def own(found: dict[str, Part]) -> Part:
    """The sum of all parts but PostgreSQL and Redis."""
    ours = [part for name, part in found.items() if name not in DATABASES]
    return Part(sum(part.cpu for part in ours), sum(part.memory for part in ours))


def report(starts: list[float], alone: dict[str, Part], hosts: dict[str, Part]) -> str:
    def row(name: str, *found: Part) -> str:
        return (
            f"| {name} | "
            + " | ".join(f"{each.cpu:.2f} | {each.memory / 2**20:.0f}" for each in found)
            + " |"
        )

    mine = own(hosts)
    kept = mine.cpu / 60 <= GOAL_CORES, mine.memory <= GOAL_MEMORY
    return "\n".join(
        [
            "# A server that has nothing to do",
            "",
            f"`up` on {os.cpu_count()} cores at a load of {os.getloadavg()[0]:.1f}, for {SECONDS:.0f} s each. A start "
            f"takes {statistics.median(starts):.1f} s of the processor (median of {len(starts)}).",
            "",
            f"| | no host: CPU s a minute | PSS, MB | {HOSTS} idle hosts: CPU s a minute | PSS, MB |",
            "|---|---|---|---|---|",
            *(row(name, alone[name], hosts[name]) for name in sorted(hosts)),
            row("**ours: all but PostgreSQL and Redis**", own(alone), mine),
            "",
            f"Wanted with {HOSTS} hosts: at most {GOAL_CORES:.0%} of a core (here {mine.cpu / 60:.1%}: "
            f"{'kept' if kept[0] else 'missed'}) and {GOAL_MEMORY >> 20} MB (here {mine.memory >> 20}: "
            f"{'kept' if kept[1] else 'missed'}).",
            "",
        ]
    )


def main() -> int:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # where users start it, it is compiled once
    starts, alone, hosts = measure()
    mine = own(hosts)
    rows = [
        Row("a start of up", statistics.median(starts), "s of the processor"),
        Row("idle with 10 hosts", 100 * mine.cpu / 60, "% of a core", goal=100 * GOAL_CORES),
        Row("own memory with 10 hosts", mine.memory / 2**20, "MB", most=GOAL_MEMORY / 2**20),
    ]
    return finish(REPORT, report(starts, alone, hosts), rows)


if __name__ == "__main__":
    sys.exit(main())
