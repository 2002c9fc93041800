"""Up to 1,000 hosts of 8 GPUs that measure themselves once a second, into one web process and one PostgreSQL.

`python -m benchmarks.samples_ingest` writes benchmarks/reports/samples_ingest.md. The hosts are simulated: each has a
stream and a phase of its own, and sends the record that a runner makes of ten seconds, gzipped, when it
is due; a few threads do it for all of them. Hosts are added until answers come too late. HOSTS="100 500" and SECONDS=20
shorten it.
"""

from __future__ import annotations

import gzip
import heapq
import http.client
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks import database
from benchmarks.logs_ingest import cpu_seconds

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
os.environ["TRAINMASTER_SECRET_KEY"] = "benchmark"
os.environ["TRAINMASTER_LOG_LEVEL"] = "WARNING"

LEVELS = [int(word) for word in os.environ.get("HOSTS", "100 250 500 750 1000").split()]
SECONDS = float(os.environ.get("SECONDS", "30"))
GPUS = RANKS = 8
RECORD_SECONDS = 10
BEAT_SECONDS = 5
HOURS = 4
COLUMNS = GPUS * 5 + 7 + RANKS * 2
HOSTS_PER_GANG = 8
CLIENTS = 16
#: A level is kept up with when 95 of 100 answers have come within this time of the record's moment.
LATE_SECONDS = 1.0
REPORT = ROOT / "benchmarks" / "reports" / "samples_ingest.md"


class SimulatedHost:
    """One member of a gang and its place in the stream."""

    def __init__(self, url: str, member: Any) -> None:
        from tests.rig.rows import RUN_TOKEN

        parts = urlsplit(url)
        self._link = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
        self._stream = f"/runner/v1/streams/{member.allocation_id}/{member.index}"
        self._headers = {"Authorization": f"Bearer {RUN_TOKEN}"}
        self._gpus = [f"GPU-{member.pk:08x}-0000-4000-8000-{gpu:012x}" for gpu in range(GPUS)]
        self._offset = 0
        self.busy = threading.Lock()

    def ship(self) -> int:
        """What was measured in the ten seconds before; the status of the answer."""
        body = record(self._gpus, time.time())
        packed = gzip.compress(body, 1)
        status = self._post(f"{self._stream}?offset={self._offset}", packed, {"Content-Encoding": "gzip"})
        if status == 200:
            self._offset += len(body)
        return status

    def beat(self) -> int:
        """The heartbeat, with the pulse of each rank; the status of the answer."""
        pulse = [
            {
                "rank": rank,
                "state": "R",
                "pid": 1000 + rank,
                "state_seconds": 7.1,
                "cpu": 1.02,
                "idle_seconds": 0.0,
                "gpu": 97,
            }
            for rank in range(RANKS)
        ]
        body = {
            "state": "running",
            "spool_bytes": 0,
            "unshipped_bytes": 0,
            "dropped_bytes": 0,
            "pulse": pulse,
        }
        return self._post(f"{self._stream}/heartbeat", json.dumps(body).encode(), {})

    def _post(self, path: str, body: bytes, headers: dict[str, str]) -> int:
        self._link.request("POST", path, body, {**self._headers, **headers})
        answer = self._link.getresponse()
        answer.read()
        self._link.close()  # until the next one the server would have: it keeps idle connections for 5 s
        return answer.status


def record(gpus: list[str], until: float) -> bytes:
    """As the runner makes it: 8 GPUs, the host and 8 ranks, whose values come from every second look."""
    from trainmaster.runner.sampling import samples_record

    chance = random.Random()
    times = [
        round(until - RECORD_SECONDS + second + chance.random() / 1000, 3) for second in range(RECORD_SECONDS)
    ]

    def column(low: float, high: float, digits: int | None) -> list[float | None]:
        return [round(chance.uniform(low, high), digits) for _ in times]

    columns: dict[str, list[float | None]] = {}
    for gpu in gpus:
        columns[f"gpu_util/{gpu}"] = column(60, 100, None)
        columns[f"gpu_memory_used/{gpu}"] = [61_847_529_062.0] * RECORD_SECONDS
        columns[f"gpu_memory_free/{gpu}"] = [24_051_816_858.0] * RECORD_SECONDS
        columns[f"gpu_temperature/{gpu}"] = column(58, 64, None)
        columns[f"gpu_power/{gpu}"] = column(400, 690, 1)
    columns["cpu_util_simple"] = column(10, 40, 1)
    columns["memory_free"] = column(4e11, 4.1e11, None)
    for name in (
        "disk_iops",
        "disk_throughput_read",
        "disk_throughput_write",
        "net_throughput_sent",
        "net_throughput_recv",
    ):
        columns[name] = column(0, 1e8, 1)
    for rank in range(RANKS):
        for name, high, digits in (("rank_memory", 9e9, None), ("rank_cpu", 2.0, 2)):
            values = column(0, high, digits)
            columns[f"{name}/{rank}"] = [value if index % 2 else None for index, value in enumerate(values)]
    return samples_record(times, columns)


@dataclass
class Level:
    """What so many hosts came to."""

    hosts: int
    beats: bool
    seconds: float = 0.0
    late: list[float] = field(default_factory=list)  # seconds from a record's moment to its answer
    refused: int = 0
    web_cpu: float = 0.0  # seconds
    postgres_cpu: float = 0.0
    client_cpu: float = 0.0
    load: float = 0.0
    fsync_ms: float = 0.0

    @property
    def p95(self) -> float:
        return sorted(self.late)[int(len(self.late) * 0.95)]

    @property
    def keeps_up(self) -> bool:
        return self.p95 <= LATE_SECONDS and not self.refused


class Load:
    """Does for each host what is due, for a while; a few threads, each with one request at a time."""

    def __init__(self, hosts: list[SimulatedHost], seconds: float, beats: bool) -> None:
        begin = time.monotonic()
        self._until = begin + seconds
        self._due: list[tuple[float, int, bool]] = []
        for index in range(len(hosts)):
            self._due.append((begin + RECORD_SECONDS * index / len(hosts), index, False))
            if beats:
                self._due.append((begin + BEAT_SECONDS * random.random(), index, True))
        heapq.heapify(self._due)
        self._hosts = hosts
        self._lock = threading.Lock()
        self.level = Level(len(hosts), beats)

    def run(self) -> Level:
        threads = [threading.Thread(target=self._work) for _ in range(CLIENTS)]
        begin = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.level.seconds = time.monotonic() - begin
        return self.level

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._due:
                    return
                due, index, is_beat = heapq.heappop(self._due)
            time.sleep(max(0.0, due - time.monotonic()))
            host = self._hosts[index]
            with host.busy:
                status = host.beat() if is_beat else host.ship()
            again = due + (BEAT_SECONDS if is_beat else RECORD_SECONDS)
            with self._lock:
                self.level.refused += status != 200
                if not is_beat:
                    self.level.late.append(time.monotonic() - due)
                if again < self._until:
                    heapq.heappush(self._due, (again, index, is_beat))


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
    level = Load(hosts, SECONDS, beats).run()
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

    from metrics import sample_intake, sample_merging, samples
    from tests.rig.rows import make_gang

    member = make_gang()[0]
    task_id, gpus = member.allocation.task_id, [f"GPU-{gpu:032x}" for gpu in range(GPUS)]
    end = time.time() // sample_merging.BLOCK_SECONDS * sample_merging.BLOCK_SECONDS
    blocks = HOURS * 4
    made = [json.loads(record(gpus, 0.0)) for _ in range(40)]
    merging = []
    shipped = 0.0
    for block in range(blocks):
        start = end - (blocks - block) * sample_merging.BLOCK_SECONDS
        for part in range(sample_merging.BLOCK_SECONDS // RECORD_SECONDS):
            times = [start + part * RECORD_SECONDS + second for second in range(RECORD_SECONDS)]
            sample_intake.store(task_id, member.host.pk, "h", [{**random.choice(made), "t": times}])
        if block == 0:
            shipped = _bytes(connection, task_id, 0) / (sample_merging.BLOCK_SECONDS // RECORD_SECONDS)
        begin = time.process_time()
        sample_merging.merge(task_id, member.host.pk, start)
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
    batches = len(level.late)
    values = batches * RECORD_SECONDS * COLUMNS / level.seconds
    late = [1000 * seconds for seconds in (statistics.median(level.late), level.p95, max(level.late))]
    cells = [
        f"{level.hosts:,}{' with heartbeats' if level.beats else ''}",
        f"{batches / level.seconds:,.0f}",
        f"{values:,.0f}",
        *(f"{ms:,.0f}" for ms in late),
    ]
    cells.append(str(level.refused))
    for seconds in (level.web_cpu, level.postgres_cpu):
        cells.append(f"{seconds / level.seconds:.2f} ({1000 * seconds / batches:.1f})")
    cells += [
        f"{level.client_cpu / level.seconds:.2f}",
        f"{level.load:.1f}",
        "yes" if level.keeps_up else "no",
    ]
    return f"| {' | '.join(cells)} |"


def verdict(levels: list[Level]) -> str:
    alone = [level for level in levels if not level.beats]
    best = max((level.hosts for level in alone if level.keeps_up), default=0)
    web = min(level.web_cpu / len(level.late) for level in alone)
    both = min((level.web_cpu + level.postgres_cpu) / len(level.late) for level in alone)
    late = next((level for level in alone if not level.keeps_up), None)
    why = ""
    if late is not None:
        got = (late.web_cpu + late.postgres_cpu) / late.seconds
        why = (
            f" With {late.hosts:,} hosts, which need {late.hosts / RECORD_SECONDS * both:.2f} cores, both got "
            f"{got:.2f} at a load of {late.load:.0f}, and an fsync of the disk took {late.fsync_ms:.1f} ms."
        )
    return (
        f"Samples alone: it keeps up with {best:,} hosts, of those tried. A batch took at least {1000 * web:.1f} ms of "
        f"the web process and {1000 * both:.1f} ms of it and PostgreSQL together: two cores of their own would be full "
        f"at {2 * RECORD_SECONDS / both:,.0f} hosts, one web process (one core of Python) at "
        f"{RECORD_SECONDS / web:,.0f}.{why}"
    )


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
        "web: cores (ms a batch)", "PostgreSQL: cores (ms a batch)", "clients: cores", "load", "keeps up",
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
            f"{GPUS} GPUs' utilisation is read in {after.hour_ms:.0f} ms for an hour and {after.hours_ms:.0f} ms for "
            f"{HOURS} hours.",
            "",
        ]
    )


def main() -> None:
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
        levels += [measure(hosts[:count], web.pid, True) for count in LEVELS[-1:]]
        text = report(levels, afterwards())
        REPORT.write_text(text)
        print(text)


if __name__ == "__main__":
    main()
