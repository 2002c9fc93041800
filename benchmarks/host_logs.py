"""What logs cost on a host: from the files that ranks write to compressed batches on the wire, on this machine.

    LINES=400000 python -m benchmarks.host_logs

First the parts in this process, by what the lines look like: CPU from spool to outbox, and of gzip. Then a real
run with its launcher and runner, and a server that only counts: a flood of eight ranks, the way of single lines,
and a run that prints nothing. Writes benchmarks/reports/host_logs.md; no database and no Redis are needed.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from benchmarks.rows import Row, finish, size
from trainmaster.identity import CHALLENGE_HEADER, IDENTITY_PATH, PROOF_HEADER, proof

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
LINES = size("LINES", 400_000, quick=100_000)
IDLE_SECONDS = float(size("IDLE_SECONDS", 20, quick=5))
REPORT = ROOT / "benchmarks" / "reports" / "host_logs.md"
RANKS = 8
GOAL_LINES_PER_SECOND = 300_000
BATCH_BYTES = 1024**2
RUN_SECONDS_MAX = 240.0
LIMITS = {"heartbeat_seconds": 5.0}  # as the server says: tests let it beat faster
FLOOD = """
import os, threading, time
spool = os.environ["TRAINMASTER_RUN_DIR"] + "/spool"
text = open("lines", "rb").read()
for rank in range(%d):
    with open(f"{spool}/rank{rank}.stdout", "ab", buffering=0) as file:
        for at in range(0, len(text), 1 << 16):
            file.write(text[at : at + (1 << 16)])
"""
SINGLE = """
import os, random, time
for number in range(%d):
    os.write(1, b"%%r\\n" %% time.time())
    time.sleep(random.uniform(0.02, 0.1))
"""
IDLE = """
import os, time

spool = os.environ["TRAINMASTER_RUN_DIR"] + "/spool"
files = [open(f"{spool}/rank{rank}.{stream}", "ab") for rank in range(%d) for stream in ("stdout", "stderr")]
time.sleep(%f)
"""


class Parts(NamedTuple):
    """CPU of the two parts for one kind of lines, in lines per second of a core."""

    kind: str
    line_bytes: float
    collected: float
    compressed: float
    ratio: float


def line(kind: str, number: int, chance: random.Random) -> bytes:
    """A line of about 120 bytes, as a training prints it."""
    text = (
        f"epoch {number // 1000} step {number} loss {chance.random():.6f} lr {chance.random():.3e} throughput "
        f"{chance.randrange(10**6)} samples/s grad_norm {chance.random():.4f} tokens {number * 4096}"
    )
    made = {
        "plain": text,
        "with a time and a level": f"2026-11-21 05:12:43,123 - trainer - INFO - {text}"[:120],
        "of a launcher, `[rank=N] `": f"[rank={number // 50 % 8}] {text}"[:120],
        "with Windows line ends": text + "\r",
        "in Chinese": f"第{number}步 损失 {chance.random():.6f} 学习率 {chance.random():.3e} 训练进行中 样本 {number}",
    }
    return made[kind].encode() + b"\n"


KINDS = (
    "plain",
    "with a time and a level",
    "of a launcher, `[rank=N] `",
    "with Windows line ends",
    "in Chinese",
)


def lines_of(kind: str, count: int) -> bytes:
    chance = random.Random(1)
    return b"".join(line(kind, number, chance) for number in range(count))


def parts(kind: str, count: int) -> Parts:
    """Spool to outbox, and outbox to gzip, in this process."""
    from trainmaster.paths import RunPaths
    from trainmaster.protocol import DEFAULT_LIMITS
    from trainmaster.runner.collecting import Collector
    from trainmaster.runner.outbox import Outbox

    text = lines_of(kind, count // RANKS)
    with tempfile.TemporaryDirectory() as folder:
        paths = RunPaths(Path(folder) / "x.1.0")
        paths.spool.mkdir(parents=True)
        by_rank = [paths.rank_stream(rank, "stdout") for rank in range(RANKS)]
        for path in [paths.launcher_stream("stdout")] if "launcher" in kind else by_rank:
            path.write_bytes(text * RANKS if "launcher" in kind else text)
        outbox = Outbox(paths)
        collector = Collector(paths, outbox, DEFAULT_LIMITS, lambda: 0, lambda record: None)
        collected = cpu_of(lambda: drain(collector))
        sizes: list[int] = []
        compressed = cpu_of(lambda: sizes.extend(compress(outbox)))
    lines = text.count(b"\n") * RANKS
    return Parts(
        kind,
        len(text) * RANKS / lines,
        lines / collected,
        lines / compressed,
        len(text) * RANKS / sum(sizes),
    )


def drain(collector: Any) -> None:
    while collector.poll():
        pass


def compress(outbox: Any) -> list[int]:
    """The sizes of all batches, as they would be sent."""
    sizes, offset = [], 0
    while batch := outbox.read(offset, BATCH_BYTES):
        offset += len(batch)
        sizes.append(len(gzip.compress(batch, 1)))
    return sizes


def cpu_of(work: Callable[[], None]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A runner that has ended breaks its connections."""


class Sink:
    """A server that takes every batch, counts its lines and keeps when it came; `address` is server.json.

    It proves to the runner that it is the run's own, else nothing would be sent to it.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.ended = threading.Event()
        self.batches: list[int] = []
        self.delays: list[float] = []  # of lines that are nothing but the time of their writing
        sink = self
        from tests.trainmaster.stream_server import PROOF_KEY

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                url = urlsplit(self.path)
                if url.path.endswith("heartbeat"):
                    self.answer({"preempt": None, "stop": None})
                    return
                content = gzip.decompress(body)
                sink.take(content)
                offset = int(parse_qs(url.query)["offset"][0])
                self.answer({"offset": offset + len(content), "preempt": None, "stop": None})

            def do_GET(self) -> None:
                if not self.path.startswith(IDENTITY_PATH):  # signals, which the runner waits for
                    sink.ended.wait(5)
                self.answer({"preempt": None, "stop": None})

            def answer(self, value: object) -> None:
                text = json.dumps(value).encode()
                self.send_response(200)
                if challenge := self.headers[CHALLENGE_HEADER]:
                    nonce = challenge.partition(" ")[2]
                    self.send_header(PROOF_HEADER, proof(PROOF_KEY, "c1", nonce, 200))
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing: the figures are the output."""

        self.http = _Server(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.address = {"urls": [f"http://127.0.0.1:{self.http.server_address[1]}"], "cert_sha256": None}
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def take(self, content: bytes) -> None:
        now = time.time()
        self.batches.append(len(content))
        for record in map(json.loads, content.splitlines()):
            if record["k"] == "lines":
                texts = record["m"].split("\n")
                self.lines += len(texts)
                if record["f"] == "launcher.stdout":
                    self.delays.extend(now - float(text) for text in texts)
            elif record["k"] == "exit":
                self.ended.set()


def run(script: str, files: dict[str, str] | None = None) -> tuple[Sink, float, float, float]:
    """A real run of a script: (the server, seconds to its end there, CPU of the runner, seconds of the script)."""
    from tests.trainmaster.conftest import TestHost, wait_until
    from trainmaster.runner.state import read_exit, read_state

    sink = Sink()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="host-logs-"))
        host = TestHost(Path(folder), sink)  # type: ignore[arg-type]  # all it needs of it is the address
        stack.callback(host.end_everything)
        begin = time.time()
        paths, _ = host.launch(["python3", "job.py"], {"job.py": script, **(files or {})}, limits=LIMITS)
        pid = wait_until(lambda: read_state(paths).get("runner"))["pid"]
        cpu = 0.0
        while not sink.ended.wait(0.05):
            if time.time() - begin > RUN_SECONDS_MAX:
                raise RuntimeError(
                    f"the run has not ended: {(paths.spool / '.runner.log').read_text()[-500:]}"
                )
            cpu = cpu_seconds(pid) or cpu
        seconds = time.time() - begin
        ended = read_exit(paths)
        assert ended is not None and ended["code"] == 0, ended
    sink.http.shutdown()
    return sink, seconds, cpu, ended["ended_at"] - begin


def cpu_seconds(pid: int) -> float | None:
    """User and system time of a process and its threads; None once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def flood(count: int) -> list[str]:
    text = lines_of("plain", count // RANKS).decode()
    sink, seconds, cpu, wrote = run(FLOOD % RANKS, {"lines": text})
    assert sink.lines == text.count("\n") * RANKS
    return [
        f"| flood of {RANKS} ranks | {sink.lines:,} lines written in {wrote:.1f} s were at the server after "
        f"{seconds:.1f} s ({sink.lines / seconds:,.0f} lines/s) in {len(sink.batches)} batches; "
        f"{cpu / sink.lines * 1e6:.1f} s of the runner's CPU per million lines |"
    ]


def single(count: int) -> list[str]:
    sink, _, _, _ = run(SINGLE % count)
    delays = sorted(sink.delays)
    assert len(delays) == count
    return [
        f"| {count} single lines | from the write to the server {1000 * statistics.median(delays):.0f} ms (median), "
        f"{1000 * delays[int(count * 0.95)]:.0f} ms (95th percentile) |"
    ]


def idle(seconds: float) -> list[str]:
    _, _, starting, _ = run(IDLE % (RANKS, 0.5))
    _, _, cpu, _ = run(IDLE % (RANKS, seconds + 0.5))
    share = 100 * (cpu - starting) / seconds
    return [f"| {RANKS} ranks that print nothing | {share:.1f} % of a core |"]


def main() -> int:
    measures = [parts(kind, LINES) for kind in KINDS]
    real = [*flood(LINES * 4), *single(100), *idle(IDLE_SECONDS)]
    text = [
        "# Logs on a host",
        "",
        f"{LINES:,} lines of {RANKS} ranks on {os.cpu_count()} cores at a load of {os.getloadavg()[0]:.1f}, "
        f"Python {sys.version.split()[0]}. Goal: {GOAL_LINES_PER_SECOND:,} lines/s of 120 bytes from spool to outbox "
        "for each core; a line is shipped within 50 ms; next to no CPU when nothing is printed.",
        "",
        "| lines | bytes each | spool → outbox, lines/s of a core | gzip, lines/s of a core "
        "| CPU s per million lines | raw : sent |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row.kind} | {row.line_bytes:.0f} | {row.collected:,.0f} | {row.compressed:,.0f} "
            f"| {1e6 / row.collected + 1e6 / row.compressed:.1f} | {row.ratio:.1f} |"
            for row in measures
        ),
        "",
        "With launcher, runner and a server that only counts:",
        "",
        "| run | |",
        "|---|---|",
        *real,
        "",
    ]
    found = [
        Row(f"spool to outbox, {row.kind}", row.collected, "lines/s of a core", goal=GOAL_LINES_PER_SECOND)
        for row in measures
    ]
    return finish(REPORT, "\n".join(text), found)


if __name__ == "__main__":
    sys.exit(main())
