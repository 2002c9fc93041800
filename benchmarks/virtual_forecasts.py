"""Promised starts against real ones in virtual time: the commands of benchmarks/forecasts.py, over many seeds.

One run of forecasts.py has some 50 promises that wait for the same ends, so its share inside differs by ten points
from seed to seed. Here the same planner and the same forecasts live through as many runs as it takes to know the
share to a point. `python -m benchmarks.virtual_forecasts [SEEDS]` prints the shares by how many wait ahead, and writes
benchmarks/reports/virtual_forecasts.md.
"""

from __future__ import annotations

import heapq
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

sys.path.append(str(Path(__file__).resolve().parent.parent / "queue"))

from benchmarks.forecasts import GOAL, HISTORY, HOSTS, JOBS, KINDS, SLOTS, SPREAD, WAIT_AT_MOST
from scheduling.traces import TraceJob
from scheduling.virtual_time import Habits, VirtualPool
from scheduling.world import PoolView

SEEDS = 50
REPORT = Path(__file__).parent / "reports" / "virtual_forecasts.md"
#: seconds that a slot is held beside the run, at least and at most: the launch, and the news of the end
BESIDE = (0.6, 1.4)


@dataclass(frozen=True)
class Kept:
    """`ahead`: how many waited before it. `off`: seconds outside of the range, below 0: sooner."""

    ahead: int
    off: float
    width: float
    wait: float


def trace(seed: int) -> list[TraceJob]:
    """Commands as `forecasts.Pool` submits them: first come, first served, so each start is known at its arrival."""
    random, now, jobs = Random(seed), 0.0, []
    mean = statistics.mean(KINDS.values()) / (HOSTS * SLOTS)
    for count in (HISTORY, JOBS):
        free, starts = [now] * (HOSTS * SLOTS), [now]
        for _ in range(count):
            waits = [start for start in starts if start > now]
            if len(waits) >= WAIT_AT_MOST:
                now = min(waits)
            kind = random.randrange(len(KINDS))
            seconds = list(KINDS.values())[kind] * random.lognormvariate(0, SPREAD) + random.uniform(*BESIDE)
            jobs.append(TraceJob(len(jobs) + 1, now, seconds, 1, user=0, program=kind))
            starts.append(max(now, heapq.heappop(free)))
            heapq.heappush(free, starts[-1] + seconds)
            if any(start > now for start in starts):
                now += random.expovariate(1 / mean)
        now = max(free)
    return jobs


def kept(seed: int) -> list[Kept]:
    """The promises of the commands that are measured."""
    pool = VirtualPool(HOSTS, SLOTS, PoolView(), Habits(reporting=0.0), forecast_every=1)
    outcome = pool.live(trace(seed))
    jobs = outcome.jobs.values()
    found = []
    for promise in outcome.promises:
        job = outcome.jobs[promise.task_id]
        start, (earliest, latest) = job.first_start, promise.span
        if promise.first and start is not None and job.trace.number > HISTORY:
            ahead = sum(
                other.first_start is not None
                and other.trace.number < job.trace.number
                and other.first_start > promise.at
                for other in jobs
            )
            off = min(0.0, start - earliest) + max(0.0, start - latest)
            found.append(Kept(ahead, off, latest - earliest, start - promise.at))
    return found


def table(found: Sequence[Kept]) -> Iterator[str]:
    by_ahead: dict[str, list[Kept]] = defaultdict(list)
    for one in sorted(found, key=lambda one: one.ahead):
        by_ahead[f"{one.ahead} ahead"].append(one)
    yield "| | promises | inside | sooner | later | off by more than its width | range: median | start after: median |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, some in [*by_ahead.items(), ("all", list(found))]:
        count = len(some)
        shares = (
            sum(one.off == 0 for one in some),
            sum(one.off < 0 for one in some),
            sum(one.off > 0 for one in some),
            sum(abs(one.off) > one.width for one in some),
        )
        width, wait = (statistics.median(getattr(one, what) for one in some) for what in ("width", "wait"))
        yield (
            f"| {name} | {count} | "
            + " | ".join(f"{share / count:.1%}" for share in shares)
            + f" | {width:.1f} s | {wait:.1f} s |"
        )


def main() -> int:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        runs = list(pool.map(kept, range(1, seeds + 1)))
    found = [one for run in runs for one in run]
    inside = [sum(one.off == 0 for one in run) / len(run) for run in runs if run]
    among = sum(GOAL[0] <= share <= GOAL[1] for share in inside)
    text = "\n".join(
        [
            "# Promised starts against real ones, in virtual time",
            "",
            *table(found),
            "",
            f"{seeds} runs: share inside {statistics.mean(inside):.1%} on average, standard deviation "
            f"{statistics.pstdev(inside):.1%}; {among} runs are within {GOAL[0]:.0%} to {GOAL[1]:.0%}.",
        ]
    )
    print(text)
    REPORT.write_text(text + "\n")
    return 0 if GOAL[0] <= sum(one.off == 0 for one in found) / len(found) <= GOAL[1] else 1


if __name__ == "__main__":
    sys.exit(main())
