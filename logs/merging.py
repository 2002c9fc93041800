"""Merges small chunks once they are cold, so that slow ranks need no more room than fast ones.

Line numbers stay. The new chunk takes the place of the old ones in one transaction, and reads go by line numbers,
so a read under way finds each line once. Only the newest chunks of a task grow in number; what is merged as
well as it can be lies at or before the log's `merged_line` and is not looked at again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain, takewhile
from typing import NamedTuple

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from jobs.states import TaskState
from logs.chunks import BYTES_PER_CHUNK, LINES_PER_CHUNK, ZSTD_LEVEL_COLD, ChunkRun, pack_runs, unpack
from logs.contents import Contents
from logs.models import Chunk, TaskLog
from logs.store import as_chunk

#: So many cold chunks of a task that goes on are worth a merge; those of one that has ended are merged anyway.
CHUNKS_WORTH_MERGING = 256
#: A chunk is written anew only with at least so many others.
FEWEST_MERGED = 4
_CHUNKS_PER_LOOK = 4096

_DUE = """
SELECT log.task_id, task.state = %(ended)s
FROM logs_tasklog log JOIN jobs_task task ON task.id = log.task_id
WHERE log.merged_line < log.next_line - 1 AND (
  SELECT count(*) FROM (
    SELECT FROM logs_chunk chunk
    WHERE chunk.task_id = log.task_id AND chunk.first_line > log.merged_line AND chunk.stored_at < %(before)s
    LIMIT CASE WHEN task.state = %(ended)s THEN 1 ELSE %(worth)s END
  ) cold
) >= CASE WHEN task.state = %(ended)s THEN 1 ELSE %(worth)s END
LIMIT 1000
"""


class _Small(NamedTuple):
    """A chunk as far as merging chooses by it."""

    first: int
    last: int
    text_bytes: int


def merge_cold(seconds: float) -> int:
    """Merge what is cold, in whichever task, for at most about so many seconds; how many chunks fewer there are."""
    before = timezone.now() - timedelta(seconds=settings.LOG_COLD_SECONDS)
    deadline = time.monotonic() + seconds
    with connection.cursor() as cursor:
        cursor.execute(_DUE, {"ended": TaskState.ENDED, "before": before, "worth": CHUNKS_WORTH_MERGING})
        due = cursor.fetchall()
    fewer = 0
    for task_id, ended in due:
        while time.monotonic() < deadline:
            merged, more = merge(task_id, before, ended=ended)
            fewer += merged
            if not more:
                break
    return fewer


def merge(task_id: str, before: datetime, *, ended: bool) -> tuple[int, bool]:
    """Merge chunks that were stored before `before`: how many fewer there are, and whether to look again.

    Of a log that goes on, the last chunk that is not full stays open to be merged with what follows.
    """
    merged_line = TaskLog.objects.values_list("merged_line", flat=True).get(pk=task_id)
    chunks = Chunk.objects.filter(task_id=task_id, first_line__gt=merged_line).order_by("first_line")
    rows = chunks.values_list("first_line", "last_line", "text_bytes", "stored_at")[:_CHUNKS_PER_LOOK]
    cold = [_Small(*row[:3]) for row in takewhile(lambda row: row[3] < before, rows)]
    groups = list(_groups(cold))
    fewer = sum(_merge(task_id, group) for group in groups)
    more = len(cold) == _CHUNKS_PER_LOOK
    if not ended or more:
        settled = groups[-1][0].first - 1 if groups else merged_line
    else:
        settled = cold[-1].last if cold else merged_line
    TaskLog.objects.filter(pk=task_id, merged_line__lt=settled).update(merged_line=settled)
    return fewer, more and settled > merged_line


def _groups(chunks: Sequence[_Small]) -> Iterator[list[_Small]]:
    """Neighbors that fit into one chunk together, each as many as do."""
    group: list[_Small] = []
    lines = size = 0
    for chunk in chunks:
        count = chunk.last - chunk.first + 1
        fits = lines + count <= LINES_PER_CHUNK and size + chunk.text_bytes <= BYTES_PER_CHUNK
        if group and not (fits and chunk.first == group[-1].last + 1):
            yield group
            group, lines, size = [], 0, 0
        group.append(chunk)
        lines += count
        size += chunk.text_bytes
    if group:
        yield group


@transaction.atomic
def _merge(task_id: str, group: Sequence[_Small]) -> int:
    """How many chunks fewer there are. Nothing is done where somebody else has merged or deleted some of them."""
    if len(group) < FEWEST_MERGED:
        return 0
    first, last = group[0].first, group[-1].last
    locked = Chunk.objects.select_for_update().filter(task_id=task_id, first_line__range=(first, last))
    rows = list(locked.order_by("first_line"))
    if [(row.first_line, row.last_line) for row in rows] != [chunk[:2] for chunk in group]:
        return 0
    made = []
    for packed in pack_runs(chain.from_iterable(map(_runs, rows)), ZSTD_LEVEL_COLD):
        made.append(as_chunk(task_id, first, packed))
        made[-1].stored_at = max(row.stored_at for row in rows)
        first += packed.lines
    Chunk.objects.filter(pk__in=[row.pk for row in rows]).delete()
    Chunk.objects.bulk_create(made)
    return len(rows) - len(made)


def _runs(chunk: Chunk) -> Iterator[ChunkRun]:
    return Contents(unpack(chunk.data), chunk.first_line).runs()
