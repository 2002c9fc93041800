"""Submit to the first line of rank 0 in a Slurm pool, beside bare `sbatch` of a script with `srun torchrun`, in turns.

Both run the script of `benchmarks.first_line` over 2 nodes x 2 ranks (gloo) of the same idle cluster, whose controller
starts a job as soon as it can. The bare way has its code on the nodes already; its rank 0 prints into the job's output,
in a folder that all see. Ours comes by the queue, the login node over SSH, and the run folder there.
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

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
django.setup()

from benchmarks import slurm as rig  # noqa: E402
from benchmarks.first_line import APART, APART_WORDS, ENTRYPOINT, SCRIPT  # noqa: E402
from benchmarks.rows import QUICK, Row, finish, not_measured, size  # noqa: E402
from benchmarks.slurm import Slurm  # noqa: E402
from tests.rig import slurm_login  # noqa: E402
from tests.rig.ports import free_port  # noqa: E402
from tests.rig.stack import Stack, config  # noqa: E402

RUNS = size("RUNS", 7, quick=1)
WARM_UP = size("WARM_UP", 2, quick=1)
FLOOR, GOAL = 1.25, 1.1
REPORT = Path(__file__).parent / "reports" / "slurm_first_line.md"
MARK = "first line at"
WAYS: list[tuple[str, ...]] = [()] if QUICK else [(), (APART,)]
_NODES, _CPUS, _WAIT_SECONDS = 2, 2, 120.0

_JOB = """#!/bin/sh
cd {folder}
export OMP_NUM_THREADS=1
exec srun --ntasks-per-node=1 {python} -m torch.distributed.run --nnodes 2 --nproc_per_node 2 \\
  --rdzv_backend c10d --rdzv_endpoint 127.0.0.1:{port} --rdzv_id "$SLURM_JOB_ID" first.py
"""


def bare(slurm: Slurm, folder: Path) -> float:
    """Seconds from the start of sbatch to the print on the node."""
    begun = time.time()
    output = folder / "bare.txt"
    output.unlink(missing_ok=True)
    job = _JOB.format(folder=folder, python=sys.executable, port=free_port())
    words = ["sbatch", "-Q", "-N2", "--ntasks-per-node=1", f"-c{_CPUS}", "-o", str(output)]
    subprocess.run(words, input=job, text=True, env=slurm.environment, check=True, stdout=subprocess.DEVNULL)
    _wait(lambda: output.exists() and MARK in output.read_text(), "bare torchrun to print its first line")
    printed = next(line for line in output.read_text().splitlines() if MARK in line)
    _wait(lambda: not slurm.waiting(), "the bare job to end")
    return float(printed.split()[-1]) - begun


def ours(stack: Stack, slurm: Slurm, *more: str) -> float:
    """Seconds from the start of the POST of the experiment to the print on the node."""
    begun = time.time()
    environment = {"environment_variables": ["OMP_NUM_THREADS=1", *more]}
    text = config(4, ENTRYPOINT, environment=environment)
    experiment = stack.submit({"first.py": SCRIPT}, text)
    line, _ = stack.follow_until(experiment, MARK, _WAIT_SECONDS)
    state = stack.wait_end(experiment)
    if state != "STATE_COMPLETED":
        raise RuntimeError(f"the experiment ended as {state}")
    _wait(lambda: not slurm.waiting(), "our job to end")
    return float(line.split()[-1]) - begun


def _wait(true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + _WAIT_SECONDS
    while not true():
        if time.monotonic() > until:
            raise RuntimeError(f"waited {_WAIT_SECONDS:.0f} s for {what}")
        time.sleep(0.1)


def measure() -> list[list[float]]:
    """Seconds of the bare way and of each of ours, in turns after a warm-up of all."""
    with tempfile.TemporaryDirectory(prefix="slurm-first-line-") as name:
        folder = Path(name)
        with slurm_login.slurm_stack(folder, _NODES, _CPUS) as (stack, slurm):
            (folder / "first.py").write_text(SCRIPT)
            found: list[list[float]] = [[] for _ in range(1 + len(WAYS))]
            for number in range(WARM_UP + RUNS):
                samples = [bare(slurm, folder), *(ours(stack, slurm, *more) for more in WAYS)]
                print(number, *(f"{each:.2f} s" for each in samples), flush=True)
                if number >= WARM_UP:
                    for seconds, sample in zip(found, samples, strict=True):
                        seconds.append(sample)
            return found


def report(found: list[list[float]]) -> str:
    """The figures as a page; ratios are of medians, and of pairs for the spread."""
    theirs = found[0]
    names = ["printed on the node", f"printed on the node, {APART_WORDS}"]
    rows = []
    for name, mine in zip(names, found[1:], strict=False):
        pairs = sorted(b / a for a, b in zip(theirs, mine, strict=True))
        ratio = statistics.median(mine) / statistics.median(theirs)
        rows.append(
            f"| {name} | {_spread(theirs)} | {_spread(mine)} | {ratio:.2f} | {pairs[0]:.2f} to {pairs[-1]:.2f} |"
        )
    return "\n".join(
        [
            "# Submit to the first line of rank 0 in a Slurm pool",
            "",
            f"2 nodes x 2 ranks, gloo, warm page cache, {len(theirs)} pairs in turns on {os.cpu_count()} cores; "
            f"load {os.getloadavg()[1]:.0f}; seconds, median [least, most]. Floor: {FLOOR} x, goal: {GOAL} x.",
            "",
            "| until the line is | bare `sbatch`, `srun torchrun` | Trainmaster | ratio of medians | ratios of pairs |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} [{min(seconds):.2f}, {max(seconds):.2f}]"


def main() -> int:
    if not rig.installed():
        return not_measured(REPORT, "Debian's slurmctld, slurmd and munge are not installed")
    found = measure()
    ratio = statistics.median(found[1]) / statistics.median(found[0])
    what = "submit to a gang's first line printed on a Slurm node"
    row = Row(what, ratio, "x sbatch + srun torchrun", most=FLOOR, goal=GOAL)
    return finish(REPORT, report(found), [row])


if __name__ == "__main__":
    sys.exit(main())
