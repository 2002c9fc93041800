"""The one writer of a task's log. Lines get their numbers under the TaskLog row's lock (law 4)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import timedelta

from django.db import connection, transaction
from django.utils import timezone

from events.announce import announce
from events.models import Event
from jobs.models import Member
from logs.chunks import LINES_PER_CHUNK, pack
from logs.lines import NO_RANK, SERVER, NewLine
from logs.models import Chunk, TaskLog
from logs.sentences import sentence

#: A transaction that writes an event row commits within this time, so older ids cannot still appear.
EVENTS_SETTLE_SECONDS = 600.0

_UPSERT_RANK = """
    INSERT INTO logs_rankseen (task_id, rank, host, lines, last_time) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (task_id, rank, host) DO UPDATE
    SET lines = logs_rankseen.lines + EXCLUDED.lines,
        last_time = GREATEST(logs_rankseen.last_time, EXCLUDED.last_time)
"""


@transaction.atomic
def append(task_id: str, member: Member | None, host_name: str, lines: Sequence[NewLine]) -> tuple[int, int]:
    """Store lines of one member (None: the server's own) and say which numbers they got, first and last.

    Runs in the caller's transaction and holds the task's log until it commits. With no lines the answer is
    (n, n - 1), where n is the next number. Server-side lines of events that happened before come first.
    """
    log = _locked(task_id)
    _merge(log)
    first = log.next_line
    _write(log, member.pk if member else None, host_name, lines)
    _save(log)
    return first, log.next_line - 1


@transaction.atomic
def merge_events(task_id: str) -> int:
    """Write the task's new event rows into its log as server-side lines, and say how many lines that were."""
    log = _locked(task_id)
    first = log.next_line
    if _merge(log):
        _save(log)
    return log.next_line - first


def unmerged(task_ids: Collection[str]) -> list[str]:
    """Those of the tasks that have events which are not in their logs yet, by one statement."""
    with connection.cursor() as cursor:
        cursor.execute(_UNMERGED, [list(task_ids)])
        return [row[0] for row in cursor.fetchall()]


_UNMERGED = """
SELECT DISTINCT event.task_id FROM events_event event LEFT JOIN logs_tasklog log ON log.task_id = event.task_id
WHERE event.task_id = ANY(%s) AND (
  log.task_id IS NULL OR (event.id > log.last_event AND NOT event.id = ANY(log.recent_events)))
"""


def _locked(task_id: str) -> TaskLog:
    log = TaskLog.objects.select_for_update().filter(pk=task_id).first()
    if log is None:
        TaskLog.objects.bulk_create([TaskLog(task_id=task_id)], ignore_conflicts=True)
        log = TaskLog.objects.select_for_update().get(pk=task_id)
    return log


def _save(log: TaskLog) -> None:
    log.save(update_fields=["next_line", "last_event", "recent_events"])
    announce(f"log:{log.pk}")


def _merge(log: TaskLog) -> bool:
    """True if there were new events.

    Ids are given before they are committed, so an event may become visible after one with a higher id was
    merged. Hence the merged ids of the last minutes are kept by name, and `last_event` only follows behind.
    """
    unsettled = Event.objects.filter(task_id=log.pk, id__gt=log.last_event)
    new = list(unsettled.exclude(pk__in=log.recent_events).order_by("id"))
    if not new:
        return False
    lines = []
    for event in new:
        said = sentence(event)
        if said is not None:
            lines.append(NewLine(event.at.timestamp(), None, SERVER, said.level.name, said.text))
    _write(log, None, "", lines)
    settled_before = timezone.now() - timedelta(seconds=EVENTS_SETTLE_SECONDS)
    merged = [*log.recent_events, *(event.pk for event in new)]
    settled = Event.objects.filter(pk__in=merged, at__lt=settled_before).order_by("-id").first()
    if settled is not None:
        log.last_event = settled.pk
    log.recent_events = sorted(pk for pk in merged if pk > log.last_event)
    return True


def _write(log: TaskLog, member_id: int | None, host: str, lines: Sequence[NewLine]) -> None:
    if not lines:
        return
    chunks = []
    for start in range(0, len(lines), LINES_PER_CHUNK):
        part = lines[start : start + LINES_PER_CHUNK]
        chunks.append(pack(log.pk, log.next_line, member_id, host, part))
        log.next_line += len(part)
    Chunk.objects.bulk_create(chunks)
    _note_ranks(log.pk, host, lines)


def _note_ranks(task_id: str, host: str, lines: Sequence[NewLine]) -> None:
    counts: dict[int, int] = {}
    last: dict[int, float] = {}
    for line in lines:
        if line.stream == SERVER:
            continue  # the server is no rank: it has no chip
        rank = NO_RANK if line.rank is None else line.rank
        counts[rank] = counts.get(rank, 0) + 1
        last[rank] = max(last.get(rank, -math.inf), line.time)
    rows = [(task_id, rank, host, counts[rank], last[rank]) for rank in sorted(counts)]
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(_UPSERT_RANK, rows)
