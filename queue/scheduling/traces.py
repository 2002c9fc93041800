"""Job traces: read from the Standard Workload Format or from CSV, cut to a load, written, and generated from a seed.

The Standard Workload Format: D. Feitelson, Parallel Workloads Archive; one job a line, 18 numbers, -1 for unknown,
comments after `;`. CSV: a header that names the columns; see `COLUMNS`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
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

    `program`: the number of what it runs, -1 when unknown. `group`: the team of its user, empty when unknown.
    """

    number: int
    submitted_at: float
    runs: float
    slots: int
    asks_time: float | None = None
    user: int = -1
    priority: int = DEFAULT_PRIORITY
    program: int = -1
    group: str = ""


#: the columns of a trace in CSV; the first three are required
COLUMNS = ("submitted", "duration_s", "gpus", "group", "user", "program")


def read(text: str) -> list[TraceJob]:
    """The jobs of a trace in either format, which its first line tells. Raises TraceError."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return parse_csv(text) if "," in first and not first.startswith(";") else parse(text)


def parse_csv(text: str) -> list[TraceJob]:
    """The jobs that ran, oldest first. Jobs without a duration or GPUs are left out. Raises TraceError.

    `submitted`: UTC as 2017-09-24 14:01:56, or seconds. Users and programs may be any text.
    """
    rows = csv.DictReader(text.splitlines())
    missing = [name for name in COLUMNS[:3] if name not in (rows.fieldnames or ())]
    if missing:
        raise TraceError(
            f"line 1 names no column {missing[0]}; a trace in CSV has the columns {', '.join(COLUMNS[:3])}, "
            f"and may have {', '.join(COLUMNS[3:])}"
        )
    numbers: dict[tuple[str, str], int] = {}
    jobs = []
    for number, row in enumerate(rows, 1):
        job = _row_job(number, row, numbers)
        if job.runs > 0 and job.slots > 0:
            jobs.append(job)
    return sorted(jobs, key=lambda job: (job.submitted_at, job.number))


def _row_job(number: int, row: Mapping[str, str | None], numbers: dict[tuple[str, str], int]) -> TraceJob:
    def numbered(column: str) -> int:
        name = row.get(column) or ""
        return numbers.setdefault((column, name), len(numbers)) if name else -1

    try:
        return TraceJob(
            number,
            _seconds(row["submitted"] or ""),
            float(row["duration_s"] or 0),
            int(row["gpus"] or 0),
            user=numbered("user"),
            program=numbered("program"),
            group=row.get("group") or "",
        )
    except ValueError as error:
        raise TraceError(
            f"line {number + 1}: {error}; submitted must be a UTC time such as 2017-09-24 14:01:56 or seconds, "
            "duration_s a number, and gpus a whole number"
        ) from error


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


#: the period whose load a cluster is cut to
BUSIEST = 28 * 86400.0


def hosts_for(jobs: Sequence[TraceJob], slots: int, load: float) -> int:
    """How many hosts of so many slots the trace needs, so that its busiest four weeks ask for `load` of them all.

    At least as many as its largest job needs.
    """
    most = asked = 0.0
    oldest = 0
    for job in jobs:
        asked += job.runs * job.slots
        while jobs[oldest].submitted_at < job.submitted_at - BUSIEST:
            asked -= jobs[oldest].runs * jobs[oldest].slots
            oldest += 1
        most = max(most, asked)
    largest = max((job.slots for job in jobs), default=1)
    span = jobs[-1].submitted_at - jobs[0].submitted_at if jobs else 0.0
    needs = most / max(1.0, min(BUSIEST, span)) / (load * slots)
    return max(1, -(-largest // slots), round(needs))


def between(jobs: Iterable[TraceJob], first_day: float, last_day: float) -> list[TraceJob]:
    """The jobs that were submitted between these days, counted from the first submission."""
    jobs = list(jobs)
    start = min((job.submitted_at for job in jobs), default=0.0)
    return [job for job in jobs if first_day * DAY <= job.submitted_at - start < last_day * DAY]


def with_priorities(jobs: Iterable[TraceJob]) -> list[TraceJob]:
    """The jobs with priorities drawn by their number, as often as in generated traces."""
    return [replace(job, priority=_drawn(Random(job.number), PRIORITIES)) for job in jobs]


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
        group=str(int(values[12])) if values[12] >= 0 else "",
    )


def written(jobs: Iterable[TraceJob]) -> str:
    """The jobs as a trace; `parse` answers the same jobs."""
    lines = ["; Version: 2.2", PRIORITY_NOTE]
    for job in jobs:
        asks = -1 if job.asks_time is None else round(job.asks_time)
        lines.append(
            f"{job.number} {job.submitted_at:.0f} -1 {job.runs:.0f} {job.slots} -1 -1 {job.slots} {asks} -1 1 "
            f"{job.user} {_group_number(job.group)} {job.program} {job.priority} -1 -1 -1"
        )
    return "\n".join(lines) + "\n"


def _group_number(group: str) -> str:
    return group if group.isdigit() else "-1"


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
