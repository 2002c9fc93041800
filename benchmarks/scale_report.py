"""What benchmarks.scale has found, as docs/scale.md with its pictures: curves, what is full first, and a sizing."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.curves import Curve, short, svg
from benchmarks.scale_logs import Log
from benchmarks.scale_viewers import BATCHES_PER_SECOND, Watched
from benchmarks.simulated_hosts import BEAT_SECONDS, RECORD_SECONDS

#: Of a core: a process that takes more of one than this has no time left for a burst.
FULL = 0.6
#: The installation that is sized.
SIZED_HOSTS, SIZED_VIEWERS, SIZED_PASSES_PER_SECOND, RANKS = 1000, 500, 1.0, 8
LEAST = 0.001


@dataclass
class Cost:
    """Cores of each kind of process."""

    web: float = 0.0
    postgres: float = 0.0
    worker: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.web + other.web, self.postgres + other.postgres, self.worker + other.worker)


@dataclass
class Hosts:
    """Cores that samples and heartbeats took, and seconds for a batch of 8 log lines."""

    level: int
    web: float
    postgres: float
    requests_per_second: float
    refused: int
    batch_web: float
    batch_postgres: float

    @property
    def due_per_second(self) -> float:
        """Requests that so many hosts send; clients on cores that are all busy send fewer."""
        return self.level * (1 / RECORD_SECONDS + 1 / BEAT_SECONDS)

    @property
    def needed(self) -> Cost:
        """Cores for all that is due, at the cost of a request that was measured."""
        times = self.due_per_second / self.requests_per_second
        return Cost(self.web * times, self.postgres * times)


@dataclass
class Passes:
    """A pool with so many waiting: seconds of its first pass, and of one when nothing can start any more."""

    level: int
    starts: int
    first_worker: float
    first_postgres: float
    full_worker: float
    full_postgres: float


@dataclass
class Ssh:
    """Cores of the worker that contact with so many idle hosts takes."""

    level: int
    worker: float


KINDS = {"hosts": Hosts, "jobs": Passes, "logs": Log, "viewers": Watched, "ssh": Ssh}


@dataclass
class Found:
    """What was measured, the smallest level first, and which levels were wanted."""

    hosts: list[Hosts]
    jobs: list[Passes]
    logs: list[Log]
    viewers: list[Watched]
    ssh: list[Ssh]
    levels: dict[str, list[int]]

    def missed(self, part: str) -> list[int]:
        """The levels of a part that the run did not reach."""
        return self.levels[part][len(getattr(self, part)) :]


def sizing(found: Found) -> list[tuple[str, Cost]]:
    """What each part of the work of the sized installation takes."""
    hosts, log, ssh = found.hosts[-1], found.logs[-1], found.ssh[-1]
    times = SIZED_HOSTS / hosts.level
    frame = found.viewers[-1].frame_cpu_ms / 1000
    waiting = next((each for each in found.jobs if each.level >= 5_000), found.jobs[-1])
    merged = log.merged_cpu_seconds / 1e6 * SIZED_HOSTS * RANKS
    return [
        (
            "samples each second, shipped each 10 s, and a heartbeat each 5 s",
            Cost(hosts.needed.web * times, hosts.needed.postgres * times),
        ),
        (
            f"a batch of {RANKS} log lines a second from each host",
            Cost(hosts.batch_web * SIZED_HOSTS, hosts.batch_postgres * SIZED_HOSTS),
        ),
        (f"{SIZED_VIEWERS} open logs, two updates a second each", Cost(web=2 * frame * SIZED_VIEWERS)),
        (
            f"a pass each second, {waiting.level:,} jobs waiting",
            Cost(0.0, waiting.full_postgres, waiting.full_worker),
        ),
        ("contact with hosts over SSH", Cost(worker=ssh.worker * SIZED_HOSTS / ssh.level)),
        ("merging cold logs", Cost(worker=merged)),
    ]


def cores_of(watched: Watched) -> float:
    """Cores of web if each viewer gets all updates; on busy cores some updates come together."""
    return watched.level * BATCHES_PER_SECOND * watched.frame_cpu_ms / 1000


def _curve(name: str, points: Iterable[tuple[float, float]]) -> Curve:
    """What is below a thousandth, which no clock here tells, is drawn there."""
    return Curve(name, [(x, max(y, LEAST)) for x, y in points])


def pictures(found: Found) -> dict[str, str]:
    """The curves, by the name of their file."""
    hosts, jobs, logs = found.hosts, found.jobs, found.logs
    curves = {
        "hosts": ("Cores for samples and heartbeats", "hosts of 8 GPUs", [
            _curve("web", ((each.level, each.needed.web) for each in hosts)),
            _curve("PostgreSQL", ((each.level, each.needed.postgres) for each in hosts)),
        ]),
        "jobs": ("Seconds of processor time for a pass", "jobs waiting", [
            _curve("first pass, worker", ((each.level, each.first_worker) for each in jobs)),
            _curve("full pool, worker", ((each.level, each.full_worker) for each in jobs)),
            _curve("first pass, PostgreSQL", ((each.level, each.first_postgres) for each in jobs)),
            _curve("full pool, PostgreSQL", ((each.level, each.full_postgres) for each in jobs)),
        ]),
        "logs": ("Milliseconds of processor time for 500 lines", "lines in the log", [
            _curve("the newest", ((each.level, each.newest_ms) for each in logs)),
            _curve("anywhere", ((each.level, each.middle_ms) for each in logs)),
            _curve("of one rank, anywhere", ((each.level, each.rank_ms) for each in logs)),
            _curve("append of 1,000 lines", ((each.level, each.append_ms) for each in logs)),
        ]),
        "viewers": ("Cores of web, an update a second to each viewer", "viewers of one log", [
            _curve("web", ((each.level, cores_of(each)) for each in found.viewers)),
        ]),
    }  # fmt: skip
    return {f"scale-{name}.svg": svg(*parts) for name, parts in curves.items()}


def report(found: Found) -> str:
    """The page."""
    parts = [
        _intro(found),
        _full(found),
        _sizing(found),
        _hosts(found),
        _jobs(found),
        _logs(found),
        _viewers(found),
    ]
    return "\n\n".join(paragraph for part in parts for paragraph in part) + "\n"


def _table(heads: str, rows: Iterable[Sequence[str]]) -> str:
    columns = heads.split("; ")
    return "\n".join(
        [
            f"| {' | '.join(columns)} |",
            "|---" * len(columns) + "|",
            *(f"| {' | '.join(row)} |" for row in rows),
        ]
    )


def _calculated(found: Found, part: str, what: str) -> str:
    """A sentence about the levels that were not measured, with a space before it; nothing if there are none."""
    missed = " and ".join(f"{level:,}" for level in found.missed(part))
    return f" {missed} {what} were not measured in this run." if missed else ""


def _intro(found: Found) -> list[str]:
    return [
        "# Scale",
        "How costs grow with hosts, jobs, log lines and viewers, measured by `python -m benchmarks.scale`, which "
        f"writes this page, on {os.cpu_count()} shared cores (load when it was written: {os.getloadavg()[0]:.0f}). "
        "Costs are processor time, which other work on the machine makes up to a half larger, since caches are shared. "
        "Sizes that were not reached are named, and what is calculated from smaller ones says so.",
    ]


def _full(found: Found) -> list[str]:
    hosts, jobs, viewers = found.hosts[-1], found.jobs[-1], found.viewers[-1]
    parts = sizing(found)
    total = sum((cost for _, cost in parts), Cost())
    most, cost = max(parts, key=lambda part: part[1].web)
    firsts = [
        ("a web process (one core)", hosts.level / hosts.needed.web, "hosts, with samples and heartbeats"),
        ("a web process", 1 / hosts.batch_web, "log batches a second"),
        ("a web process", 1000 / viewers.frame_cpu_ms, "updates of viewers a second"),
        ("a worker", jobs.level / jobs.full_worker, "jobs waiting, with a pass each second"),
        ("a core of PostgreSQL", hosts.level / hosts.needed.postgres, "hosts, with samples and heartbeats"),
        ("a core of PostgreSQL", 1 / hosts.batch_postgres, "log batches a second"),
    ]
    return [
        "## What saturates first",
        "Where one core is used up, calculated from the largest measured size of each kind:",
        _table("what; is full at", ((who, f"{_round(count):,} {what}") for who, count, what in firsts)),
        f"With {SIZED_HOSTS:,} hosts, web processes are full first: they need {total.web:.1f} cores, {cost.web:.1f} of "
        f"them for {most}. The remedy is to start more of them: they share nothing but PostgreSQL and Redis. The pass "
        "of a pool runs in one worker at a time: a pool with more waiting jobs than that worker can decide for in a "
        "second is decided for less often. Other pools are not affected.",
    ]


def _sizing(found: Found) -> list[str]:
    parts = sizing(found)
    total = sum((cost for _, cost in parts), Cost())
    web, workers, cores = (math.ceil(each / FULL) for each in (total.web, total.worker, total.postgres))
    last = found.logs[-1]
    daily = SIZED_HOSTS * RANKS * 86_400 * last.disk_bytes / last.level / 1e9
    return [
        f"## Sizing for {SIZED_HOSTS:,} hosts",
        "Calculated from the figures below, in cores of this machine, for hosts of 8 GPUs that all train:",
        _table(
            "work; web; PostgreSQL; workers",
            [
                (what, f"{cost.web:.2f}", f"{cost.postgres:.2f}", f"{cost.worker:.2f}")
                for what, cost in [*parts, ("**all**", total)]
            ],
        ),
        f"If no process takes more than {FULL:.0%} of a core, so that time is left for bursts: **web processes: "
        f"{web}; workers: {max(2, workers)}; cores of PostgreSQL: {max(2, cores)}**, and a disk that takes some "
        f"hundred durable commits a second. If each rank prints a line each second, logs grow by {daily:,.0f} GB a "
        "day. [In production](production.md) describes how to start the parts separately, and what samples take.",
    ]


def _hosts(found: Found) -> list[str]:
    last, ssh = found.hosts[-1], found.ssh[-1]
    rows = (
        (
            f"{each.level:,}",
            f"{each.needed.web:.3f}",
            f"{each.needed.postgres:.3f}",
            f"{1000 * each.web / each.requests_per_second:.2f}",
            f"{1000 * each.postgres / each.requests_per_second:.2f}",
            f"{each.requests_per_second:,.0f} of {each.due_per_second:,.0f}",
            f"{each.refused}",
        )
        for each in found.hosts
    )
    return [
        "## Hosts",
        "Simulated hosts of 8 GPUs and 8 ranks send what runners send: 63 values a second in a record each 10 s, and a "
        "heartbeat each 5 s. The clients share the cores, so they send fewer requests than are due when all cores are "
        "busy; the cores are for all that are due, at the cost of those that were sent."
        f"{_calculated(found, 'hosts', 'hosts')}",
        "![Cores of web and PostgreSQL by the number of hosts](img/scale-hosts.svg)",
        _table(
            "hosts; cores of web; cores of PostgreSQL; web, ms a request; PostgreSQL, ms a request; requests a second; "
            "refused",
            rows,
        ),
        f"A batch of {RANKS} log lines takes {1000 * last.batch_web:.2f} ms of web and "
        f"{1000 * last.batch_postgres:.2f} ms of PostgreSQL. Contact with an idle host over SSH takes "
        f"{100 * ssh.worker / ssh.level:.2f} % of a core of a worker, measured with {ssh.level} hosts.",
    ]


def _jobs(found: Found) -> list[str]:
    rows = (
        (
            f"{each.level:,}",
            f"{each.starts}",
            *(
                f"{seconds:.2f}"
                for seconds in (
                    each.first_worker,
                    each.first_postgres,
                    each.full_worker,
                    each.full_postgres,
                )
            ),
        )
        for each in found.jobs
    )
    return [
        "## Jobs",
        "A pass decides for a whole pool, here of 1,000 hosts with 8 slots. The first pass starts up to 500 of the "
        "jobs that wait; in the other one the pool is full, or what waits fits nowhere. Figures are seconds of "
        f"processor time, with plan, forecast and messages.{_calculated(found, 'jobs', 'jobs')}",
        "![Processor time of a pass by the number of waiting jobs](img/scale-jobs.svg)",
        _table(
            "jobs waiting; started; first pass, worker; first pass, PostgreSQL; full pool, worker; "
            "full pool, PostgreSQL",
            rows,
        ),
    ]


def _logs(found: Found) -> list[str]:
    last = found.logs[-1]
    rows = (
        (
            f"{each.level:,}",
            *(f"{ms:.1f}" for ms in (each.newest_ms, each.middle_ms, each.rank_ms, each.append_ms)),
            f"{each.searched_per_second / 1e6:.1f}",
            f"{each.disk_bytes / 1e9:.2f}",
        )
        for each in found.logs
    )
    calculated = "".join(
        f" A log of {level:,} lines was not measured: it takes {level * last.disk_bytes / last.level / 1e9:.0f} GB "
        f"(calculated from {last.level:,} lines), and its pages cost what they cost there, as the curve is flat."
        for level in found.missed("logs")
    )
    return [
        "## Log lines",
        "One log of 8 ranks. Its first half million lines are stored as a run writes them and merged as cold logs are; "
        "the others are copies of them under the numbers that follow. Milliseconds of processor time of Python and "
        f"PostgreSQL; what is not in memory also waits for the disk.{calculated}",
        "![Processor time for a page of a log](img/scale-logs.svg)",
        _table(
            "lines; newest 500; 500 anywhere; 500 of a rank; append of 1,000; million searched a second; disk, GB",
            rows,
        ),
        f"A search reads all lines: to find nothing in {short(last.level)} lines takes "
        f"{last.level / last.searched_per_second:,.0f} s of processor time (calculated from its first seconds). A "
        f"million lines take {1e6 * last.disk_bytes / last.level / 1e6:.0f} MB and, if ranks print slowly, "
        f"{last.merged_cpu_seconds:.1f} s of a worker to merge.",
    ]


def _viewers(found: Found) -> list[str]:
    last = found.viewers[-1]
    rows = (
        (
            f"{each.level:,}",
            f"{each.connect_cpu_ms:.1f}",
            f"{each.frame_cpu_ms:.2f}",
            f"{cores_of(each):.2f}",
            f"{max(0.0, each.memory_kb):.0f}",
            f"{each.missing}",
        )
        for each in found.viewers
    )
    calculated = "".join(
        f" {level:,} viewers were not measured: at the cost of {last.level:,} they take "
        f"{level * BATCHES_PER_SECOND * last.frame_cpu_ms / 1000:.1f} cores of web processes and "
        f"{level * last.memory_kb / 1e6:.1f} GB of memory (calculated)."
        for level in found.missed("viewers")
    )
    return [
        "## Viewers",
        "Browsers that show one log, to which an update a second comes, over two web processes. The programs that play "
        "the browsers run on the same machine, so how late a line is says nothing here; the processor time is that of "
        f"the web processes alone.{calculated}",
        "![Cores of web by the number of viewers](img/scale-viewers.svg)",
        _table(
            "viewers; to connect, CPU ms; an update, CPU ms; cores of web; memory, kB a viewer; lines missed",
            rows,
        ),
    ]


def _round(value: float) -> int:
    """Two digits that count."""
    digits = 10 ** max(0, math.floor(math.log10(value)) - 1)
    return round(value / digits) * digits
