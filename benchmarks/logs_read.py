"""Reads of a log of 10 million lines of 8 ranks: the first page of any rank, and searches beside PostgreSQL's LIKE.

The log is packed and stored in bulk, as chunks that a run at full speed leaves; beside it stand the first half of the
same lines as rows, over which PostgreSQL searches with LIKE, with and without parallel workers.
`python -m benchmarks.logs_read` writes benchmarks/reports/logs_read.md.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks import database
from benchmarks.log_text import texts
from benchmarks.rows import Row, finish, size

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
os.environ["TRAINMASTER_SECRET_KEY"] = "benchmark"
os.environ["TRAINMASTER_LOG_LEVEL"] = "WARNING"

LINES = size("LINES", 10_000_000, quick=1_000_000)
SEARCHED = LINES // 2
RANKS = 8
LINES_PER_BATCH = 1000
DISTINCT = 200_000
PAGE = 500
BEGIN = 1.7e9  # epoch seconds of the first batch; each is a second after the one before
ROUNDS = size("ROUNDS", 3, quick=2)
GOAL_PAGE_MS, GOAL_SEARCH = 20, 1.2
REPORT = ROOT / "benchmarks" / "reports" / "logs_read.md"
RARE = "step 123456 loss"  # in every copy of the distinct lines once
NOTHING = "cuda error: out of memory"


def store_all() -> str:
    """The id of a task with the whole log. Rank 7 wrote nothing but at the very beginning and in the very middle."""
    from django.db import transaction

    from logs import store
    from logs.lines import Block
    from tests.rig.rows import make_gang

    member = make_gang()[0]
    task_id, lines = member.allocation.task_id, texts(DISTINCT)
    parts = [lines[start : start + LINES_PER_BATCH] for start in range(0, DISTINCT, LINES_PER_BATCH)]
    rare = (0, LINES // LINES_PER_BATCH // 2)
    with transaction.atomic():
        for number in range(LINES // LINES_PER_BATCH):
            part, share = parts[number % len(parts)], LINES_PER_BATCH // RANKS
            blocks = [
                Block(
                    BEGIN + number, rank if rank < 7 or number in rare else 0, "stdout", [], [],
                    "\n".join(part[rank * share : (rank + 1) * share]),
                )
                for rank in range(RANKS)
            ]  # fmt: skip
            store.append(task_id, member, "gpu1", blocks)
    return str(task_id)


def store_rows() -> None:
    """The first half of the lines as rows."""
    from django.db import connection

    lines = texts(DISTINCT)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE yardstick (id bigserial PRIMARY KEY, task text, rank int, at float8, line text)"
        )
        for _ in range(SEARCHED // DISTINCT):
            with cursor.copy("COPY yardstick (task, rank, at, line) FROM STDIN") as copy:
                copy.write("".join(f"task\t{i % RANKS}\t1.0\t{text}\n" for i, text in enumerate(lines)))
        cursor.execute("ANALYZE yardstick")
        cursor.execute("ANALYZE logs_chunk")


def like(needle: str, workers: int) -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(f"SET max_parallel_workers_per_gather = {workers}")
        cursor.execute("SELECT count(*) FROM yardstick WHERE task = 'task' AND line LIKE %s", [f"%{needle}%"])
        return int(cursor.fetchone()[0])


def search(task_id: str, needle: str) -> int:
    """All hits in the first half of the log, by its times, read page by page as the REST road does."""
    from logs import read

    filters = read.Filters(text=needle, before_time=BEGIN + SEARCHED // LINES_PER_BATCH - 1)
    after, found = 0, 0
    while True:
        page = read.forward(task_id, after, filters, 1000)
        found += len(page.lines)
        if page.done:
            return found
        after = page.upto


def first_pages(task_id: str) -> dict[int, list[float]]:
    """Milliseconds for the newest page of each rank, and for its first."""
    from logs import read

    took: dict[int, list[float]] = {}
    for rank in range(RANKS):
        filters = read.Filters(ranks=frozenset({rank}))
        for _ in range(5):
            took.setdefault(rank, []).append(timed(read.backward, task_id, None, filters, PAGE))
            took[rank].append(timed(read.forward, task_id, 0, filters, PAGE))
            took[rank].append(timed(read.forward, task_id, LINES * 9 // 10, read.Filters(), PAGE))
    return took


def timed(function: Callable[..., object], *args: object) -> float:
    """Milliseconds of one call."""
    begin = time.perf_counter()
    function(*args)
    return 1000 * (time.perf_counter() - begin)


def report(task_id: str) -> tuple[str, list[Row]]:
    pages = first_pages(task_id)
    lines = [
        f"# Reads of a log of {LINES:,} lines",
        "",
        f"{RANKS} ranks, batches of {LINES_PER_BATCH:,} lines, all in memory; {ROUNDS} rounds in turns on "
        f"{os.cpu_count()} cores at a load of {os.getloadavg()[0]:.1f}. Goals: a page of {PAGE} lines of any rank "
        f"under {GOAL_PAGE_MS} ms in the server; a search over {SEARCHED:,} lines in at most {GOAL_SEARCH} times what "
        "PostgreSQL's LIKE takes over rows. Medians [least to most].",
        "",
        "| page | ms |",
        "|---|---|",
    ]
    for rank, took in pages.items():
        name = f"rank {rank}" + (" (wrote only at the beginning and in the middle)" if rank == 7 else "")
        lines.append(f"| {name} | {spread(took)} |")
    lines += [
        "",
        "| search | hits | ms | LIKE, one process | LIKE, parallel | of one process | of parallel | of its CPU time |",
        "|---|---|---|---|---|---|---|---|",
    ]
    found = [Row("a page of any rank", max(map(statistics.median, pages.values())), "ms", goal=GOAL_PAGE_MS)]
    for what, needle in (("a search without a hit", NOTHING), ("a search with few hits", RARE)):
        line, share = searches(task_id, needle)
        lines.append(line)
        found.append(Row(what, share, "x parallel LIKE", most=GOAL_SEARCH))
    return "\n".join([*lines, ""]), found


def searches(task_id: str, needle: str) -> tuple[str, float]:
    """A row of the report: ours and both ways of LIKE in turns; and ours as a share of parallel LIKE."""
    took: dict[str, list[float]] = {"ours": [], "alone": [], "parallel": []}
    cpu: dict[str, list[float]] = {"ours": [], "parallel": []}
    for _ in range(ROUNDS):
        before = cpu_seconds()
        took["ours"].append(timed(search, task_id, needle))
        cpu["ours"].append(cpu_seconds() - before)
        took["alone"].append(timed(like, needle, 0))
        before = cpu_seconds()
        took["parallel"].append(timed(like, needle, 2))
        cpu["parallel"].append(cpu_seconds() - before)
    hits = search(task_id, needle)
    assert hits == like(needle, 2), (hits, like(needle, 2))
    times = " | ".join(spread(each) for each in took.values())
    shares = [ratio(took["ours"], took["alone"]), ratio(took["ours"], took["parallel"]), ratio(*cpu.values())]
    cells = " | ".join(f"{share:.2f}" for share in shares)
    return f"| {needle!r} | {hits} | {times} | {cells} |", shares[1]


def ratio(ours: list[float], theirs: list[float]) -> float:
    """The median of what it was in each round."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def cpu_seconds() -> float:
    """What this process, its backend and the parallel workers that have ended have computed so far."""
    from django.db import connection

    connection.ensure_connection()
    backend = _stat(connection.connection.info.backend_pid)
    postmaster = _stat(backend[1])
    ticks = sum(backend[11:13]) + sum(postmaster[13:15])  # its own; those of its children that have ended
    return sum(os.times()[:2]) + ticks / os.sysconf("SC_CLK_TCK")


def _stat(process: int) -> list[int]:
    """The fields behind the name in /proc/PID/stat (proc(5)), the state as 0."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return [0, *map(int, fields[1:])]


def spread(took: list[float]) -> str:
    return f"{statistics.median(took):,.1f} [{min(took):,.1f} to {max(took):,.1f}]"


def main() -> int:
    from tests.rig.parts import private_folder

    with ExitStack() as stack:
        folders = [stack.enter_context(private_folder(name)) for name in ("postgres", "redis")]
        stack.enter_context(database.parts(*folders))
        task_id = store_all()
        store_rows()
        return finish(REPORT, *report(task_id))


if __name__ == "__main__":
    sys.exit(main())
