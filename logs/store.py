"""The one writer of a task's log. Lines get their numbers under the TaskLog row's lock (law 4)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import accumulate
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from events.announce import announce
from events.models import Event
from events.prepared import cursor
from events.steps import joined
from jobs.models import Member, Task
from logs import streams
from logs.chunks import Packed, Source, pack
from logs.lines import NO_RANK, SERVER, Block, NewLine, blocks_of
from logs.models import Chunk, TaskLog
from logs.sentences import sentence, tasks_of

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
            _merge([_locked(task_id)])
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
    with cursor() as writes:
        writes.execute(numbered + _STORED, parameters)
        row = writes.fetchone()
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


@joined
def merge_events(task_id: str, known: Task | None = None) -> int:
    """Write new event rows of the task into its log as server-side lines, and return how many lines that were.

    `known`: the task with its job, if the caller has read it.
    """
    return _merge_and_announce([_locked(task_id)], known)


def merge_free(task_ids: Collection[str]) -> list[str]:
    """Merge events into many logs by the same statements, and return the tasks whose logs others hold.

    It holds many logs, so it waits for none meanwhile: whoever holds one may wait for what the holder of another has.
    For the same reason it is a transaction of its own, and so is each log that has no row yet.
    """
    with cursor() as asks:
        asks.execute(_WITHOUT_ROW, [list(task_ids)])
        without_row = [task_id for (task_id,) in asks.fetchall()]
        for task_id in without_row:
            asks.execute(_MAKE, [task_id])
    with transaction.atomic(durable=True):
        with cursor() as asks:
            asks.execute(_LOCK_FREE, [list(task_ids)])
            logs = [TaskLog.from_db(connection.alias, _LOG_COLUMNS, row) for row in asks.fetchall()]
        _merge_and_announce(logs)
    return sorted(set(task_ids) - {log.pk for log in logs})


def _merge_and_announce(logs: Sequence[TaskLog], known: Task | None = None) -> int:
    lines = _merge(logs, known)
    announce(*[f"log:{task_id}" for task_id, count in lines.items() if count])
    return sum(lines.values())


def unmerged(task_ids: Collection[str]) -> list[str]:
    """Those of the tasks that have events which are not in their logs yet, by one statement."""
    with cursor() as asks:
        asks.execute(_UNMERGED, [list(task_ids)])
        return [row[0] for row in asks.fetchall()]


_UNMERGED = """
SELECT DISTINCT event.task_id FROM events_event event LEFT JOIN logs_tasklog log ON log.task_id = event.task_id
WHERE event.task_id = ANY(%s) AND (
  log.task_id IS NULL OR (event.id > log.last_event AND NOT event.id = ANY(log.recent_events)))
"""


def _locked(task_id: str) -> TaskLog:
    """The task's log, locked for the rest of the transaction; it gets a row if it has none yet."""
    with cursor() as asks:
        asks.execute(_LOCK, [task_id])
        return TaskLog.from_db(connection.alias, _LOG_COLUMNS, asks.fetchone())


_LOG_COLUMNS = ("task_id", "next_line", "last_event", "recent_events")
_NEW_ROW = """
INSERT INTO logs_tasklog (task_id, next_line, merged_line, last_event, recent_events)
VALUES (%s, 1, 0, 0, ARRAY[]::bigint[]) ON CONFLICT (task_id)
"""
#: The update changes nothing: it locks a row that exists.
_LOCK = f"{_NEW_ROW} DO UPDATE SET task_id = EXCLUDED.task_id RETURNING {', '.join(_LOG_COLUMNS)}"
_MAKE = f"{_NEW_ROW} DO NOTHING"
_WITHOUT_ROW = """
SELECT DISTINCT wanted FROM unnest(%s::text[]) AS wanted
WHERE NOT EXISTS (SELECT FROM logs_tasklog WHERE task_id = wanted)
"""
_LOCK_FREE = f"""
SELECT {", ".join(_LOG_COLUMNS)} FROM logs_tasklog WHERE task_id = ANY(%s) FOR NO KEY UPDATE SKIP LOCKED
"""
_EVENT_COLUMNS = (
    "id", "at", "kind", "subject", "from_state", "to_state", "reason", "actor", "detail", "job_id", "task_id",
    "experiment_id",
)  # fmt: skip
_DETAIL = _EVENT_COLUMNS.index("detail")
#: Each with the newest of the merged events of its log that is settled.
_NEW_EVENTS = f"""
SELECT {", ".join(f"event.{column}" for column in _EVENT_COLUMNS)}, (
  SELECT max(merged.id) FROM events_event merged
  WHERE merged.id = ANY(log.recent_events) AND merged.at < %(settled_before)s)
FROM events_event event JOIN logs_tasklog log ON log.task_id = event.task_id
WHERE event.task_id = ANY(%(tasks)s) AND event.id > log.last_event AND NOT event.id = ANY(log.recent_events)
ORDER BY event.id
"""


def _merge(logs: Sequence[TaskLog], known: Task | None = None) -> dict[str, int]:
    """Write new events into these locked logs. Task id -> the number of lines, of each log that had new events.

    Ids are given before they are committed, so an event may become visible after one with a higher id was
    merged. Hence the merged ids of the last minutes are kept by name, and `last_event` only follows behind.
    """
    new = _new_events({log.pk: log for log in logs})
    tasks = {known.pk: known} if known else tasks_of(new)
    changed = [log for log in logs if log.pk in new]
    packed = {
        log.pk: list(pack(Source(None, ""), blocks_of(_lines(new[log.pk], tasks.get(log.pk)))))
        for log in changed
    }
    if changed:
        _write(changed, packed)
    return {task_id: sum(part.lines for part in parts) for task_id, parts in packed.items()}


def _new_events(logs: Mapping[str, TaskLog]) -> dict[str, list[Event]]:
    """The events that are not in these logs yet, by task; the logs, in memory, have them from now on."""
    settled_before = timezone.now() - timedelta(seconds=EVENTS_SETTLE_SECONDS)
    with cursor() as asks:
        asks.execute(_NEW_EVENTS, {"tasks": list(logs), "settled_before": settled_before})
        rows = asks.fetchall()
    new: dict[str, list[Event]] = {}
    for *values, settled in rows:
        values[_DETAIL] = json.loads(values[_DETAIL])
        event = Event.from_db(connection.alias, _EVENT_COLUMNS, values)
        log = logs[event.task_id]
        new.setdefault(log.pk, []).append(event)
        log.recent_events.append(event.pk)
        log.last_event = max(log.last_event, settled or 0, event.pk if event.at < settled_before else 0)
    for task_id in new:
        log = logs[task_id]
        log.recent_events = sorted(pk for pk in log.recent_events if pk > log.last_event)
    return new


def _lines(events: Sequence[Event], task: Task | None) -> Iterator[NewLine]:
    for event in events:
        said = sentence(event, task)
        if said is not None:
            yield NewLine(event.at.timestamp(), None, SERVER, said.level.name, said.text)


def _write(logs: Sequence[TaskLog], packed: Mapping[str, Sequence[Packed]]) -> None:
    """The server's own lines, and what is merged now, of logs that are locked: one statement for all of them."""
    chunks = []
    for log in logs:
        for part in packed[log.pk]:
            chunks.append((log.pk, log.next_line, part))
            log.next_line += part.lines
    parts = [part for _, _, part in chunks]
    wanted = {
        "logs": [log.pk for log in logs],
        "next_lines": [log.next_line for log in logs],
        "last_events": [log.last_event for log in logs],
        "recent_events": [f"{{{','.join(map(str, log.recent_events))}}}" for log in logs],
        "tasks": [task_id for task_id, _, _ in chunks],
        "firsts": [first for _, first, _ in chunks],
        **{
            name: [getattr(part, name) for part in parts]
            for name in ("lines", "kinds", "first_time", "last_time", "text_bytes")
        },
        "data": [part.data for part in parts] or None,
    }
    with cursor() as writes:
        writes.execute(_WRITE, wanted)


#: The server is neither a member nor a rank.
_WRITE = f"""
WITH saved AS (
  UPDATE logs_tasklog log
  SET next_line = now.next_line, last_event = now.last_event, recent_events = now.recent_events::bigint[]
  FROM unnest(%(logs)s::text[], %(next_lines)s::bigint[], %(last_events)s::bigint[], %(recent_events)s::text[])
    AS now(task_id, next_line, last_event, recent_events)
  WHERE log.task_id = now.task_id
)
INSERT INTO logs_chunk (task_id, first_line, last_line, members, hosts, ranks, kinds,
                        first_time, last_time, text_bytes, stored_at, data)
SELECT task_id, first, first + lines - 1, ARRAY[]::bigint[], ARRAY[''], ARRAY[{NO_RANK}], kinds,
  first_time, last_time, text_bytes, statement_timestamp(), data
FROM unnest(%(tasks)s::text[], %(firsts)s::bigint[], %(lines)s::int[], %(kinds)s::int[], %(first_time)s::float8[],
    %(last_time)s::float8[], %(text_bytes)s::int[], %(data)b::bytea[]
  ) AS part(task_id, first, lines, kinds, first_time, last_time, text_bytes, data)
"""


def as_chunk(task_id: str, first_line: int, packed: Packed) -> Chunk:
    """The packed lines as an unsaved row; the first of them gets the number `first_line`."""
    columns = {name: value for name, value in vars(packed).items() if name not in {"lines", "written"}}
    return Chunk(task_id=task_id, first_line=first_line, last_line=first_line + packed.lines - 1, **columns)
