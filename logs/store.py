"""The one writer of a task's log. Lines get their numbers under the TaskLog row's lock (law 4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from itertools import accumulate
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from events import prepared
from events.announce import announce
from events.models import Event
from jobs.models import Member
from logs import streams
from logs.chunks import Packed, Source, pack
from logs.lines import SERVER, Block, NewLine, blocks_of
from logs.models import Chunk, TaskLog
from logs.sentences import sentence, task_of

#: A transaction that writes an event row commits within this time, so older ids cannot still appear.
EVENTS_SETTLE_SECONDS = 600.0

_EVENTS_WAIT = """EXISTS (
    SELECT FROM events_event event
    WHERE event.task_id = log.task_id AND event.id > log.last_event AND NOT event.id = ANY(log.recent_events))"""
_NUMBERED = f"""
WITH numbered AS (
  UPDATE logs_tasklog log SET next_line = log.next_line + %(count)s
  WHERE log.task_id = %(task)s AND (%(at_once)s OR NOT {_EVENTS_WAIT})
"""
#: The attempt is locked, then the stream moves before the log is locked (law 4), and only where the lines can be stored
#: then.
_MOVED_AND_NUMBERED = f"""
WITH attempt AS MATERIALIZED ({streams.ATTEMPT.format(and_more="")}), moved AS (
  UPDATE logs_stream SET "offset" = %(new_offset)s WHERE member_id = %(member)s AND "offset" = %(offset)s
    AND EXISTS (SELECT FROM logs_tasklog log WHERE log.task_id = %(task)s AND NOT {_EVENTS_WAIT})
    AND EXISTS (SELECT FROM attempt)
  RETURNING 1
), numbered AS (
  UPDATE logs_tasklog log SET next_line = log.next_line + %(count)s
  WHERE log.task_id = %(task)s AND EXISTS (SELECT FROM moved)
"""
#: All of an append in one statement: it numbers the lines under the log's row lock, and does nothing (no row comes
#: back) where the log has no row yet, or where events wait that have to come first.
_STORED = """
  RETURNING log.next_line - %(count)s AS first
), stored AS (
  INSERT INTO logs_chunk (task_id, first_line, last_line, members, hosts, ranks, kinds,
                          first_time, last_time, text_bytes, stored_at, data)
  SELECT %(task)s, numbered.first + part.start, numbered.first + part.start + part.lines - 1,
    %(members)s, %(hosts)s, part.ranks::int[], part.kinds, part.first_time, part.last_time, part.text_bytes,
    statement_timestamp(), part.data
  FROM numbered, unnest(%(start)s::int[], %(lines)s::int[], %(ranks)s::text[], %(kinds)s::int[],
    %(first_time)s::float8[], %(last_time)s::float8[], %(text_bytes)s::int[], %(data)b::bytea[]
  ) AS part(start, lines, ranks, kinds, first_time, last_time, text_bytes, data)
), seen AS (
  INSERT INTO logs_rankseen AS known (task_id, host, rank, lines, last_time)
  SELECT %(task)s, %(host)s, here.* FROM numbered,
    unnest(%(seen_rank)s::int[], %(seen_lines)s::bigint[], %(seen_time)s::float8[]) AS here
  ON CONFLICT (task_id, rank, host) DO UPDATE
  SET lines = known.lines + EXCLUDED.lines, last_time = GREATEST(known.last_time, EXCLUDED.last_time)
)
SELECT first FROM numbered
"""


def append(task_id: str, member: Member | None, host_name: str, blocks: Sequence[Block]) -> tuple[int, int]:
    """Store lines of one member (None: the server's own) and say which numbers they got, first and last.

    Runs in the caller's transaction, if any, and holds the task's log until it commits. With no blocks the answer
    is (n, n - 1), where n is the next number. Server-side lines of events that happened before come first.
    """
    source = Source(member.pk if member else None, host_name)
    wanted = _parameters(task_id, source, blocks)
    first = _append(wanted)
    if first is None:
        with transaction.atomic():
            log = _locked(task_id)
            if _merge(log):
                _save(log)
            first = _append({**wanted, "at_once": True})
            assert first is not None
    announce(f"log:{task_id}")
    return first, first + int(wanted["count"]) - 1


def append_shipped(
    task_id: str, member: Member, host_name: str, blocks: Sequence[Block], offset: int, new_offset: int
) -> tuple[int, int] | None:
    """Store lines and move the member's stream from `offset` to `new_offset`, in one statement.

    None: nothing is done, since the stream is elsewhere, or this is the first batch, or events come first, or the
    attempt is over; then it takes logs.streams.advance and `append`.
    """
    wanted = _parameters(task_id, Source(member.pk, host_name), blocks)
    wanted.update(member=member.pk, offset=offset, new_offset=new_offset)
    first = _append(wanted, _MOVED_AND_NUMBERED)
    if first is None:
        return None
    announce(f"log:{task_id}")
    return first, first + int(wanted["count"]) - 1


def _append(parameters: dict[str, Any], numbered: str = _NUMBERED) -> int | None:
    """The number of the first line, None when nothing was stored."""
    with prepared.cursor() as stores:
        stores.execute(numbered + _STORED, parameters)
        row = stores.fetchone()
    return int(row[0]) if row else None


def _parameters(task_id: str, source: Source, blocks: Sequence[Block]) -> dict[str, Any]:
    """What _APPEND wants to know."""
    parts = list(pack(source, blocks))
    counts: dict[int, int] = {}
    last: dict[int, float] = {}
    for part in parts:
        for rank, (lines, time) in part.written.items():
            counts[rank] = counts.get(rank, 0) + lines
            last[rank] = max(last.get(rank, time), time)
    ranks = sorted(counts)
    return {
        "task": task_id,
        "at_once": False,
        "count": sum(part.lines for part in parts),
        "members": [source.member_id] if source.member_id is not None else [],
        "hosts": [source.host],
        "host": source.host,
        "start": _array(accumulate((part.lines for part in parts[:-1]), initial=0) if parts else ()),
        "ranks": [_array(part.ranks) for part in parts],
        **{
            name: _array(getattr(part, name) for part in parts)
            for name in ("lines", "kinds", "first_time", "last_time", "text_bytes")
        },
        "data": [part.data for part in parts] or None,
        "seen_rank": _array(ranks),
        "seen_lines": _array(counts[rank] for rank in ranks),
        "seen_time": _array(last[rank] for rank in ranks),
    }


def _array(numbers: Iterable[float]) -> str:
    """Numbers as PostgreSQL reads an array: for psycopg to look at each of a list takes a multiple of that."""
    return f"{{{','.join(map(repr, numbers))}}}"


@transaction.atomic
def merge_events(task_id: str) -> int:
    """Write the task's new event rows into its log as server-side lines, and say how many lines that were."""
    log = _locked(task_id)
    first = log.next_line
    if _merge(log):
        _save(log)
        announce(f"log:{task_id}")
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
    task = task_of(log.pk)
    for event in new:
        said = sentence(event, task)
        if said is not None:
            lines.append(NewLine(event.at.timestamp(), None, SERVER, said.level.name, said.text))
    _write(log, lines)
    settled_before = timezone.now() - timedelta(seconds=EVENTS_SETTLE_SECONDS)
    merged = [*log.recent_events, *(event.pk for event in new)]
    if log.recent_events or any(event.at < settled_before for event in new):
        settled = Event.objects.filter(pk__in=merged, at__lt=settled_before).order_by("-id").first()
        if settled is not None:
            log.last_event = settled.pk
    log.recent_events = sorted(pk for pk in merged if pk > log.last_event)
    return True


def _write(log: TaskLog, lines: Sequence[NewLine]) -> None:
    """The server's own lines, of a log that is locked."""
    for packed in pack(Source(None, ""), blocks_of(lines)):
        as_chunk(log.pk, log.next_line, packed).save(force_insert=True)
        log.next_line += packed.lines


def as_chunk(task_id: str, first_line: int, packed: Packed) -> Chunk:
    """The packed lines as an unsaved row; the first of them gets the number `first_line`."""
    columns = {name: value for name, value in vars(packed).items() if name not in {"lines", "written"}}
    return Chunk(task_id=task_id, first_line=first_line, last_line=first_line + packed.lines - 1, **columns)
