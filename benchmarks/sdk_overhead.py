"""What reporting at every step costs a training whose step takes 5 ms, and how long the SDK takes to import.

`python -m benchmarks.sdk_overhead` writes benchmarks/reports/sdk_overhead.md. The steps are the same busy work with and
without the SDK, in short blocks that take turns, so that whatever else the machine does meets both alike. What counts
is the median of the pairs; the fastest tenth of the blocks of either kind, which nobody disturbed, stands beside it. On
a busy machine it has to go before others (`chrt -f 10`), or the pairs say nothing. The records go to the spool of a
run's folder, as in a run.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.rows import Row, finish, size
from tests.trainmaster.made_run import ROOT, make_run

STEP_SECONDS = 0.005
BLOCK_STEPS = 5
PAIRS = size("PAIRS", 400, quick=50)
IMPORTS = 21
MOST_SHARE, MOST_IMPORT_SECONDS = 0.01, 0.150
REPORT = Path(__file__).parent / "reports" / "sdk_overhead.md"
_IMPORT = """
import sys, time
known = set(sys.modules)
begun = time.perf_counter()
import trainmaster, trainmaster.core
taken = time.perf_counter() - begun
foreign = [name for name, module in sys.modules.items()
           if name not in known and "site-packages" in (getattr(module, "__file__", None) or "")]
print(taken, ",".join(sorted(foreign)) or "-")
"""

Report = Callable[[int], None]


class Blocks(NamedTuple):
    """Seconds of a step in each block, pair by pair."""

    without: list[float]
    reporting: list[float]

    @property
    def undisturbed(self) -> float:
        """What reports add to the fastest tenth, as a share."""
        return _fastest(self.reporting) / _fastest(self.without) - 1

    @property
    def median(self) -> float:
        """What they add, the median of the pairs."""
        return statistics.median(self.pairs)

    @property
    def pairs(self) -> list[float]:
        """What they add in each pair, smallest first."""
        return sorted(one / other - 1 for other, one in zip(self.without, self.reporting, strict=True))


def _fastest(seconds: list[float]) -> float:
    return statistics.mean(sorted(seconds)[: max(1, len(seconds) // 10)])


def work(rounds: int) -> float:
    """A step: so many rounds of arithmetic, always the same."""
    total = 0.0
    for number in range(rounds):
        total += number * 0.5
    return total


def rounds_of_a_step() -> int:
    """As many as take STEP_SECONDS on this machine while nobody disturbs it: the shortest of some tries counts."""
    rounds, shortest = 20_000, float("inf")
    for _ in range(500):
        begun = time.perf_counter()
        work(rounds)
        shortest = min(shortest, time.perf_counter() - begun)
    return round(rounds * STEP_SECONDS / shortest)


def block(rounds: int, first: int, report: Report | None) -> float:
    """Seconds of a step, the mean of some."""
    begun = time.perf_counter()
    for step in range(first, first + BLOCK_STEPS):
        work(rounds)
        if report is not None:
            report(step)
    return (time.perf_counter() - begun) / BLOCK_STEPS


def blocks(rounds: int, report: Report) -> Blocks:
    """Return a block without and a block with reports for each pair; which comes first alternates."""
    found, step = Blocks([], []), 1
    for pair in range(PAIRS):
        taken = {}
        for with_reports in (pair % 2 == 0, pair % 2 == 1):
            taken[with_reports] = block(rounds, step, report if with_reports else None)
            step += BLOCK_STEPS
        found.without.append(taken[False])
        found.reporting.append(taken[True])
    return found


def imported(python: str) -> tuple[list[float], str]:
    """Seconds of an import in new processes, and what it brought in that is not of the standard library."""
    seconds, foreign = [], ""
    for _ in range(IMPORTS):
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        ran = subprocess.run(
            [python, "-c", _IMPORT], env=environment, capture_output=True, text=True, check=True
        )
        taken, foreign = ran.stdout.split()
        seconds.append(float(taken))
    return seconds, foreign


def row(what: str, found: Blocks) -> str:
    pairs = found.pairs
    spread = f"{pairs[len(pairs) // 4]:+.2%} to {pairs[len(pairs) * 3 // 4]:+.2%}"
    step = statistics.median(found.without) * 1000
    return f"| {what} | {step:.2f} ms | {found.median:+.2%} | {spread} | {found.undisturbed:+.2%} |"


def measured(folder: Path) -> list[tuple[str, Blocks]]:
    os.environ["TRAINMASTER_RUN_DIR"] = str(make_run(folder / "run"))
    from trainmaster import core

    rounds = rounds_of_a_step()
    with core.init() as context:

        def metrics(step: int) -> None:
            context.train.report_training_metrics(step, {"loss": 1 / step, "lr": 0.1, "grad_norm": 2.5})

        def everything(step: int) -> None:
            with context.profiler.step(step):
                context.profiler.count("samples", 32)
            metrics(step)
            context.train.report_progress(0.5)
            context.preempt.should_preempt()

        calls: list[tuple[str, Report]] = [
            ("nothing, to see what the method makes of it", lambda step: None),
            ("metrics", metrics),
            ("metrics, progress, a timed step, should_preempt", everything),
        ]
        return [(what, blocks(rounds, report)) for what, report in calls]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="sdk-") as folder:
        found = measured(Path(folder))
    seconds, foreign = imported(sys.executable)
    table = "\n".join(row(what, one) for what, one in found)
    quickest, middle, slowest = (
        1000 * one for one in (min(seconds), statistics.median(seconds), max(seconds))
    )
    about = f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    blocks_are = f"{PAIRS} pairs of blocks of {BLOCK_STEPS} steps"
    text = f"""# What the SDK costs a training

Steps of {STEP_SECONDS * 1000:.0f} ms of busy work in {blocks_are}, with and without, in turns. {about}.
Undisturbed: the fastest tenth of the blocks of either kind.
Goal: the median for metrics of every step is less than {MOST_SHARE:.0%}.

| every step reports | a step without | added, median of the pairs | half of the pairs | added, undisturbed |
|---|---|---|---|---|
{table}

`import trainmaster, trainmaster.core` in {IMPORTS} new processes takes {quickest:.0f} ms undisturbed;
median {middle:.0f} ms, at most {slowest:.0f} ms. Goal: under {MOST_IMPORT_SECONDS * 1000:.0f} ms undisturbed.
Packages beyond the standard library that it loads: {"none" if foreign == "-" else foreign}.
"""
    return finish(
        REPORT,
        text,
        [
            Row("metrics of every step of 5 ms", 100 * found[1][1].median, "% more", most=100 * MOST_SHARE),
            Row("import of the SDK, undisturbed", quickest, "ms", goal=MOST_IMPORT_SECONDS * 1000),
            Row("packages that it loads", 0 if foreign == "-" else len(foreign.split()), "packages", most=0),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
