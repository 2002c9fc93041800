"""What a timing of the SDK costs a training: the median of a million, and all of it with the records that it becomes.

`python -m benchmarks.timing` writes benchmarks/reports/timing.md. The loop's own cost and that of the clock, which are
part of every figure of single timings, stand beside them and are not taken off.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.rows import Row, finish, size
from trainmaster.core._profiler import ProfilerContext
from trainmaster.core._records import Records
from trainmaster.core._sign import Sign

TIMES, ROUNDS, STEPS = size("TIMES", 1_000_000, quick=200_000), 5, 100_000
MOST_MICROSECONDS = 2.0
REPORT = Path(__file__).parent / "reports" / "timing.md"


def single(once: Callable[[], None], times: int) -> tuple[float, float]:
    """Median and 99.9th percentile of one call, in microseconds."""
    clock, taken = time.perf_counter_ns, []
    for _ in range(times):
        begun = clock()
        once()
        taken.append(clock() - begun)
    taken.sort()
    return taken[times // 2] / 1000, taken[times * 999 // 1000] / 1000


def together(once: Callable[[], None], times: int) -> float:
    """Mean of one call with all that it brings about later, in microseconds; the best of some rounds."""
    rounds = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(times // ROUNDS):
            once()
        rounds.append((time.process_time() - begun) / (times // ROUNDS) * 1e6)
    return min(rounds)


def measured(profiler: ProfilerContext, off: ProfilerContext) -> list[tuple[str, float, float, float]]:
    """(what, median, 99.9th percentile, mean of processor time), in microseconds."""

    def nothing() -> None:
        return None

    def timing() -> None:
        with profiler.timing("train_batch"):
            pass

    def waiting() -> None:
        with profiler.timing("backward", waits=True):
            pass

    def off_cluster() -> None:
        with off.timing("train_batch"):
            pass

    def count() -> None:
        profiler.count("samples", 32)

    def step() -> None:
        with profiler.step(1):
            pass

    calls = [
        ("a timing", timing, TIMES),
        ("a timing that waits for peers", waiting, TIMES),
        ("a count", count, TIMES),
        ("a step, with the rank's sign of life", step, STEPS),
        ("a timing off the cluster", off_cluster, TIMES),
        ("a function that does nothing", nothing, TIMES),
    ]
    return [(what, *single(once, times), together(once, times)) for what, once, times in calls]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="timing-") as folder:
        records = Records(folder, 0)
        profiler = ProfilerContext(records, Sign(Path(folder, "sign.rank0")))
        measures = measured(profiler, ProfilerContext(None, Sign(None)))
        profiler.close()
        written = records.path.read_bytes()
    sizes = [len(line) for line in written.splitlines()]
    table = "\n".join(
        f"| {what} | {median:.2f} | {high:.1f} | {mean:.2f} |" for what, median, high, mean in measures
    )
    text = f"""# What a timing costs

{TIMES:,} calls each ({STEPS:,} of steps), Python {platform.python_version()}, {os.cpu_count()} cores with a load of
{os.getloadavg()[0]:.1f} at the end; microseconds. The mean is processor time and has in it what follows from the calls:
folding into a histogram, and the records ({len(sizes)} of {statistics.mean(sizes):.0f} bytes). Goal: the median of a
timing under {MOST_MICROSECONDS:.0f} µs.

| what | median | 99.9 % | mean of processor time |
|---|---|---|---|
{table}
"""
    return finish(REPORT, text, [Row("a timing", measures[0][1], "µs", goal=MOST_MICROSECONDS)])


if __name__ == "__main__":
    sys.exit(main())
