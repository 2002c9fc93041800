"""How much room logs take, once cold, beside the text itself: fast streams, and 8 ranks that print a line now and then.

Each line of a slow rank comes alone, so it is a chunk by itself until chunks are merged. The room is what PostgreSQL
says of the table with its index and its TOAST table, after it was written anew (VACUUM FULL), which leaves out only
what is free for the next lines. `python -m benchmarks.logs_store` writes benchmarks/reports/logs_store.md.
"""

from __future__ import annotations

import os
import random
import sys
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks import database
from benchmarks.log_text import texts
from benchmarks.rows import Row, finish, size

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "queue")]
os.environ["DJANGO_SETTINGS_MODULE"] = "webui.settings"
os.environ["TRAINMASTER_SECRET_KEY"] = "benchmark"
os.environ["TRAINMASTER_LOG_LEVEL"] = "WARNING"

FAST_LINES = size("FAST_LINES", 100_000, quick=10_000)
SLOW_LINES = size("SLOW_LINES", 12_000, quick=4_800)
RANKS = 8
GOAL = 0.30
REPORT = ROOT / "benchmarks" / "reports" / "logs_store.md"


def store_fast(lines: list[str]) -> None:
    """8 ranks at full speed, in batches of 1,000 lines."""
    from logs import store
    from logs.lines import Block
    from tests.rig.rows import make_gang

    member = make_gang()[0]
    for start in range(0, len(lines), 1000):
        part = lines[start : start + 1000]
        blocks = [
            Block(
                1.7e9 + start / 1000, rank, "stdout", [], [], "\n".join(part[rank * 125 : rank * 125 + 125])
            )
            for rank in range(RANKS)
        ]
        store.append(member.allocation.task_id, member, member.host.name, blocks)


def store_slow(lines: list[str]) -> str:
    """8 ranks on 2 hosts that print a line about each second; the id of their task."""
    from logs import store
    from logs.lines import Block
    from tests.rig.rows import make_gang

    members, chance, now = make_gang(2), random.Random(2), 1.7e9
    for number, line in enumerate(lines):
        now += chance.random() / 4
        member = members[number % 2]
        block = Block(now, number % RANKS, "stdout", [(0, "INFO")] if number % 3 else [], [], line)
        store.append(member.allocation.task_id, member, member.host.name, [block])
    return str(members[0].allocation.task_id)


def room() -> int:
    """Bytes of all chunks with index and TOAST."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM FULL logs_chunk")
        cursor.execute("SELECT pg_total_relation_size('logs_chunk')")
        return int(cursor.fetchone()[0])


def merge() -> tuple[int, float]:
    """Everything is cold and has ended: how many chunks fewer there are, and the seconds it took."""
    from django.utils import timezone

    from jobs.models import Task
    from jobs.states import TaskState
    from logs import merging
    from logs.models import Chunk

    Chunk.objects.update(stored_at=timezone.now() - timedelta(hours=1))
    Task.objects.update(state=TaskState.ENDED)
    begin = time.perf_counter()
    return merging.merge_cold(3600), time.perf_counter() - begin


def row(name: str, lines: int, size: int, raw: int) -> str:
    return f"| {name} | {lines:,} | {raw / 1e6:.1f} | {size / 1e6:.1f} | {size / raw:.3f} |"


def measure() -> tuple[str, list[Row]]:
    from django.db import transaction

    from logs.models import Chunk

    slow, fast = texts(SLOW_LINES, seed=3), texts(FAST_LINES)
    raw_slow, raw_fast = (sum(len(line) + 1 for line in part) for part in (slow, fast))
    empty = room()
    with transaction.atomic():
        store_slow(slow)
    slow_before = room() - empty
    fewer_slow, slow_seconds = merge()
    slow_after = room() - empty
    with transaction.atomic():
        store_fast(fast)
        store_slow(slow)
    both_before = room() - empty - slow_after
    merge()
    both_after = room() - empty - slow_after
    lines: list[Any] = [
        row("8 slow ranks alone, as stored", SLOW_LINES, slow_before, raw_slow),
        row("8 slow ranks alone, merged", SLOW_LINES, slow_after, raw_slow),
        row("8 fast and 8 slow ranks, as stored", SLOW_LINES + FAST_LINES, both_before, raw_slow + raw_fast),
        row("8 fast and 8 slow ranks, merged", SLOW_LINES + FAST_LINES, both_after, raw_slow + raw_fast),
    ]
    shares = (
        ("8 slow ranks", slow_after / raw_slow),
        ("8 fast and 8 slow ranks", both_after / (raw_slow + raw_fast)),
    )
    found = [Row(f"stored, {whose}, cold", share, "of the raw text", most=GOAL) for whose, share in shares]
    text = "\n".join(
        [
            "# Room that logs take",
            "",
            f"At most {GOAL:.2f} of the raw text is wanted once chunks are cold. Merging the {SLOW_LINES:,} lines of "
            f"slow ranks made {fewer_slow:,} chunks fewer in {slow_seconds:.1f} s at a load of "
            f"{os.getloadavg()[0]:.1f} "
            f"on {os.cpu_count()} cores; {Chunk.objects.count():,} chunks are left of all.",
            "",
            "| log | lines | raw MB | stored MB | stored / raw |",
            "|---|---|---|---|---|",
            *lines,
            "",
        ]
    )
    return text, found


def main() -> int:
    from tests.rig.parts import private_folder

    with ExitStack() as stack:
        folders = [stack.enter_context(private_folder(name)) for name in ("postgres", "redis")]
        stack.enter_context(database.parts(*folders))
        return finish(REPORT, *measure())


if __name__ == "__main__":
    sys.exit(main())
