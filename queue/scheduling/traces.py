"""Job traces in the Standard Workload Format: read, written, and generated from a seed.

The format: D. Feitelson, "The Standard Workload Format", Parallel Workloads Archive; one job a line, 18 numbers,
-1 for unknown, comments after `;`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

FIELDS = 18
#: in the header of a trace whose queue numbers are priorities, 1 to 99
PRIORITY_NOTE = "; Note: queue numbers are priorities, 1 goes first"
DEFAULT_PRIORITY = 42


class TraceError(ValueError):
    """A line that is not of the format; the message says which and why."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """`submitted_at`, `runs`, `asks_time`: seconds. `asks_time` is the user's estimate, None when there is none.

    `program`: the number of what it runs, -1 when unknown.
    """

    number: int
    submitted_at: float
    runs: float
    slots: int
    asks_time: float | None = None
    user: int = -1
    priority: int = DEFAULT_PRIORITY
    program: int = -1


def parse(text: str) -> list[TraceJob]:
    """The jobs that ran, oldest first. Jobs without a run time or a size (cancelled ones) are left out.

    Queue numbers are read as priorities if the header says so. Raises TraceError.
    """
    jobs = []
    prioritized = False
    for number, line in enumerate(text.splitlines(), 1):
        prioritized = prioritized or line.strip() == PRIORITY_NOTE
        data = line.partition(";")[0].split()
        if data:
            job = _job(number, data, prioritized)
            if job is not None:
                jobs.append(job)
    return sorted(jobs, key=lambda job: (job.submitted_at, job.number))


def _job(number: int, data: list[str], prioritized: bool) -> TraceJob | None:
    if len(data) != FIELDS:
        raise TraceError(
            f"line {number} has {len(data)} fields; a line of the Standard Workload Format has {FIELDS}"
        )
    try:
        values = [float(value) for value in data]
    except ValueError as error:
        raise TraceError(f"line {number}: {error}; every field must be a number, -1 for unknown") from error
    runs, used, asked = values[3], int(values[4]), int(values[7])
    slots = asked if asked > 0 else used
    if runs <= 0 or slots <= 0:
        return None
    priority = int(values[14])
    if prioritized and not 1 <= priority <= 99:
        raise TraceError(f"line {number}: queue number {priority} must be a priority from 1 to 99")
    return TraceJob(
        number=int(values[0]),
        submitted_at=values[1],
        runs=runs,
        slots=slots,
        asks_time=max(values[8], runs) if values[8] > 0 else None,
        user=int(values[11]),
        priority=priority if prioritized else DEFAULT_PRIORITY,
        program=int(values[13]),
    )


def written(jobs: Iterable[TraceJob]) -> str:
    """The jobs as a trace; `parse` answers the same jobs."""
    lines = ["; Version: 2.2", PRIORITY_NOTE]
    for job in jobs:
        asks = -1 if job.asks_time is None else round(job.asks_time)
        lines.append(
            f"{job.number} {job.submitted_at:.0f} -1 {job.runs:.0f} {job.slots} -1 -1 {job.slots} {asks} -1 1 "
            f"{job.user} -1 {job.program} {job.priority} -1 -1 -1"
        )
    return "\n".join(lines) + "\n"


#: (slots, how often): many small jobs, some gangs
SIZES = ((1, 40), (2, 16), (4, 18), (8, 18), (16, 8))
#: (priority, how often)
PRIORITIES = ((42, 85), (30, 8), (60, 5), (10, 2))
#: what users ask for, in hours: round numbers
ESTIMATES = (0.25, 0.5, 1, 2, 4, 8, 12, 24, 48, 72, 168)
USERS = 24
MEDIAN_HOURS = 1.0
#: standard deviations of the logarithm of run times: between users, and of one user's jobs of one size
BETWEEN_USERS, WITHIN_USER = 0.8, 0.6
DAY = 86400.0


def generated(count: int, capacity: int, seed: int, load: float = 0.9) -> list[TraceJob]:
    """`count` jobs that ask for `load` times `capacity` slots on average; the same seed gives the same jobs.

    Arrivals follow the hours of a day; run times are lognormal around what is usual for their user; estimates
    are too high and round, as users give them.
    """
    random = Random(seed)
    usual = [MEDIAN_HOURS * 3600 * math.exp(random.gauss(0, BETWEEN_USERS)) for _ in range(USERS)]
    work = []
    for _ in range(count):
        user = min(int(random.expovariate(1 / (USERS / 4))), USERS - 1)  # a few users submit most
        runs = max(30.0, usual[user] * math.exp(random.gauss(0, WITHIN_USER)))
        slots = _drawn(random, SIZES)
        work.append(
            (
                user,
                round(min(runs, 167 * 3600)),
                slots if slots <= capacity else 1,
                _drawn(random, PRIORITIES),
            )
        )
    gap = sum(runs * slots for _, runs, slots, _ in work) / (load * capacity * count)
    now = 0.0
    jobs = []
    for number, (user, runs, slots, priority) in enumerate(work, 1):
        now += random.expovariate(1 / gap) / (1 + 0.6 * math.sin(2 * math.pi * now / DAY))
        jobs.append(TraceJob(number, round(now), runs, slots, _estimate(random, runs), user, priority))
    return jobs


def _drawn(random: Random, table: tuple[tuple[int, int], ...]) -> int:
    return random.choices([value for value, _ in table], [often for _, often in table])[0]


def _estimate(random: Random, runs: float) -> float:
    """Twice to ten times too much, rounded up to what people write."""
    asked = runs / 3600 * random.uniform(1.2, 10)
    return next((hours for hours in ESTIMATES if hours >= asked), ESTIMATES[-1]) * 3600
