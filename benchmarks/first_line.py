"""Submit to the first line of rank 0, beside plain `ssh host torchrun`, in turns, on the same two hosts.

All run the same script over 2 hosts x 2 ranks (gloo); its rank 0 prints the time after the first all_reduce. The
plain way has its code on the hosts already and starts both nodes at once, as a careful user's script would. The page
cache is warm. Ours runs twice: as it is, and with ranks that import PyTorch by themselves, as those of scripts do that
import other packages first. `python -m benchmarks.first_line` writes benchmarks/reports/first_line.md.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rows import QUICK, Row, finish, size
from tests.rig.hosts import Host, HostRig
from tests.rig.ports import free_port
from tests.rig.server import Server
from tests.rig.stack import Stack, config

RUNS = size("RUNS", 7, quick=1)
WARM_UP = size("WARM_UP", 2, quick=1)
FLOOR = 1.0
REPORT = Path(__file__).parent / "reports" / "first_line.md"
ENTRYPOINT = "python3 -m determined.launch.torch_distributed first.py"

SCRIPT = """
import os, time
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 0:
    print("first line at", time.time(), flush=True)
dist.destroy_process_group()
"""


@dataclass
class Sample:
    """Seconds from the start of the attempt to the print on the host, and to its being readable here."""

    printed: float
    visible: float


def plain(hosts: list[Host], folder: Path) -> Sample:
    """Two ssh commands at once, static address, output read from the first."""
    port = free_port()
    begun = time.time()
    nodes = []
    for rank, host in enumerate(hosts):
        command = (
            f"cd {folder} && OMP_NUM_THREADS=1 exec {sys.executable} -m torch.distributed.run --nnodes 2 "
            f"--nproc_per_node 2 --node_rank {rank} --master_addr {hosts[0].address} --master_port {port} first.py"
        )
        remote = [*host.ssh(), command]
        nodes.append(subprocess.Popen(remote, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
    assert nodes[0].stdout is not None
    line = next((line for line in nodes[0].stdout if line.startswith("first line at")), "")
    seen = time.time()
    for node in nodes:
        node.communicate()
    if not line:
        raise RuntimeError("plain torchrun did not print its first line")
    return Sample(float(line.split()[-1]) - begun, seen - begun)


def ours(stack: Stack, *more: str) -> Sample:
    """POST the experiment, then follow the trial's log until the line is there."""
    begun = time.time()
    environment = {"environment_variables": ["OMP_NUM_THREADS=1", *more]}
    experiment = stack.submit({"first.py": SCRIPT}, config(4, ENTRYPOINT, environment=environment))
    line, seen = stack.follow_until(experiment, "first line at", 60)
    printed = float(line.split()[-1])
    state = stack.wait_end(experiment)
    if state != "STATE_COMPLETED":
        raise RuntimeError(f"the experiment ended as {state}")
    return Sample(printed - begun, seen - begun)


APART = "TRAINMASTER_WARM_RANKS=0"
APART_WORDS = "each rank importing PyTorch by itself"
WAYS: list[tuple[str, ...]] = [()] if QUICK else [(), (APART,)]
Runs = tuple[list[Sample], list[Sample], list[Sample]]


def measure() -> Runs:
    """(plain, ours, ours with an import in each rank unless quick), in turns after a warm-up of all."""
    with tempfile.TemporaryDirectory(prefix="first-line-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "first.py").write_text(SCRIPT)
        rig = HostRig(folder / "hosts")
        server = Server(folder / "server" / "data", rig.server_address)
        (folder / "server").mkdir(mode=0o755)
        try:
            hosts = rig.take(2)
            stack = Stack(server.start(), hosts)
            stack.add_hosts(python=sys.executable)
            runs: Runs = ([], [], [])
            for number in range(WARM_UP + RUNS):
                samples = plain(hosts, folder), *(ours(stack, *more) for more in WAYS)
                print(number, *(f"{sample.printed:.2f} s" for sample in samples), flush=True)
                if number >= WARM_UP:
                    for found, sample in zip(runs, samples, strict=False):
                        found.append(sample)
            return runs
        finally:
            server.close()
            rig.close()


def report(plain_runs: list[Sample], our_runs: list[Sample], apart: list[Sample]) -> str:
    """The figures as a page; ratios are of medians, and of pairs for the spread."""

    def row(name: str, pick: str, our_runs: list[Sample]) -> str:
        theirs = sorted(getattr(sample, pick) for sample in plain_runs)
        mine = sorted(getattr(sample, pick) for sample in our_runs)
        pairs = sorted(getattr(b, pick) / getattr(a, pick) for a, b in zip(plain_runs, our_runs, strict=True))
        ratio = statistics.median(mine) / statistics.median(theirs)
        return (
            f"| {name} | {statistics.median(theirs):.2f} [{theirs[0]:.2f}, {theirs[-1]:.2f}] "
            f"| {statistics.median(mine):.2f} [{mine[0]:.2f}, {mine[-1]:.2f}] | {ratio:.2f} "
            f"| {pairs[0]:.2f} to {pairs[-1]:.2f} |"
        )

    return "\n".join(
        [
            "# Submit to the first line of rank 0",
            "",
            f"2 hosts x 2 ranks, gloo, warm page cache, {len(plain_runs)} pairs in turns on {os.cpu_count()} cores; "
            f"load {os.getloadavg()[1]:.0f}; seconds, median [least, most]. Floor: {FLOOR} x.",
            "",
            "| until the line is | plain `ssh` + `torchrun` | Trainmaster | ratio of medians | ratios of pairs |",
            "|---|---|---|---|---|",
            row("printed on the host", "printed", our_runs),
            row("readable by the user", "visible", our_runs),
            *([row(f"printed on the host, {APART_WORDS}", "printed", apart)] if apart else []),
            "",
        ]
    )


def main() -> int:
    plain_runs, our_runs, apart = measure()
    text = report(plain_runs, our_runs, apart)
    found = []
    for what, pick in (("printed on the host", "printed"), ("readable by the user", "visible")):
        theirs, ours = (statistics.median(getattr(s, pick) for s in runs) for runs in (plain_runs, our_runs))
        found.append(
            Row(f"submit to a gang's first line {what}", ours / theirs, "x ssh + torchrun", most=FLOOR)
        )
    return finish(REPORT, text, found)


if __name__ == "__main__":
    sys.exit(main())
