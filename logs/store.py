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
from logs.chunks import Packed, Source, pack
from logs.lines import NO_RANK, SERVER, STREAM_LETTERS, Block, NewLine, blocks_of
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
def append(task_id: str, member: Member | None, host_name: str, blocks: Sequence[Block]) -> tuple[int, int]:
    """Store lines of one member (None: the server's own) and say which numbers they got, first and last.

    Runs in the caller's transaction and holds the task's log until it commits. With no blocks the answer is
    (n, n - 1), where n is the next number. Server-side lines of events that happened before come first.
    """
    log = _locked(task_id)
    _merge(log)
    first = log.next_line
    _write(log, Source(member.pk if member else None, host_name), blocks)
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
    _write(log, Source(None, ""), blocks_of(lines))
    settled_before = timezone.now() - timedelta(seconds=EVENTS_SETTLE_SECONDS)
    merged = [*log.recent_events, *(event.pk for event in new)]
    settled = Event.objects.filter(pk__in=merged, at__lt=settled_before).order_by("-id").first()
    if settled is not None:
        log.last_event = settled.pk
    log.recent_events = sorted(pk for pk in merged if pk > log.last_event)
    return True


def _write(log: TaskLog, source: Source, blocks: Sequence[Block]) -> None:
    chunks = []
    for packed in pack(source, blocks):
        chunks.append(as_chunk(log.pk, log.next_line, packed))
        log.next_line += packed.lines
    Chunk.objects.bulk_create(chunks)
    _note_ranks(log.pk, source.host, blocks)


def as_chunk(task_id: str, first_line: int, packed: Packed) -> Chunk:
    """The packed lines as an unsaved row; the first of them gets the number `first_line`."""
    return Chunk(
        task_id=task_id,
        first_line=first_line,
        last_line=first_line + packed.lines - 1,
        members=packed.members,
        hosts=packed.hosts,
        first_time=packed.first_time,
        last_time=packed.last_time,
        ranks=packed.ranks,
        kinds=packed.kinds,
        text_bytes=packed.text_bytes,
        data=packed.data,
    )


def _note_ranks(task_id: str, host: str, blocks: Sequence[Block]) -> None:
    counts: dict[int, int] = {}
    last: dict[int, float] = {}
    for block in blocks:
        if STREAM_LETTERS[block.stream] == SERVER:
            continue  # the server is no rank: it has no chip
        rank = NO_RANK if block.rank is None else block.rank
        counts[rank] = counts.get(rank, 0) + block.text.count("\n") + 1
        last[rank] = max(last.get(rank, -math.inf), block.time)
    rows = [(task_id, rank, host, counts[rank], last[rank]) for rank in sorted(counts)]
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(_UPSERT_RANK, rows)
