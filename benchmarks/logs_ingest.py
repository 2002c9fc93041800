"""How fast log lines go from a runner's batch over HTTP to disk and to a browser's socket, on this machine.

    python -m benchmarks.logs_ingest [--lines 200000] [--ranks 8]

Starts a PostgreSQL (durable commits), a Redis and one web process of its own in a temporary folder, and prints
one JSON object. The yardstick in the same run: COPY of the same lines as rows, a commit per 1,000.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import database

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
os.environ["TRAINMASTER_SECRET_KEY"] = "benchmark"
os.environ["TRAINMASTER_LOG_LEVEL"] = "WARNING"

LINES_PER_BATCH = 5000  # about what fills the runner's 1 MiB
LATENCY_LINES_PER_SECOND = 5000
LATENCY_SECONDS = 10


def texts(count: int) -> list[str]:
    """Lines of about 100 bytes, as a training prints them."""
    chance = random.Random(1)
    return [
        f"epoch {i // 1000} step {i} loss {chance.random():.6f} lr {chance.random():.3e} "
        f"throughput {chance.randrange(10**6)} samples/s grad_norm {chance.random():.4f}"
        for i in range(count)
    ]


def batches(lines: list[str], ranks: int) -> list[tuple[int, bytes, int]]:
    """(offset, gzipped batch, lines) as a runner ships them."""
    made, offset = [], 0
    for start in range(0, len(lines), LINES_PER_BATCH):
        part = lines[start : start + LINES_PER_BATCH]
        body = b"".join(
            json.dumps(
                {"k": "log", "f": f"rank{i % ranks}.stdout", "e": offset + i, "t": time.time(), "r": i % ranks,
                 "s": "stdout", "l": None, "m": text}
            ).encode()
            + b"\n"
            for i, text in enumerate(part)
        )  # fmt: skip
        made.append((offset, gzip.compress(body, 1), len(part)))
        offset += len(body)
    return made


def ship(url: str, member: Any, shipped: list[tuple[int, bytes, int]]) -> list[float]:
    """Send one stream's batches one after the other; seconds of each answer."""
    import httpx

    from tests.rig.rows import RUN_TOKEN

    headers = {"Authorization": f"Bearer {RUN_TOKEN}", "Content-Encoding": "gzip"}
    took = []
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        for offset, body, _ in shipped:
            begin = time.perf_counter()
            path = f"/runner/v1/streams/{member.allocation_id}/{member.index}?offset={offset}"
            answer = client.post(path, content=body)
            took.append(time.perf_counter() - begin)
            assert answer.status_code == 200, answer.text
    return took


def ingest(url: str, lines: list[str], ranks: int, streams: int) -> dict[str, float]:
    """Lines per second that one web process stores from this many streams of different tasks."""
    from tests.rig.rows import make_gang

    members = [make_gang()[0] for _ in range(streams)]
    shipped = batches(lines, ranks)
    took: list[float] = []
    threads = [
        threading.Thread(target=lambda member=member: took.extend(ship(url, member, shipped)))
        for member in members
    ]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin
    return {
        "lines_per_second": round(streams * len(lines) / seconds),
        "batch_p50_ms": round(1000 * statistics.median(took), 1),
        "batch_p95_ms": round(1000 * sorted(took)[int(len(took) * 0.95)], 1),
        **({"stored_bytes_per_raw_byte": stored_ratio(members[0], lines)} if streams == 1 else {}),
    }


def stored_ratio(member: Any, lines: list[str]) -> float:
    from django.db import connection

    task_id = member.allocation.task_id
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(pg_column_size(data) + 120) FROM logs_chunk WHERE task_id = %s", [task_id])
        stored = cursor.fetchone()[0]
    return round(float(stored) / sum(len(line) + 1 for line in lines), 3)


def copy_rows(lines: list[str]) -> dict[str, float]:
    """The yardstick: COPY into a table with a row per line, a durable commit per 1,000."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE yardstick (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, task text, rank int,"
            " at float8, line text)"
        )
        cursor.execute("CREATE INDEX ON yardstick (task, rank, id)")
        begin = time.perf_counter()
        for start in range(0, len(lines), 1000):
            with cursor.copy("COPY yardstick (task, rank, at, line) FROM STDIN") as copy:
                for i, text in enumerate(lines[start : start + 1000]):
                    copy.write_row(("task", i % 8, 1.0, text))
        seconds = time.perf_counter() - begin
        cursor.execute("DROP TABLE yardstick")
    return {"lines_per_second": round(len(lines) / seconds)}


def reads(lines: list[str], ranks: int) -> dict[str, float]:
    """Reading in this process: the last page of one rank, and a substring over the whole log."""
    from logs import read
    from logs.models import TaskLog

    task_id = TaskLog.objects.order_by("-next_line").values_list("pk", flat=True)[0]
    took = []
    for _ in range(20):
        begin = time.perf_counter()
        read.tail(task_id, read.Filters(ranks=frozenset({ranks - 1})), 500)
        took.append(time.perf_counter() - begin)
    begin, after, found = time.perf_counter(), 0, 0
    while True:
        page = read.forward(task_id, after, read.Filters(text="step 1999 "))
        found, after = found + len(page.lines), page.upto
        if page.done:
            break
    seconds = time.perf_counter() - begin
    return {
        "last_500_of_a_rank_ms": round(1000 * statistics.median(took), 1),
        "substring_lines_per_second": round(read.last_number(task_id) / seconds),
    }


def tail_latency(web: Any) -> dict[str, float]:
    """From the runner's POST to the line in a viewer's frame, at 5,000 lines/s in 20 batches a second."""
    from websockets.sync.client import connect

    from accounts.models import LoginToken
    from tests.rig.rows import make_gang

    member = make_gang()[0]
    token = LoginToken.issue(member.allocation.task.job.owner)
    url = f"{web.socket_url}/ws/tasks/{member.allocation.task_id}/logs"
    total = LATENCY_LINES_PER_SECOND * LATENCY_SECONDS
    latencies: list[float] = []
    with connect(url, additional_headers={"Authorization": f"Bearer {token}"}, max_size=2**24) as socket:
        socket.send(json.dumps({"after": 0}))

        def watch() -> None:
            while len(latencies) < total:
                frame = json.loads(socket.recv(timeout=60))
                now = time.time()
                latencies.extend(now - row[1] for row in frame.get("lines", []))

        watcher = threading.Thread(target=watch)
        watcher.start()
        _pace(web.url, member, total)
        watcher.join(60)
    latencies.sort()
    return {
        "lines": len(latencies),
        "p50_ms": round(1000 * statistics.median(latencies), 1),
        "p99_ms": round(1000 * latencies[int(len(latencies) * 0.99)], 1),
    }


def _pace(url: str, member: Any, total: int) -> None:
    """Ship `total` lines at an even pace, each batch stamped when it is sent."""
    per_batch, offset = LATENCY_LINES_PER_SECOND // 20, 0
    begin = time.monotonic()
    lines = texts(per_batch)
    for number in range(total // per_batch):
        time.sleep(max(0.0, begin + number / 20 - time.monotonic()))
        (_, packed, _), *_ = batches(lines, 8)
        ship(url, member, [(offset, packed, per_batch)])
        offset += len(gzip.decompress(packed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--ranks", type=int, default=8)
    options = parser.parse_args()
    from tests.rig.parts import private_folder

    with ExitStack() as stack:
        folders = [stack.enter_context(private_folder(name)) for name in ("postgres", "redis", "web")]
        stack.enter_context(database.parts(folders[0], folders[1]))
        from tests.rig.web import running_web

        web = stack.enter_context(running_web(folders[2], TRAINMASTER_LOG_LEVEL="WARNING"))
        lines = texts(options.lines)
        report: dict[str, Any] = {
            "lines": len(lines),
            "bytes_per_line": round(sum(map(len, lines)) / len(lines)),
        }
        report["copy_rows_per_1000"] = copy_rows(lines)
        report["one_stream"] = ingest(web.url, lines, options.ranks, 1)
        report["four_streams"] = ingest(web.url, lines[: len(lines) // 4], options.ranks, 4)
        report["reads"] = reads(lines, options.ranks)
        report["tail"] = tail_latency(web)
        ratio = report["one_stream"]["lines_per_second"] / report["copy_rows_per_1000"]["lines_per_second"]
        report["ingest_per_copy"] = round(ratio, 2)
        print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
