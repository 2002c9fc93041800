"""Live logs: from a rank's print to the browser, and 100 viewers of one flood beside a plain Redis stream reader.

One web process, its PostgreSQL (durable commits) and Redis, the publisher and the viewers share this machine.
`python -m benchmarks.logs_live` writes benchmarks/reports/logs_live.md.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import database
from benchmarks.print_to_page import LINES_PER_SECOND
from benchmarks.print_to_page import measure as ages
from benchmarks.rows import Row, finish, not_measured, size
from tests.rig.browser import programs

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
os.environ["TRAINMASTER_SECRET_KEY"] = "benchmark"
os.environ["TRAINMASTER_LOG_LEVEL"] = "WARNING"

VIEWERS = size("VIEWERS", 100, quick=10)
FLOOD_LINES = size("FLOOD_LINES", 100_000, quick=10_000)
PLAIN_LINES = FLOOD_LINES // 2
LINES_PER_BATCH = 5000  # about what fills a runner's batch
SLOW_LINES_PER_SECOND, SLOW_SECONDS, SLOW_BATCHES = 100, size("SLOW_SECONDS", 10, quick=4), 20
STREAM = "trainmaster:benchmark:stream"
PAGE_MEDIAN_MS, PAGE_P99_MS = 250.0, 1000.0
RATIO, MEMORY_MB, API_P95_MS, WINDOW_MS = 0.5, 100.0, 300.0, 50.0
REPORT = Path(__file__).parent / "reports" / "logs_live.md"

#: One line an entry, each waited for, as a rank would; with `many` 100 entries a round trip.
PUBLISHER = """
import os, sys, redis
from benchmarks.log_flood import texts
client, key, many = redis.Redis.from_url(os.environ["REDIS_URL"]), os.environ["STREAM"], int(sys.argv[2])
lines = texts(int(sys.argv[1]))
for start in range(0, len(lines), many):
    pipe = client.pipeline(transaction=False)
    for line in lines[start:start + many]:
        pipe.xadd(key, {"line": line})
    pipe.execute()
"""


class Watched:
    """What a process and its API do meanwhile: resident megabytes and milliseconds of an ordinary request."""

    def __init__(self, pid: int, request: Callable[[], None]) -> None:
        self._pid, self._request = pid, request
        for _ in range(5):
            request()  # what is made once for all requests is no growth
        self.before = self.most = self._resident()
        self.took: list[float] = []
        self._cpu = cpu_seconds(pid)

    @contextmanager
    def on(self) -> Iterator[Watched]:
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.05):
                begun = time.perf_counter()
                self._request()
                self.took.append(1000 * (time.perf_counter() - begun))
                self.most = max(self.most, self._resident())

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield self
        finally:
            over.set()
            watcher.join()

    def cpu_seconds(self) -> float:
        return cpu_seconds(self._pid) - self._cpu

    def p95(self) -> float:
        return sorted(self.took)[int(len(self.took) * 0.95)]

    def _resident(self) -> float:
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1024**2


def cpu_seconds(pid: int) -> float:
    """What the process has used of its processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def viewers(
    url: str, lines: int, *options: str, token: str = "", count: int = VIEWERS
) -> Iterator[Callable[[], dict[str, Any]]]:
    """Connected viewers; the function waits for what they have seen."""
    command = [sys.executable, "-m", "benchmarks.live_viewers", "--url", url, "--lines", str(lines),
               "--viewers", str(count), *options]  # fmt: skip
    child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(token + "\n")
    child.stdin.flush()
    if child.stdout.readline().strip() != "ready":
        raise RuntimeError("the viewers could not connect")

    def seen() -> dict[str, Any]:
        text = child.communicate()[0]
        if child.returncode:
            raise RuntimeError("the viewers did not get all lines")
        return dict(json.loads(text))

    try:
        yield seen
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


def flood(web: Any) -> dict[str, Any]:
    """One runner ships as fast as it is answered; everybody watches."""
    from benchmarks.log_flood import shipper, texts

    member, token, request = gang(web)
    url = f"{web.socket_url}/ws/tasks/{member.allocation.task_id}/logs"
    watched = Watched(web.pid, request)
    with viewers(url, FLOOD_LINES, token=token) as seen, watched.on():
        lines = texts(FLOOD_LINES)
        begun = time.time()
        shipper(web.url, member, _run_token()).flood(lines, LINES_PER_BATCH)
        shipped = time.time() - begun
        found = seen()
    seconds = found["last"] - begun
    return {
        "rate": FLOOD_LINES / seconds, "shipped_per_second": FLOOD_LINES / shipped, "missing": found["missing"],
        "frames": found["frames"], "memory_mb": watched.most - watched.before, "p95_ms": watched.p95(),
        "per_cpu_second": FLOOD_LINES / watched.cpu_seconds(), "requests": len(watched.took),
    }  # fmt: skip


def slow(web: Any) -> dict[str, Any]:
    """An even 100 lines a second: how late they are."""
    from benchmarks.log_flood import shipper

    member, token, _ = gang(web)
    url = f"{web.socket_url}/ws/tasks/{member.allocation.task_id}/logs"
    total = SLOW_LINES_PER_SECOND * SLOW_SECONDS
    with viewers(url, total, "--late", token=token) as seen:
        shipper(web.url, member, _run_token()).pace(SLOW_LINES_PER_SECOND, SLOW_BATCHES, total)
        return seen()


def plain_flood(redis_url: str, many: int) -> dict[str, Any]:
    """The yardstick, one line an entry; the publisher sends `many` entries a round trip."""
    with _plain(redis_url) as (url, pid), viewers(url, PLAIN_LINES, "--plain") as seen:
        used = cpu_seconds(pid)
        environment = {**os.environ, "REDIS_URL": redis_url, "STREAM": STREAM}
        command = [sys.executable, "-c", PUBLISHER, str(PLAIN_LINES), str(many)]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        found = seen()
        used = cpu_seconds(pid) - used
    return {
        "rate": PLAIN_LINES / (found["last"] - found["first"]), "per_cpu_second": PLAIN_LINES / used, **found
    }  # fmt: skip


def plain_slow(redis_url: str) -> dict[str, Any]:
    import redis

    from benchmarks.log_flood import paced

    total = SLOW_LINES_PER_SECOND * SLOW_SECONDS
    client = redis.Redis.from_url(redis_url)
    with _plain(redis_url) as (url, _), viewers(url, total, "--plain", "--late") as seen:
        for lines in paced(SLOW_LINES_PER_SECOND, SLOW_BATCHES, total):
            pipe = client.pipeline(transaction=False)
            for line in lines:
                pipe.xadd(STREAM, {"line": line})
            pipe.execute()
        return seen()


@contextmanager
def _plain(redis_url: str) -> Iterator[tuple[str, int]]:
    """The plain reader's address and process."""
    import redis

    from embedded.processes import wait_until
    from tests.rig.parts import end
    from tests.rig.ports import free_port

    redis.Redis.from_url(redis_url).delete(STREAM)
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "benchmarks.plain_stream:application", "--port", str(port),
               "--no-access-log", "--log-level", "warning", "--ws-per-message-deflate", "false"]  # fmt: skip
    child = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "REDIS_URL": redis_url, "STREAM": STREAM})
    try:
        if not wait_until(lambda: _listens(port), 30):
            raise RuntimeError("the plain reader does not listen")
        yield f"ws://127.0.0.1:{port}/", child.pid
    finally:
        import signal

        end(child, signal.SIGTERM)


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _run_token() -> str:
    from tests.rig.rows import RUN_TOKEN

    return RUN_TOKEN


def gang(web: Any) -> tuple[Any, str, Callable[[], None]]:
    """A running gang's member, a login token of its owner, and an ordinary request for its task."""
    import httpx

    from accounts.models import LoginToken
    from tests.rig.rows import make_gang

    member = make_gang()[0]
    token = LoginToken.issue(member.allocation.task.job.owner)
    client = httpx.Client(base_url=web.url, headers={"Authorization": f"Bearer {token}"}, timeout=60)

    def request() -> None:
        client.get(f"/api/v1/tasks/{member.allocation.task_id}").raise_for_status()

    return member, token, request


def fan_out() -> dict[str, Any]:
    """All that needs no hosts, on parts of its own."""
    from tests.rig.parts import private_folder

    with ExitStack() as stack:
        folders = [stack.enter_context(private_folder(name)) for name in ("postgres", "redis", "web")]
        stack.enter_context(database.parts(folders[0], folders[1]))
        from tests.rig.web import running_web

        redis_url = os.environ["REDIS_URL"]
        found = {"plain": plain_flood(redis_url, 1), "plain pipelined": plain_flood(redis_url, 100)}
        with running_web(folders[2]) as web:
            slow(web)  # warm
            found["flood"] = flood(web)
            found["slow"] = slow(web)
        found["plain slow"] = plain_slow(redis_url)
        return found


def compared(found: dict[str, Any], page: list[float]) -> tuple[list[str], list[Row]]:
    """The table's rows, and the figures of `make bench`."""
    ours, calm, plain = found["flood"], found["slow"], found["plain"]
    many, plain_calm = found["plain pipelined"], found["plain slow"]
    ratio, of_many = ours["rate"] / plain["rate"], ours["rate"] / many["rate"]
    of_cpu = ours["per_cpu_second"] / many["per_cpu_second"]
    ordered = sorted(page)
    median, p99 = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
    latest = 2 * plain_calm["p99_ms"] + WINDOW_MS
    goals = [
        median < PAGE_MEDIAN_MS and p99 < PAGE_P99_MS,
        ratio >= RATIO and ours["missing"] == 0,
        ours["memory_mb"] < MEMORY_MB,
        ours["p95_ms"] < API_P95_MS,
        calm["p99_ms"] <= latest,
    ]
    words = ["met" if goal else "missed" for goal in goals]
    table = [
        (f"print to DOM at {LINES_PER_SECOND:,} lines/s, ms", f"median {median:.0f}, p99 {p99:.0f}", "",
         f"median < {PAGE_MEDIAN_MS:.0f}, p99 < {PAGE_P99_MS:.0f}: {words[0]}"),
        (f"flood to {VIEWERS} viewers, lines/s that each got", f"{ours['rate']:,.0f}", f"{plain['rate']:,.0f}",
         f"{ratio:.1f} x; at least {RATIO} x, nothing lost: {words[1]}"),
        ("lines that a viewer missed or got twice", f"{ours['missing']}", "", "0"),
        ("beside a publisher of 100 entries a round trip", f"{ours['rate']:,.0f}", f"{many['rate']:,.0f}",
         f"{of_many:.2f} x"),
        ("lines to all viewers per CPU second of the web process, ingest included",
         f"{ours['per_cpu_second']:,.0f}", f"{many['per_cpu_second']:,.0f}", f"{of_cpu:.2f} x"),
        ("shipped meanwhile, lines/s", f"{ours['shipped_per_second']:,.0f}", "", ""),
        ("growth of the web process, MB", f"{ours['memory_mb']:.0f}", "", f"< {MEMORY_MB:.0f}: {words[2]}"),
        (f"p95 of {ours['requests']} API requests meanwhile, ms", f"{ours['p95_ms']:.0f}", "",
         f"< {API_P95_MS:.0f}: {words[3]}"),
        (f"lateness at {SLOW_LINES_PER_SECOND} lines/s to {VIEWERS} viewers, ms",
         f"median {calm['p50_ms']}, p99 {calm['p99_ms']}", f"median {plain_calm['p50_ms']}, p99 {plain_calm['p99_ms']}",
         f"p99 at most 2 x and the window of {WINDOW_MS:.0f}: {words[4]}"),
    ]  # fmt: skip
    kept = [
        Row(f"flood to {VIEWERS} viewers, lines/s", ratio, "x a plain Redis reader", least=RATIO),
        Row("lines that a viewer missed or got twice", ours["missing"], "lines", most=0),
        Row("growth of the web process", ours["memory_mb"], "MB", most=MEMORY_MB),
        Row("print to DOM, median", median, "ms", goal=PAGE_MEDIAN_MS),
        Row("lateness to the viewers, p99", calm["p99_ms"], "ms", goal=latest),
        Row("API requests meanwhile, p95", ours["p95_ms"], "ms", goal=API_P95_MS),
    ]
    return [f"| {' | '.join(row)} |" for row in table], kept


def main() -> int:
    if programs() is None:
        return not_measured(REPORT, "chromium and chromedriver are not installed")
    before = os.getloadavg()[0]
    page = ages()
    found = fan_out()
    table, kept = compared(found, page)
    text = "\n".join(
        [
            "# Live logs",
            "",
            f"On {os.cpu_count()} cores, load {before:.1f} before and {os.getloadavg()[0]:.1f} after; publisher, "
            "web process, PostgreSQL (durable commits), Redis and viewers share them. The flood is "
            f"{FLOOD_LINES:,} lines of about 100 bytes, shipped in batches of {LINES_PER_BATCH:,} as fast as they are "
            "answered. The plain reader fans one Redis stream out, a line an entry, up to 500 entries a frame, and "
            "stores nothing; its publisher waits for each line. Our lateness counts from the runner's POST, over "
            "the commit; the plain one's from XADD.",
            "",
            "| what | Trainmaster | plain reader | goal |",
            "|---|---|---|---|",
            *table,
            "",
        ]
    )
    return finish(REPORT, text, kept)


if __name__ == "__main__":
    sys.exit(main())
