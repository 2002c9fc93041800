"""The jobs of a trace on a real Slurm with compressed time: `python -m benchmarks.slurm_replay TRACE OUT [options]`.

Each job sleeps for its run time divided by COMPRESSION. Slurm has the same hosts and slots as the replay (slots are
CPUs), backfills, and lets higher priorities preempt lower ones by requeueing them, if the trace has priorities. What
is stopped, what it saves, and how often follow the same habits as in `scheduling.virtual_time`. OUT receives the runs
as CSV for `python -m scheduling.replay --slurm OUT`. The load of this machine delays starts: a second is COMPRESSION
seconds of the trace.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "queue"))

from benchmarks.slurm import Slurm, installed
from scheduling.replay import add_trace_options, size_of, trace_of
from scheduling.traces import TraceJob
from scheduling.virtual_time import Habits, VirtualJob, habits_of

#: what has been done of a job, in compressed seconds, by the starts and ends in the log
_DONE = (
    '$1 == "S" && $3 == job {s = $4} '
    '$1 == "E" && $2 == job && s {r = $3 - s; s = 0; d += saves ? r : int(r / every) * every}'
    ' END {printf "%f", (runs > d) ? runs - d : 0}'
)


class Replay:
    """One Slurm and the jobs of a trace."""

    def __init__(self, folder: Path, hosts: int, slots: int, compression: float) -> None:
        self._compression = compression
        self._log = folder / "runs.log"
        self._log.touch()
        epilog = folder / "epilog"
        epilog.write_text(f'#!/bin/sh\necho "E $SLURM_JOB_ID $(date +%s.%N)" >> {self._log}\n')
        epilog.chmod(0o755)
        self._slots = slots
        self._slots_of: dict[int, int] = {}
        self._every = Habits().save_every / compression
        self._slurm = Slurm(folder / "slurm", hosts, slots, _more(epilog))

    def live(self, jobs: Sequence[VirtualJob]) -> float:
        """Submit all in time and wait for their ends; when the first was submitted."""
        begun = time.time() + 1 - jobs[0].trace.submitted_at / self._compression
        for job in jobs:
            while (rest := begun + job.trace.submitted_at / self._compression - time.time()) > 0:
                time.sleep(min(rest, 1.0))
                self._let_requeued_start()
            self._submit(job)
        while self._slurm.waiting():
            self._let_requeued_start()
            time.sleep(1.0)
        return begun

    def close(self) -> None:
        self._slurm.close()

    def _submit(self, job: VirtualJob) -> None:
        self._slots_of[job.trace.number] = job.trace.slots
        whole = max(1, -(-job.trace.slots // self._slots))
        runs = job.trace.runs / self._compression
        script = (
            f"left=$(awk -v job=$SLURM_JOB_ID -v runs={runs:.3f} -v saves={int(job.saves)} "
            f"-v every={self._every:.4f} '{_DONE}' {self._log})\n"
            f'echo "S {job.trace.number} $SLURM_JOB_ID $(date +%s.%N) $SLURM_JOB_NODELIST" >> {self._log}\nsleep $left'
        )
        self._slurm.submit(
            script,
            min(job.trace.slots, self._slots),
            "-N", str(whole), f"--ntasks={whole}", "-p", _partition(job.trace.priority, job.preemptible),
        )  # fmt: skip

    def _let_requeued_start(self) -> None:
        """Slurm holds what it requeues back for two minutes, which are days of the trace."""
        found = self._slurm.run("squeue", "-h", "-t", "PD", "-o", "%i %r")
        for line in found.splitlines():
            job, reason = line.split(maxsplit=1)
            if reason == "BeginTime":
                self._slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")

    def runs(self, begun: float) -> list[tuple[int, float, float, str]]:
        """(job, start, end, hosts) in seconds of the trace."""
        number: dict[str, int] = {}
        open_: dict[str, tuple[float, str]] = {}
        found = []
        for line in self._log.read_text().splitlines():
            kind, *rest = line.split()
            if kind == "S":
                number[rest[1]] = int(rest[0])
                open_[rest[1]] = float(rest[2]), rest[3]
            elif rest[0] in open_:
                start, nodes = open_.pop(rest[0])
                times = ((at - begun) * self._compression for at in (start, float(rest[1])))
                found.append((number[rest[0]], *times, self._parts(number[rest[0]], nodes)))
        return found  # type: ignore[return-value]

    def _parts(self, job: int, nodes: str) -> str:
        hosts = _hosts(nodes)
        return " ".join(f"{host}:{self._slots_of[job] // len(hosts)}" for host in hosts)


def _partition(priority: int, preemptible: bool) -> str:
    return f"p{priority}" if preemptible else f"p{priority}x"


def _more(epilog: Path) -> str:
    rows = [
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        f"Epilog={epilog}",
        *(
            f"PartitionName=p{priority}{x} Nodes=ALL MaxTime=INFINITE State=UP PriorityTier={100 - priority} "
            f"PreemptMode={'OFF' if x else 'REQUEUE'}"
            for priority in (10, 30, 42, 60)
            for x in ("", "x")
        ),
    ]
    return "\n".join(rows)


def _hosts(nodes: str) -> list[int]:
    """n[1-3,7] -> 0, 1, 2, 6"""
    found = []
    for part in re.sub(r"^n\[?|\]$", "", nodes).split(","):
        first, _, last = part.partition("-")
        found += range(int(first) - 1, int(last or first))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slurm_replay", description=__doc__)
    add_trace_options(parser)
    parser.add_argument("out", help="the file that receives the runs")
    parser.add_argument("--compression", type=float, default=1000.0)
    arguments, _ = parser.parse_known_args()  # the options of the replay may be among them
    if not installed():
        print("Slurm is not installed here: slurmctld, slurmd, sbatch and munged are needed", file=sys.stderr)
        return 2
    jobs = trace_of(arguments)
    hosts = size_of(arguments)
    fits = [job for job in jobs if _fits(job, hosts, arguments.slots)]
    with tempfile.TemporaryDirectory(prefix="slurm-replay-") as folder:
        replay = Replay(Path(folder), hosts, arguments.slots, arguments.compression)
        try:
            begun = replay.live([habits_of(job, Habits()) for job in fits])
            runs = replay.runs(begun)
        finally:
            replay.close()
    with Path(arguments.out).open("w", newline="") as file:
        csv.writer(file).writerows([("job", "start", "end", "hosts"), *runs])
    load = Path("/proc/loadavg").read_text().split()[1]
    print(f"{len(runs)} runs of {len(fits)} jobs on {hosts} hosts, {arguments.compression:g} x; load {load}")
    return 0


def _fits(job: TraceJob, hosts: int, slots: int) -> bool:
    return job.slots <= slots or (job.slots % slots == 0 and job.slots <= hosts * slots)


if __name__ == "__main__":
    sys.exit(main())
