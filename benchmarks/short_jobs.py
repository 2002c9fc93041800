"""Commands of one slot beside a tuned Slurm of the same run: how soon they start, and how many a minute.

Both have four nodes of 16 slots on this machine; ours are hosts of their own address that are reached over SSH.
Three figures, taken in turns: submit to the first instruction; the end of one job to the first instruction of
the next that waits for its slots; 500 jobs that do nothing, from the first submission to an empty queue.
`python -m benchmarks.short_jobs` writes benchmarks/reports/short_jobs.md.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import psycopg

from benchmarks.rows import Row, finish, not_measured, size
from benchmarks.slurm import CPUS_PER_NODE, NODES, Slurm, installed
from tests.rig.hosts import HostRig
from tests.rig.server import Server
from tests.rig.stack import Stack

RUNS = size("RUNS", 20, quick=3)
JOBS = size("JOBS", 500, quick=80)
ROUNDS = size("ROUNDS", 2, quick=1)
CHAIN = size("CHAIN", 10, quick=5)
WARM_UP = size("WARM_UP", 3, quick=1)
REPORT = Path(__file__).parent / "reports" / "short_jobs.md"
START_MOST, TURN_AROUND_MOST = 0.1, 0.15
RATE_FLOOR, RATE_GOAL = 0.5, 1.0
_LIMIT_SECONDS = 600.0


class Queue(Protocol):
    """What is compared."""

    def submit(self, script: str, cpus: int = 1) -> None: ...

    def waiting(self) -> int: ...


class Ours:
    """Commands by REST over one connection, as the CLI sends them."""

    def __init__(self, stack: Stack) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", stack.server.port)
        self._headers = {"Authorization": f"Bearer {stack.token}", "Content-Type": "application/json"}
        self._database = stack.server.database_url

    def submit(self, script: str, cpus: int = 1) -> None:
        config = {"entrypoint": ["/bin/sh", "-c", script], "resources": {"slots": cpus}}
        self._connection.request("POST", "/api/v1/commands", json.dumps({"config": config}), self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"the command was refused: {body[:500]!r}")

    def waiting(self) -> int:
        return int(self._ask("SELECT count(*) FROM commands_command WHERE ended_at IS NULL")[0][0])

    def way(self) -> list[tuple[str, float]]:
        """(part of the way, its median in ms) of the commands so far that ended well."""
        parts = {
            "submitted → slots assigned (a pass)": "a.assigned_at - c.submitted_at",
            "→ launched on the host (SSH, folder, fork)": "m.launched_at - a.assigned_at",
            "→ its runner's word that it runs": "m.started_at - m.launched_at",
            "→ its end is stored": "c.ended_at - m.started_at",
        }
        found = []
        for name, span in parts.items():
            query = f"""SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM {span}))
                FROM commands_command c JOIN jobs_allocation a ON a.task_id = c.task_id
                JOIN jobs_member m ON m.allocation_id = a.id WHERE c.exit_code = 0"""
            found.append((name, 1000 * float(self._ask(query)[0][0])))
        return found

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._database) as connection:
            return connection.execute(query).fetchall()


def appears(path: Path) -> str:
    """The text of a file that is renamed into place."""
    until = time.monotonic() + 60
    while not path.exists():
        if time.monotonic() > until:
            raise RuntimeError(f"{path} did not appear")
        time.sleep(0.002)
    return path.read_text()


def first_instruction(queue: Queue, folder: Path, number: int) -> float:
    """Seconds from before the submission to the job's own clock."""
    path = folder / f"first.{number}"
    begun = time.time()
    queue.submit(f"date +%s.%N > {path}.new; mv {path}.new {path}")
    started = float(appears(path))
    drained(queue)
    return started - begun


def turn_arounds(queue: Queue, folder: Path) -> list[float]:
    """Seconds between the end of each job and the first instruction of the next; all other nodes are held."""
    gate = folder / "gate"
    gate.unlink(missing_ok=True)
    for _ in range(NODES - 1):
        queue.submit(f"while [ ! -e {gate} ]; do sleep 0.2; done", CPUS_PER_NODE)
    time.sleep(3)
    for number in range(CHAIN):
        path = folder / f"turn.{number}"
        script = f"date +%s.%N > {path}.new; sleep 0.5; date +%s.%N >> {path}.new; mv {path}.new {path}"
        queue.submit(script, CPUS_PER_NODE)
    spans = sorted(tuple(map(float, appears(folder / f"turn.{number}").split())) for number in range(CHAIN))
    gate.touch()
    drained(queue)
    for number in range(CHAIN):
        (folder / f"turn.{number}").unlink()
    return [after[0] - before[1] for before, after in itertools.pairwise(spans)]


def per_minute(queue: Queue) -> float:
    """Jobs that do nothing, a minute."""
    begun = time.monotonic()
    for _ in range(JOBS):
        queue.submit("true")
    drained(queue)
    return 60 * JOBS / (time.monotonic() - begun)


def drained(queue: Queue) -> None:
    until = time.monotonic() + _LIMIT_SECONDS
    while queue.waiting():
        if time.monotonic() > until:
            raise RuntimeError(f"{queue.waiting()} jobs are left")
        time.sleep(0.05)


def in_turns(measure: Callable[[Queue, int], Any], both: tuple[Queue, Queue], count: int) -> tuple[Any, Any]:
    found: tuple[list[Any], list[Any]] = ([], [])
    for number in range(count):
        for queue, samples in zip(both, found, strict=True):
            samples.append(measure(queue, number))
    return found


def measure() -> tuple[dict[str, tuple[list[float], list[float]]], list[tuple[str, float]]]:
    """Figure -> (Slurm's samples, ours); and where our time goes."""
    with tempfile.TemporaryDirectory(prefix="short-jobs-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "server").mkdir(mode=0o755)
        rig = HostRig(folder / "hosts")
        server = Server(folder / "server" / "data", rig.server_address, {"TRAINMASTER_SWEEP_SECONDS": "5"})
        slurm = None
        try:
            slurm = Slurm(folder / "slurm")
            stack = Stack(server.start(), rig.take(NODES))
            stack.add_hosts(slots=CPUS_PER_NODE, python=sys.executable)
            ours = Ours(stack)
            both: tuple[Queue, Queue] = (slurm, ours)
            starts = in_turns(
                lambda queue, n: first_instruction(queue, _own(folder, queue), n), both, WARM_UP + RUNS
            )
            turns = in_turns(lambda queue, n: turn_arounds(queue, _own(folder, queue)), both, 1)
            way = ours.way()
            rates = in_turns(lambda queue, n: per_minute(queue), both, ROUNDS)
            return {
                "start": (starts[0][WARM_UP:], starts[1][WARM_UP:]),
                "turn-around": (turns[0][0], turns[1][0]),
                "rate": rates,
            }, way
        finally:
            if slurm:
                slurm.close()
            server.close()
            rig.close()


def _own(folder: Path, queue: Queue) -> Path:
    own = folder / type(queue).__name__.lower()
    if not own.exists():
        own.mkdir()
        own.chmod(0o777)
    return own


def p95(samples: list[float]) -> float:
    return sorted(samples)[max(0, round(0.95 * len(samples)) - 1)]


def report(found: dict[str, tuple[list[float], list[float]]], way: list[tuple[str, float]]) -> str:
    """The figures as a page."""
    rows = []
    for name, key, most in (
        ("submit → first instruction", "start", START_MOST),
        ("end → first instruction of the next", "turn-around", TURN_AROUND_MOST),
    ):
        theirs, mine = found[key]
        rows.append(
            f"| {name}, ms: median (p95) | {1000 * statistics.median(theirs):.0f} ({1000 * p95(theirs):.0f}) "
            f"| {1000 * statistics.median(mine):.0f} ({1000 * p95(mine):.0f}) | {p95(mine) / p95(theirs):.2f} at p95 "
            f"| at most {most} |"
        )
    theirs, mine = found["rate"]
    rows.append(
        f"| {JOBS} jobs that do nothing, a minute | {statistics.median(theirs):.0f} | {statistics.median(mine):.0f} "
        f"| {statistics.median(mine) / statistics.median(theirs):.2f} | at least {RATE_FLOOR} (goal {RATE_GOAL}) |"
    )
    return "\n".join(
        [
            "# Short commands beside a tuned Slurm",
            "",
            f"{NODES} nodes x {CPUS_PER_NODE} slots on {os.cpu_count()} cores; {RUNS} starts, {CHAIN - 1} "
            f"turn-arounds, {ROUNDS} rounds of {JOBS} jobs, in turns. Ours over SSH, with a log of every job.",
            "",
            "Where the processor time of one of ours goes, what has been removed, and why the rate is what it is: "
            "[short_jobs_processor.md](short_jobs_processor.md).",
            "",
            "| | Slurm, tuned | Trainmaster | ratio | asked |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "Where the time of one of ours goes (medians, one at a time):",
            "",
            *(f"- {name}: {span:.0f} ms" for name, span in way),
            "",
        ]
    )


def main() -> int:
    if not installed():
        return not_measured(REPORT, "Slurm is not installed (apt: slurm-wlm munge)")
    found, way = measure()
    text = report(found, way)
    measured = [
        Row(what, p95(found[key][1]) / p95(found[key][0]), "x Slurm, p95", most=most)
        for what, key, most in (
            ("submit to first instruction", "start", START_MOST),
            ("end to the next one's first instruction", "turn-around", TURN_AROUND_MOST),
        )
    ]
    rate = statistics.median(found["rate"][1]) / statistics.median(found["rate"][0])
    measured.append(Row("jobs that do nothing, a minute", rate, "x Slurm", least=RATE_FLOOR, goal=RATE_GOAL))
    return finish(REPORT, text, measured)


if __name__ == "__main__":
    sys.exit(main())
