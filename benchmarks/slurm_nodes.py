"""A cluster of 1,000 nodes: how long the answers of a real slurmctld take to come and to read, and what feeding costs.

The nodes are of the kind that a cloud starts when they are needed, so that slurmctld takes jobs for them while there is
none: Debian's slurm-wlm-emulator, which would play them all, is linked to the library of the plain build and refuses
its own configuration. Jobs wait, since their node does not come.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import slurm as rig
from benchmarks.rows import Row, finish, not_measured, size
from benchmarks.slurm import Slurm
from dispatch.engines import slurm_jobs
from dispatch.engines.slurm_jobs import Wish
from hosts.slurm import facts, scontrol, squeue
from hosts.slurm.settings import SlurmSettings

NODES = size("NODES", 1_000, quick=200)
FED = size("FED", 100, quick=20)
ROUNDS = 5
REPORT = Path(__file__).parent / "reports" / "slurm_nodes.md"
MARK = "#5d1f0a7c3b9e4d21#"
_CLOUD = """
ResumeProgram=/bin/true
SuspendProgram=/bin/true
SuspendTime=86400
ResumeTimeout=3600
PrivateData=cloud
NodeName=c[1-{nodes}] CPUs=64 RealMemory=512000 State=CLOUD
PartitionName=cloud Nodes=c[1-{nodes}] State=UP
"""


def asked(slurm: Slurm, words: tuple[str, ...]) -> tuple[float, str]:
    """Milliseconds until the answer is here, the median of some rounds, and the answer."""
    times, said = [], ""
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        said = slurm.run(*words)
        times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times), said


def read(work: Callable[[], object]) -> float:
    """Milliseconds of processor, the median of some rounds."""
    times = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        work()
        times.append((time.process_time() - begun) * 1000)
    return statistics.median(times)


def feed(slurm: Slurm, settings: SlurmSettings) -> float:
    """Milliseconds that one sbatch takes, as a pool makes it, the median of all."""
    times = []
    for number in range(FED):
        words = slurm_jobs.command(
            settings, Wish(f"{number}.fed.1", 1 + number % 4, 8 * (1 + number % 4), "/tmp")
        )
        begun = time.perf_counter()
        made = subprocess.run(
            words,
            input="#!/bin/sh\nexit 0\n",
            text=True,
            env=slurm.environment,
            capture_output=True,
            check=False,
        )
        times.append((time.perf_counter() - begun) * 1000)
        if not slurm_jobs.job_id_of(made.stdout):
            raise RuntimeError(f"sbatch said {made.stderr.strip()!r}")
    return statistics.median(times)


def main() -> int:
    if not rig.installed():
        return not_measured(REPORT, "Debian's slurmctld, slurmd and munge are not installed")
    settings = SlurmSettings("stars", partition="cloud", slot_type="cpu", slots_per_node=8)
    with tempfile.TemporaryDirectory(prefix="slurm-nodes-") as name:
        slurm = Slurm(Path(name) / "cluster", nodes=1, cpus_per_node=1, more=_CLOUD.format(nodes=NODES))
        try:
            each = feed(slurm, settings)
            nodes_ms, listed = asked(slurm, scontrol.NODE)
            _, partitions = asked(slurm, scontrol.PARTITION)
            jobs_ms, told = asked(slurm, squeue.command(MARK))
        finally:
            slurm.close()
    partition = next(row for row in scontrol.partitions(partitions) if row.name == "cloud")
    found, jobs = scontrol.nodes(listed), squeue.jobs(told, MARK)
    made = facts.of_cluster(settings, {}, partition, found, jobs, lambda job: False)
    if len(made.nodes) != NODES or len(jobs) != FED:
        raise RuntimeError(f"{len(made.nodes)} nodes and {len(jobs)} jobs were read")
    rows = [
        Row(f"{NODES:,} nodes told by scontrol", nodes_ms, "ms"),
        Row(f"{NODES:,} nodes read", read(lambda: scontrol.nodes(listed)), "ms of processor"),
        Row("their slots, and who holds them", read(lambda: facts.of_cluster(
            settings, {}, partition, found, jobs, lambda job: False)), "ms of processor"),
        Row(f"{FED:,} jobs told by squeue", jobs_ms, "ms"),
        Row(f"{FED:,} jobs read", read(lambda: squeue.jobs(told, MARK)), "ms of processor"),
        Row("a job handed over by sbatch", each, "ms"),
    ]  # fmt: skip
    text = (
        f"# A cluster of {NODES:,} nodes\n\nOne slurmctld of Slurm 22.05 with nodes of a cloud that never come; "
        f"medians, on {os.cpu_count()} cores, load {os.getloadavg()[1]:.0f}. SSH to the login node is not in it.\n\n"
        "| figure | value |\n|---|---|\n"
    )
    text += "".join(f"| {row.what} | {row.value:.3g} {row.unit} |\n" for row in rows)
    return finish(REPORT, text, rows)


if __name__ == "__main__":
    sys.exit(main())
