"""Removes logs of ended tasks for good, in bounded steps that may be interrupted, and says how much logs hold.

Removing begins with a line that says so, which stays: a log whose lines are gone never looks as if nothing had been
written. Whose time has come is decided above (dispatch.keeping.log_retention).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from django.db import connection, transaction
from django.utils import timezone

from events.models import Event
from events.record import record
from jobs.models import Task
from jobs.states import TaskState
from logs import store
from logs.levels import Level
from logs.lines import SERVER, NewLine, blocks_of
from logs.models import Chunk, RankSeen, Retention, TaskLog

FOR_EVER = -1
DAYS_MAX = 32_767
#: Of one transaction, which holds the task's log: some hundred thousand lines.
CHUNKS_PER_STEP = 500


class Held(NamedTuple):
    """What logs hold: lines, the bytes of their text, and the bytes in which they are stored."""

    lines: int = 0
    text_bytes: int = 0
    stored_bytes: int = 0

    def plus(self, other: Held) -> Held:
        return Held(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


@transaction.atomic
def keep(task_id: str, days: int | None, *, actor: str) -> None:
    """Keep the task's log so many days after its end, -1 for ever, None as its config or the server says."""
    Retention.objects.update_or_create(task_id=task_id, defaults={"days": days})
    detail = {"days": days}
    record(
        Event.Kind.TASK, task_id, reason="log_retention_changed", actor=actor, detail=detail, task_id=task_id
    )


@transaction.atomic
def begin(task_id: str, why: str) -> bool:
    """Say in the log that all lines so far are removed; `step` removes them. False when the task has not ended."""
    task = Task.objects.select_for_update().filter(pk=task_id, state=TaskState.ENDED).first()
    if task is None:
        return False
    said = NewLine(timezone.now().timestamp(), None, SERVER, Level.INFO.name, why)
    first, _ = store.append(task_id, None, "", blocks_of([said]))
    Retention.objects.update_or_create(
        task_id=task_id, defaults={"removed_line": first - 1, "removed_at": timezone.now()}
    )
    RankSeen.objects.filter(task_id=task_id).delete()
    return True


@transaction.atomic
def step(task_id: str, chunks: int = CHUNKS_PER_STEP) -> Held:
    """Remove the oldest chunks that `begin` has spoken of; nothing is left to remove when none of them held a line."""
    if TaskLog.objects.select_for_update().filter(pk=task_id).first() is None:
        return Held()
    removed_line = Retention.objects.filter(pk=task_id).values_list("removed_line", flat=True).first() or 0
    with connection.cursor() as cursor:
        # chunks that were merged while this waited for them are there only at the second look
        for _ in range(2):
            cursor.execute(_REMOVE, {"task": task_id, "line": removed_line, "chunks": chunks})
            held = Held(*cursor.fetchone())
            if held.lines:
                break
    return held


#: In the order in which merging locks them.
_REMOVE = """
WITH removed AS (
  DELETE FROM logs_chunk WHERE id IN (
    SELECT id FROM logs_chunk WHERE task_id = %(task)s AND last_line <= %(line)s ORDER BY first_line LIMIT %(chunks)s
    FOR UPDATE)
  RETURNING last_line - first_line + 1 AS lines, text_bytes, octet_length(data) AS stored
)
SELECT COALESCE(sum(lines), 0)::bigint, COALESCE(sum(text_bytes), 0)::bigint, COALESCE(sum(stored), 0)::bigint
FROM removed
"""


def held() -> Held:
    """By all logs together."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {_SUMS} FROM logs_chunk")
        return Held(*cursor.fetchone())


def held_by(task_ids: Collection[str]) -> dict[str, Held]:
    """By each of the tasks' logs; those without a line are left out."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT task_id, {_SUMS} FROM logs_chunk WHERE task_id = ANY(%s) GROUP BY task_id",
            [list(task_ids)],
        )
        return {task_id: Held(*sums) for task_id, *sums in cursor.fetchall()}


_SUMS = """
COALESCE(sum(last_line - first_line + 1), 0)::bigint, COALESCE(sum(text_bytes), 0)::bigint,
COALESCE(sum(octet_length(data)), 0)::bigint
"""


def tasks_with_logs() -> int:
    """How many tasks have a line."""
    return Chunk.objects.values("task_id").distinct().count()
