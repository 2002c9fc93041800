"""Up to 1,000 hosts of 8 GPUs that measure themselves once a second, into one web process and one PostgreSQL.

`python -m benchmarks.samples_ingest` writes benchmarks/reports/samples_ingest.md. The hosts are simulated: each has a
stream and a phase of its own, and sends the record that a runner makes of ten seconds, gzipped, when it
is due; a few threads do it for all of them. Hosts are added until answers come too late. HOSTS="100 500" and SECONDS=20
shorten it.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import database
from benchmarks.logs_ingest import cpu_seconds
from benchmarks.rows import QUICK, Row, finish, size
from benchmarks.simulated_hosts import (
    BEAT_SECONDS,
    CLIENTS,
    COLUMNS,
    GPUS,
    RANKS,
    RECORD_SECONDS,
    Answers,
    Load,
    SimulatedHost,
    record,
)

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
os.environ["TRAINMASTER_SECRET_KEY"] = "benchmark"
os.environ["TRAINMASTER_LOG_LEVEL"] = "WARNING"

LEVELS = [int(word) for word in os.environ.get("HOSTS", "250" if QUICK else "100 250 500 750 1000").split()]
SECONDS = float(size("SECONDS", 30, quick=5))
HOURS = size("SAMPLE_HOURS", 4, quick=1)
HOSTS_PER_GANG = 8
#: A level is kept up with when 95 of 100 answers have come within this time of the record's moment.
LATE_SECONDS = 1.0
REPORT = ROOT / "benchmarks" / "reports" / "samples_ingest.md"


@dataclass
class Level:
    """What so many hosts came to."""

    hosts: int
    with_beats: bool
    answers: Answers
    web_cpu: float = 0.0  # seconds
    postgres_cpu: float = 0.0
    client_cpu: float = 0.0
    load: float = 0.0
    fsync_ms: float = 0.0

    @property
    def p95(self) -> float:
        return sorted(self.answers.late)[int(len(self.answers.late) * 0.95)]

    @property
    def requests(self) -> int:
        return len(self.answers.late) + self.answers.beats

    @property
    def keeps_up(self) -> bool:
        return self.p95 <= LATE_SECONDS and not self.answers.refused


def postgres_cpu() -> float:
    """Seconds of all processes of the benchmark's PostgreSQL."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = int(cursor.fetchone()[0])
    parent = _stat(pid)[1]
    total = cpu_seconds(int(parent))
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields and fields[1] == parent:
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    # backends that have ended are in the children's time of the parent
    ended = _stat(int(parent))
    return total + (int(ended[13]) + int(ended[14])) / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def measure(hosts: list[SimulatedHost], web_pid: int, beats: bool) -> Level:
    load = os.getloadavg()[0]
    before = cpu_seconds(web_pid), postgres_cpu(), time.process_time()
    level = Level(len(hosts), beats, Load(hosts, SECONDS, beats).run())
    level.web_cpu = cpu_seconds(web_pid) - before[0]
    level.postgres_cpu = postgres_cpu() - before[1]
    level.client_cpu = time.process_time() - before[2]
    level.load = max(load, os.getloadavg()[0])
    level.fsync_ms = fsync_ms()
    return level


@dataclass
class Afterwards:
    """What a host's stored samples cost: milliseconds, and bytes."""

    merge_ms: float
    hour_ms: float
    hours_ms: float
    shipped_bytes: float
    points_bytes_an_hour: float
    minutes_bytes_an_hour: float


def afterwards() -> Afterwards:
    """Some hours of one host, written and merged as it would have been, and read as a chart does."""
    from django.db import connection

    from metrics import sample_store, samples
    from tests.rig.rows import make_gang

    member = make_gang()[0]
    task_id, gpus = member.allocation.task_id, [f"GPU-{gpu:032x}" for gpu in range(GPUS)]
    end = time.time() // sample_store.BLOCK_SECONDS * sample_store.BLOCK_SECONDS
    blocks = HOURS * 4
    made = [json.loads(record(gpus, 0.0)) for _ in range(40)]
    merging = []
    shipped = 0.0
    for block in range(blocks):
        start = end - (blocks - block) * sample_store.BLOCK_SECONDS
        for part in range(sample_store.BLOCK_SECONDS // RECORD_SECONDS):
            times = [start + part * RECORD_SECONDS + second for second in range(RECORD_SECONDS)]
            sample_store.store(task_id, member.host.pk, "h", [{**random.choice(made), "t": times}])
        if block == 0:
            shipped = _bytes(connection, task_id, 0) / (sample_store.BLOCK_SECONDS // RECORD_SECONDS)
        begin = time.process_time()
        sample_store.merge(task_id, member.host.pk, start)
        merging.append(1000 * (time.process_time() - begin))

    def took(seconds: float) -> float:
        answers = []
        for _ in range(5):
            begin = time.perf_counter()
            found = samples.of_task(task_id, ["gpu_util"], first_time=end - seconds, last_time=end)
            answers.append(1000 * (time.perf_counter() - begin))
            assert len(found) == GPUS
        return statistics.median(answers)

    return Afterwards(
        statistics.median(merging),
        took(3600),
        took(HOURS * 3600),
        shipped,
        _bytes(connection, task_id, 1) / HOURS,
        _bytes(connection, task_id, 2) / HOURS,
    )


def _bytes(connection: Any, task_id: str, grain: int) -> float:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_column_size(chunk.*)) FROM metrics_samplechunk chunk WHERE task_id = %s AND grain = %s",
            [task_id, grain],
        )
        return float(cursor.fetchone()[0])


def row(level: Level) -> str:
    batches = len(level.answers.late)
    values = batches * RECORD_SECONDS * COLUMNS / level.answers.seconds
    late = [
        1000 * seconds
        for seconds in (statistics.median(level.answers.late), level.p95, max(level.answers.late))
    ]
    cells = [
        f"{level.hosts:,}{' with heartbeats' if level.with_beats else ''}",
        f"{batches / level.answers.seconds:,.0f}",
        f"{values:,.0f}",
        *(f"{ms:,.0f}" for ms in late),
    ]
    cells.append(str(level.answers.refused))
    for seconds in (level.web_cpu, level.postgres_cpu):
        cells.append(f"{seconds / level.answers.seconds:.2f} ({1000 * seconds / level.requests:.1f})")
    cells += [
        f"{level.client_cpu / level.answers.seconds:.2f}",
        f"{level.load:.1f}",
        "yes" if level.keeps_up else "no",
    ]
    return f"| {' | '.join(cells)} |"


def verdict(levels: list[Level]) -> str:
    """How many it keeps up with, what that costs, and what was missing where it did not."""
    alone = [level for level in levels if not level.with_beats]
    beating = [level for level in levels if level.with_beats]
    web = min(level.web_cpu / level.requests for level in alone)
    both = min((level.web_cpu + level.postgres_cpu) / level.requests for level in alone)
    sentences = [
        f"Samples alone: {_kept_up(alone)} A batch took at least {1000 * web:.1f} ms of the web process and "
        f"{1000 * both:.1f} ms of it and PostgreSQL together: two cores of their own would be full at "
        f"{2 * RECORD_SECONDS / both:,.0f} hosts, one web process (one core of Python) at {RECORD_SECONDS / web:,.0f}.",
        f"With a heartbeat of each host every {BEAT_SECONDS} s: {_kept_up(beating)}",
    ]
    late = next((level for level in levels if not level.keeps_up), None)
    if late is not None:
        got = (late.web_cpu + late.postgres_cpu) / late.answers.seconds
        sentences.append(
            f"Where it did not, at {late.hosts:,} hosts, web process and PostgreSQL got {got:.2f} cores at a load of "
            f"{late.load:.0f}, and an fsync of the disk took {late.fsync_ms:.1f} ms."
        )
    return " ".join(sentences)


def _kept_up(levels: list[Level]) -> str:
    best = max((level.hosts for level in levels if level.keeps_up), default=0)
    if not best:
        return f"it does not keep up with {min(level.hosts for level in levels):,} hosts, the fewest tried."
    return f"it keeps up with {best:,} hosts, of those tried."


def fsync_ms() -> float:
    """What a durable commit waits for here and now."""
    took = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(30):
            file.write(bytes(8192))
            file.flush()
            begin = time.perf_counter()
            os.fsync(file.fileno())
            took.append(1000 * (time.perf_counter() - begin))
    return statistics.median(took)


def report(levels: list[Level], after: Afterwards) -> str:
    heads = [
        "hosts", "batches/s", "values/s", "ms to the answer, median", "p95", "most", "refused",
        "web: cores (ms a request)", "PostgreSQL: cores (ms a request)", "clients: cores", "load", "keeps up",
    ]  # fmt: skip
    return "\n".join(
        [
            "# Samples of many hosts",
            "",
            f"Simulated hosts of {GPUS} GPUs and {RANKS} ranks, {COLUMNS} columns at 1 Hz, a record every "
            f"{RECORD_SECONDS} s, for {SECONDS:g} s a level, {CLIENTS} requests at once at most; one web process "
            "and one PostgreSQL (durable commits). They, the clients and whatever else ran shared "
            f"{os.cpu_count()} cores. Kept up: 95 of 100 answers within {LATE_SECONDS:g} s of the record's moment, "
            "none refused.",
            "",
            f"| {' | '.join(heads)} |",
            "|---" * len(heads) + "|",
            *(row(level) for level in levels),
            "",
            verdict(levels),
            "",
            f"A quarter of an hour of one host is merged in {after.merge_ms:.0f} ms of CPU of a worker, so 1,000 "
            f"hosts take {100 * after.merge_ms / 900:.1f} % of a core. A batch is a row of "
            f"{after.shipped_bytes:,.0f} bytes; an hour of a host is {after.points_bytes_an_hour / 1000:,.0f} kB of "
            f"points, kept for two days, and {after.minutes_bytes_an_hour / 1000:,.0f} kB of minutes. A chart of its "
            f"{GPUS} GPUs' utilization is read in {after.hour_ms:.0f} ms for an hour and {after.hours_ms:.0f} ms for "
            f"{HOURS} hours.",
            "",
        ]
    )


def main() -> int:
    from tests.rig.parts import private_folder

    with ExitStack() as stack:
        folders = [stack.enter_context(private_folder(name)) for name in ("postgres", "redis", "web")]
        stack.enter_context(database.parts(folders[0], folders[1]))
        from jobs.models import Member
        from jobs.states import MemberState
        from tests.rig.rows import make_gang
        from tests.rig.web import running_web

        web = stack.enter_context(running_web(folders[2], TRAINMASTER_LOG_LEVEL="WARNING"))
        gangs = [make_gang(HOSTS_PER_GANG) for _ in range(-(-max(LEVELS) // HOSTS_PER_GANG))]
        Member.objects.update(state=MemberState.RUNNING)  # or the first heartbeats would begin their runs
        hosts = [SimulatedHost(web.url, member) for gang in gangs for member in gang]
        Load(hosts[:CLIENTS], 1, True).run()  # connections and code are warm
        levels = [measure(hosts[:count], web.pid, False) for count in LEVELS]
        levels += [measure(hosts[:count], web.pid, True) for count in LEVELS]
        found = []
        for level in levels:
            beats = " with heartbeats" if level.with_beats else ""
            found.append(Row(f"late, {level.hosts:,} hosts{beats}, p95", 1000 * level.p95, "ms"))
        return finish(REPORT, report(levels, afterwards()), found)


if __name__ == "__main__":
    sys.exit(main())
