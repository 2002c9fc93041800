"""How fast log lines go from a runner's batch over HTTP to disk and to readers, beside COPY of the same lines as rows.

Both commit durably per 1,000 lines, in turns, against the same PostgreSQL; one web process takes the batches in, from
one stream and from four. `python -m benchmarks.logs_ingest` writes benchmarks/reports/logs_ingest.md.
"""

from __future__ import annotations

import http.client
import os
import statistics
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks import database
from benchmarks.log_text import batches, texts
from benchmarks.rows import Row, finish, size

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
os.environ["TRAINMASTER_SECRET_KEY"] = "benchmark"
os.environ["TRAINMASTER_LOG_LEVEL"] = "WARNING"

LINES = size("LINES", 100_000, quick=50_000)
ROUNDS = size("ROUNDS", 5, quick=2)
RANKS = 8
LINES_PER_BATCH = 1000
#: times COPY of rows that either way must reach
FLOOR = 2.0
REPORT = ROOT / "benchmarks" / "reports" / "logs_ingest.md"


@dataclass
class Round:
    """Lines per second, and milliseconds of single batches."""

    lines_per_second: float
    batches_ms: list[float]
    web_cpu_ms_per_batch: float


def ship(url: str, member: Any, shipped: list[tuple[int, bytes]], took: list[float]) -> None:
    """Send one stream's batches one after the other, as a runner does; milliseconds of each answer go to `took`."""
    from tests.rig.rows import RUN_TOKEN

    parts = urlsplit(url)
    link = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    headers = {"Authorization": f"Bearer {RUN_TOKEN}", "Content-Encoding": "gzip"}
    for offset, body in shipped:
        begin = time.perf_counter()
        path = f"/runner/v1/streams/{member.allocation_id}/{member.index}?offset={offset}"
        link.request("POST", path, body, headers)
        answer = link.getresponse()
        said = answer.read()
        took.append(1000 * (time.perf_counter() - begin))
        assert answer.status == 200, said
    link.close()


def ingest(web: Any, shipped: list[tuple[int, bytes]], streams: int) -> Round:
    """Ship the same batches in `streams` streams of different tasks, and see that all of it can be read."""
    from logs import read
    from tests.rig.rows import make_gang

    members = [make_gang()[0] for _ in range(streams)]
    took: list[float] = []
    threads = [threading.Thread(target=ship, args=(web.url, member, shipped, took)) for member in members]
    cpu, begin = cpu_seconds(web.pid), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin
    cpu = cpu_seconds(web.pid) - cpu
    lines = len(shipped) * LINES_PER_BATCH
    assert all(read.last_number(member.allocation.task_id) == lines for member in members)
    return Round(streams * lines / seconds, took, 1000 * cpu / len(took))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def copy_rows(lines: list[str]) -> Round:
    """The yardstick: COPY into a table with a row per line, a durable commit per 1,000."""
    from django.db import connection

    took = []
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE yardstick (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, task text, rank int,"
            " at float8, line text)"
        )
        cursor.execute("CREATE INDEX ON yardstick (task, rank, id)")
        for start in range(0, len(lines), LINES_PER_BATCH):
            begin = time.perf_counter()
            with cursor.copy("COPY yardstick (task, rank, at, line) FROM STDIN") as copy:
                for i, text in enumerate(lines[start : start + LINES_PER_BATCH]):
                    copy.write_row(("task", i % RANKS, 1.0, text))
            took.append(1000 * (time.perf_counter() - begin))
        cursor.execute("DROP TABLE yardstick")
    return Round(1000 * len(lines) / sum(took), took, 0.0)


def report(copied: list[Round], one: list[Round], four: list[Round], load: float) -> str:
    def row(name: str, rounds: list[Round]) -> str:
        rates = [each.lines_per_second for each in rounds]
        ratios = [
            each.lines_per_second / beside.lines_per_second
            for each, beside in zip(rounds, copied, strict=True)
        ]
        answers = sorted(took for each in rounds for took in each.batches_ms)
        cpu = statistics.median(each.web_cpu_ms_per_batch for each in rounds)
        return (
            f"| {name} | {statistics.median(rates):,.0f} [{min(rates):,.0f}-{max(rates):,.0f}] | "
            f"{statistics.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}] | "
            f"{statistics.median(answers):.1f} | {answers[int(len(answers) * 0.95)]:.1f} | {cpu:.2f} |"
        )

    return "\n".join(
        [
            "# Log lines over HTTP beside COPY of rows",
            "",
            f"{LINES:,} lines of {RANKS} ranks in batches of {LINES_PER_BATCH:,}, a durable commit each, {ROUNDS} "
            f"rounds in turns on {os.cpu_count()} cores at a load of {load:.1f}; one web process. The clients, "
            f"PostgreSQL and the web process share the cores. At least {FLOOR:g} times COPY is wanted. "
            "Medians [least-most].",
            "",
            "| way | lines/s | times COPY of the round | batch ms, median | p95 | CPU of the web process, ms a batch |",
            "|---|---|---|---|---|---|",
            row("COPY of rows", copied),
            row("one stream", one),
            row("four streams", four),
            "",
        ]
    )


def main() -> int:
    from tests.rig.parts import private_folder

    with ExitStack() as stack:
        folders = [stack.enter_context(private_folder(name)) for name in ("postgres", "redis", "web")]
        stack.enter_context(database.parts(folders[0], folders[1]))
        from tests.rig.web import running_web

        variables = {"TRAINMASTER_LOG_LEVEL": "WARNING", "TRAINMASTER_LOG_BYTES_PER_SECOND": "1e12"}
        web = stack.enter_context(running_web(folders[2], **variables))
        lines = texts(LINES)
        shipped = batches(lines, RANKS, LINES_PER_BATCH)
        ingest(web, shipped[:20], 4)  # connections and code are warm
        copied, one, four = [], [], []
        load = os.getloadavg()[0]
        for _ in range(ROUNDS):
            copied.append(copy_rows(lines))
            one.append(ingest(web, shipped, 1))
            four.append(ingest(web, shipped[: len(shipped) // 4], 4))
        load = max(load, os.getloadavg()[0])
        text = report(copied, one, four, load)
        found = []
        for name, rounds in (("one stream", one), ("four streams", four)):
            pairs = zip(rounds, copied, strict=True)
            ratio = statistics.median(
                each.lines_per_second / beside.lines_per_second for each, beside in pairs
            )
            found.append(Row(f"log lines/s, {name}", ratio, "x COPY of rows", least=FLOOR))
        return finish(REPORT, text, found)


if __name__ == "__main__":
    sys.exit(main())
