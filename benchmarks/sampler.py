"""What samples cost on a host with 8 GPUs and 8 ranks: CPU and memory of the runner with them and without.

`python -m benchmarks.sampler` writes benchmarks/reports/sampler.md. Two real runs side by side, each with a runner of
its own; the driver's library is a stand-in, so what a driver takes for its answers comes on top. SECONDS=20 shortens
it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.host_logs import Sink, cpu_seconds
from benchmarks.rows import Row, finish, size

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
REPORT = ROOT / "benchmarks" / "reports" / "sampler.md"
SECONDS = float(size("SECONDS", 100, quick=6))
SETTLE_SECONDS = 5.0
GPUS = RANKS = 8
GOAL_CORES, GOAL_MEMORY = 0.01, 40 * 2**20
NVML = """
from types import SimpleNamespace
NVML_TEMPERATURE_GPU = 0
class NVMLError(Exception): pass
class NVMLError_NotFound(NVMLError): pass
def nvmlInit(): pass
def nvmlDeviceGetHandleByUUID(uuid): return uuid
def nvmlDeviceGetProcessUtilization(device, since): raise NVMLError_NotFound()
def nvmlDeviceGetUtilizationRates(device): return SimpleNamespace(gpu=83, memory=20)
def nvmlDeviceGetMemoryInfo(device): return SimpleNamespace(used=30 * 2**30, free=50 * 2**30, total=80 * 2**30)
def nvmlDeviceGetTemperature(device, sensor): return 61
def nvmlDeviceGetPowerUsage(device): return 412345
"""
JOB = """
import os, subprocess, sys
wait = [sys.executable, "-c", "import time; time.sleep(10000)"]
ranks = [subprocess.Popen(wait, env={**os.environ, "RANK": str(rank)}) for rank in range(%d)]
sys.exit(max(rank.wait() for rank in ranks))
"""


class Cost(NamedTuple):
    """What a runner costs: seconds of CPU, and bytes that no other process has."""

    cpu: float
    memory: int


def cost(pid: int) -> Cost:
    return Cost(cpu_seconds(pid) or 0.0, private_bytes(pid))


def private_bytes(pid: int) -> int:
    """Runners are forks of one process and share what they have not changed."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private"))


def started(stack: ExitStack, sample_seconds: float) -> int:
    """The pid of the runner of a run with 8 ranks that only wait."""
    from tests.trainmaster.conftest import TestHost, wait_until
    from trainmaster.runner.state import read_state

    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sampler-"))
    host: Any = TestHost(Path(folder), Sink())  # type: ignore[arg-type]  # all it needs of it is the address
    stack.callback(host.end_everything)
    (host.bundle / "vendor").mkdir(exist_ok=True)
    (host.bundle / "vendor" / "pynvml.py").write_text(NVML)
    slots = [{"index": gpu, "uuid": f"GPU-{gpu:032x}", "kind": "cuda"} for gpu in range(GPUS)]
    limits = {"heartbeat_seconds": 5.0, "sample_seconds": sample_seconds}
    paths = host.run_script(JOB % RANKS, slots=slots, limits=limits)
    return int(wait_until(lambda: read_state(paths).get("runner"))["pid"])


def report(without: Cost, sampled: Cost, seconds: float, load: float) -> str:
    cores = (sampled.cpu - without.cpu) / seconds
    memory = sampled.memory - without.memory
    kept = cores <= GOAL_CORES and memory <= GOAL_MEMORY
    return "\n".join(
        [
            "# Samples on a host",
            "",
            f"Two runs of {RANKS} waiting ranks and {GPUS} GPUs (a stand-in for the driver's library) for "
            f"{seconds:.0f} s, one with samples once a second, on {os.cpu_count()} cores at a load of {load:.1f}.",
            "",
            "| runner | CPU seconds in 100 s | private memory, MB |",
            "|---|---|---|",
            *(
                f"| {name} | {100 * each.cpu / seconds:.2f} | {each.memory / 2**20:.1f} |"
                for name, each in (("without samples", without), ("with samples", sampled))
            ),
            f"| **the sampler** | **{100 * cores:.2f}** | **{memory / 2**20:.1f}** |",
            "",
            f"Wanted: at most {100 * GOAL_CORES:g} CPU second in 100 s and {GOAL_MEMORY >> 20} MB: "
            f"{'kept' if kept else 'missed'}.",
            "",
        ]
    )


def main() -> int:
    with ExitStack() as stack:
        pids = [started(stack, sample_seconds) for sample_seconds in (0.0, 1.0)]
        time.sleep(SETTLE_SECONDS)
        begin, before = time.monotonic(), [cost(pid) for pid in pids]
        load = os.getloadavg()[0]
        time.sleep(SECONDS)
        seconds = time.monotonic() - begin
        after = [cost(pid) for pid in pids]
    without, sampled = (
        Cost(late.cpu - early.cpu, late.memory) for early, late in zip(before, after, strict=True)
    )
    text = report(without, sampled, seconds, load)
    return finish(
        REPORT,
        text,
        [
            Row(
                "the sampler of a host",
                100 * (sampled.cpu - without.cpu) / seconds,
                "% of a core",
                goal=100 * GOAL_CORES,
            ),
            Row(
                "the sampler's memory",
                (sampled.memory - without.memory) / 2**20,
                "MB",
                most=GOAL_MEMORY / 2**20,
            ),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
