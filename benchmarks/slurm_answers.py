"""How long the answers of a busy cluster take to read: 10,000 jobs of others, and 1,000 nodes.

`squeue` is asked every few seconds, so this is what a Slurm pool costs a worker. Times are of the processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.rows import Row, finish, size
from hosts.slurm import facts, scontrol, squeue
from hosts.slurm.settings import SlurmSettings
from tests.rig import slurm_words

REPORT = Path(__file__).parent / "reports" / "slurm_answers.md"
MARK = "#5d1f0a7c3b9e4d21#"
ROUNDS = 9


def world(jobs: int, nodes: int) -> dict[str, Any]:
    """A third of the jobs run, on one to four nodes each; the others wait, a tenth of them as arrays."""
    running = [
        {"id": n, "state": "RUNNING", "user": f"user{n % 97}", "nodes": 1 + n % 4, "gpus": "a100:2", "cpus": 8,
         "nodelist": f"g[{n % (nodes - 4) + 1}-{n % (nodes - 4) + 1 + n % 4}]", "comment": f"run {n} | of mine"}
        for n in range(jobs // 3)
    ]  # fmt: skip
    waiting = [
        {"id": n, "state": "PENDING", "user": f"user{n % 97}", "gpus": "a100:8", "reason": "Priority",
         "array": "0-99%4" if n % 10 == 0 else ""}
        for n in range(jobs // 3, jobs)
    ]  # fmt: skip
    return {
        "jobs": running + waiting,
        "partitions": [{"name": "gpu", "nodes": f"g[1-{nodes}]", "default": "YES"}],
        "nodes": [
            {"name": f"g{n}", "type": "a100", "gpus": 8, "gpus_used": 4, "state": "MIXED"}
            for n in range(1, nodes + 1)
        ],
    }


def took_ms(work: Callable[[], object]) -> float:
    """The median over some rounds."""
    found = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        work()
        found.append((time.process_time() - begun) * 1000)
    return median(found)


def main() -> int:
    count, nodes = size("JOBS", 10_000, 2_000), size("NODES", 1_000, 200)
    there = world(count, nodes)
    told = slurm_words.answer("22.05", list(squeue.command(MARK)), there)
    listed = slurm_words.answer("22.05", list(scontrol.NODE), there)
    split = took_ms(lambda: [line.split("|") for line in told.splitlines()])
    jobs = took_ms(lambda: squeue.jobs(told, MARK))
    rows_of_nodes = took_ms(lambda: scontrol.nodes(listed))
    settings = SlurmSettings("stars")
    [partition] = scontrol.partitions(slurm_words.answer("22.05", list(scontrol.PARTITION), there))
    parsed, read = squeue.jobs(told, MARK), scontrol.nodes(listed)
    held = took_ms(lambda: facts.of_cluster(settings, {}, partition, read, parsed, lambda job: False))
    found = [
        Row(f"{count:,} jobs of others read", jobs, "ms", goal=100),
        Row(f"{count:,} jobs of others read", jobs / split, "x splitting their lines", most=10),
        Row(f"{nodes:,} nodes read", rows_of_nodes, "ms"),
        Row("who holds which slots", held, "ms"),
    ]
    text = (
        f"# Answers of Slurm\n\nProcessor time, median of {ROUNDS} rounds.\n\n| figure | value |\n|---|---|\n"
    )
    text += "".join(f"| {row.what} | {row.value:.3g} {row.unit} |\n" for row in found)
    return finish(REPORT, text, found)


if __name__ == "__main__":
    raise SystemExit(main())
