"""Logs of up to a thousand million lines: what a page, a search and an append cost, and the disk they take.

The first lines are stored as a runner's batches and merged as cold logs are. The rest are copies of these chunks under
the numbers that follow, written without a journal, since only reads of them are measured.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.log_text import texts

RANKS, LINES_PER_BATCH, PAGE = 8, 1000, 500
LINES_PER_STORED_BATCH = 160
DISTINCT = 200_000
RUNS = 20
SEARCH_SECONDS = 5.0
NOTHING = "cuda error: out of memory"
#: What copies may take of the disk that is free, and of its space.
DISK_SHARE = 0.6
#: Copies are written in pieces, so that the disk is looked at in between.
LINES_AT_ONCE = 5_000_000
_COLUMNS = "last_time, first_time, members, hosts, ranks, kinds, text_bytes, stored_at, data"
_COPY = f"""
INSERT INTO logs_chunk (task_id, first_line, last_line, {_COLUMNS})
SELECT task_id, first_line + copy * %(base)s, last_line + copy * %(base)s, {_COLUMNS}
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS copy, logs_chunk
WHERE task_id = %(task)s AND first_line <= %(base)s ORDER BY copy, first_line
"""
#: Behind it are the lines that an append was measured with.
_COPIED = (
    "SELECT max(last_line) FROM logs_chunk WHERE task_id = %s AND stored_at < now() - interval '30 minutes'"
)


@dataclass
class Log:
    """A log of so many lines: processor time of Python and PostgreSQL."""

    level: int  # lines
    newest_ms: float
    middle_ms: float
    rank_ms: float
    append_ms: float  # for 1,000 lines
    searched_per_second: float  # lines
    disk_bytes: int
    merged_cpu_seconds: float  # for each million lines


class Growing:
    """One log that is measured at some lengths, each longer than the one before."""

    def __init__(self, base: int, spent: Callable[[], float]) -> None:
        """`base` lines are made; `spent` tells the processor time so far, here and in PostgreSQL."""
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE logs_chunk SET UNLOGGED")
        self._base, self._spent = base, spent
        self._task_id, merged = _first_lines(base, spent)
        self._merged = merged / base * 1e6

    def measured(self, lines: int) -> Log:
        """Raises RuntimeError if the disk has no space for so many."""
        _extend(self._task_id, self._base, lines)
        return _measured(self._task_id, lines, self._spent, self._merged)


def _first_lines(count: int, spent: Callable[[], float]) -> tuple[str, float]:
    """The id of a task whose log has them, merged, and the processor time that the merge took.

    Each batch commits by itself: thousands in one transaction would slow each other down, as they number the same row.
    """
    from django.db import connection
    from django.utils import timezone

    from logs import merging
    from logs.models import Chunk
    from tests.rig.rows import make_gang

    member = make_gang()[0]
    task_id = str(member.allocation.task_id)
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit TO off")  # to store them is not what is measured
    for number, lines in enumerate(_batches(count)):
        _append(member, lines, number)
    before = spent()
    Chunk.objects.update(stored_at=timezone.now() - timedelta(hours=1))
    more = True
    while more:
        more = merging.merge(task_id, timezone.now() - timedelta(minutes=30), ended=True)[1]
    merged = spent() - before
    with connection.cursor() as cursor:
        cursor.execute("VACUUM FULL logs_chunk")
    return task_id, merged


def _batches(count: int) -> Iterator[list[str]]:
    """A few lines of each rank together, so that there is something to merge."""
    lines = texts(min(DISTINCT, count))
    for start in range(0, count, LINES_PER_STORED_BATCH):
        yield lines[start % len(lines) : start % len(lines) + LINES_PER_STORED_BATCH]


def _append(member: Any, lines: list[str], number: int) -> None:
    from logs import store
    from logs.lines import Block

    share = len(lines) // RANKS
    blocks = [
        Block(1.7e9 + number, rank, "stdout", [], [], "\n".join(lines[rank * share : (rank + 1) * share]))
        for rank in range(RANKS)
    ]
    store.append(member.allocation.task_id, member, "gpu1", blocks)


def _extend(task_id: str, base: int, wanted: int) -> None:
    """Copy the first lines until the log has the wanted number."""
    from django.db import connection

    from logs.models import TaskLog

    data = _data_directory()
    free = shutil.disk_usage(data).free
    with connection.cursor() as cursor:
        cursor.execute(_COPIED, [task_id])
        copies = int(cursor.fetchone()[0]) // base
        cursor.execute(
            "DELETE FROM logs_chunk WHERE task_id = %s AND first_line > %s", [task_id, copies * base]
        )
        while copies * base < wanted:
            if free - shutil.disk_usage(data).free > DISK_SHARE * free:
                raise RuntimeError(f"The share of the disk was full at {copies * base:,} lines.")
            last = min(wanted // base, copies + max(1, LINES_AT_ONCE // base)) - 1
            cursor.execute(_COPY, {"task": task_id, "base": base, "first": copies, "last": last})
            copies = last + 1
        cursor.execute("ANALYZE logs_chunk")
    TaskLog.objects.filter(pk=task_id).update(next_line=wanted + 1, merged_line=wanted)


def _data_directory() -> Path:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SHOW data_directory")
        return Path(cursor.fetchone()[0])


def _measured(task_id: str, lines: int, spent: Callable[[], float], merged: float) -> Log:
    from django.db import connection

    from jobs.models import Member
    from logs import read

    chance = random.Random(lines)

    def took(work: Callable[[], object]) -> float:
        """Milliseconds of processor time, the mean of some."""
        before = spent()
        for _ in range(RUNS):
            work()
        return 1000 * (spent() - before) / RUNS

    def middle(ranks: frozenset[int] = frozenset()) -> object:
        filters = read.Filters(ranks=ranks) if ranks else read.Filters()
        return read.forward(task_id, chance.randrange(max(1, lines - PAGE)), filters, PAGE)

    newest = took(lambda: read.backward(task_id, None, read.Filters(), PAGE))
    anywhere, rank = took(middle), took(lambda: middle(frozenset({3})))
    searched = _searched(task_id, spent)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_total_relation_size('logs_chunk')")
        disk = int(cursor.fetchone()[0])
    member, batch = Member.objects.get(allocation__task_id=task_id), texts(LINES_PER_BATCH)
    before = spent()
    for number in range(20):
        _append(member, batch, number)
    appended = 1000 * (spent() - before) / 20
    return Log(lines, newest, anywhere, rank, appended, searched, disk, merged)


def _searched(task_id: str, spent: Callable[[], float]) -> float:
    """Lines looked at for each second of the processor, in a search that finds nothing."""
    from logs import read

    after, until, before = 0, time.monotonic() + SEARCH_SECONDS, spent()
    while time.monotonic() < until:
        page = read.forward(task_id, after, read.Filters(text=NOTHING), PAGE)
        after = page.upto
        if page.done:
            break
    return after / max(spent() - before, 1 / os.sysconf("SC_CLK_TCK"))
