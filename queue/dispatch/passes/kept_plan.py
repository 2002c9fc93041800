"""How a pool's plan is kept: whole once, then what has changed since, until that is a large part of it.

Of 10,000 waiting jobs a pass changes a few. The database and each reader keep the whole document, which is megabytes
long, and a pass writes and sends only the difference. Parts that are maps by task or job are compared key by key,
others as a whole. Reasons, which many tasks share, are written once, with the tasks that have them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.db import connection

from hosts.models import ResourcePool
from scheduling.reasons import Reason, WaitCode

Document = dict[str, Any]

#: The whole is written again once the changes are longer than this part of it.
MOST_CHANGES = 0.25

_READ = """
SELECT pool.planned_at, kept.took_ms, kept.written_at, kept.changes::text, kept.forecast_at, kept.forecast_ms,
  CASE WHEN coalesce(kept.written_at <> %(written_at)s, true) THEN kept.document::text END,
  CASE WHEN coalesce(kept.forecast_at <> %(forecast_at)s, true) THEN kept.forecast::text END
FROM hosts_resourcepool pool LEFT JOIN hosts_poolplan kept ON kept.pool_id = pool.id WHERE pool.id = %(pool)s
"""
_WHOLE = """
INSERT INTO hosts_poolplan (pool_id, document, changes, written_at, took_ms, forecast)
VALUES (%(pool)s, %(plan)s::jsonb, '{}', %(at)s, %(took_ms)s, '{}')
ON CONFLICT (pool_id) DO UPDATE SET
  document = excluded.document, changes = '{}', written_at = excluded.written_at, took_ms = excluded.took_ms
"""
_CHANGES = """
UPDATE hosts_poolplan SET changes = %(changes)s::jsonb, took_ms = %(took_ms)s WHERE pool_id = %(pool)s
"""
_SAME = "UPDATE hosts_poolplan SET took_ms = %(took_ms)s WHERE pool_id = %(pool)s"
_PLANNED = "UPDATE hosts_resourcepool SET planned_at = %(at)s WHERE id = %(pool)s"


@dataclass(frozen=True)
class Kept:
    """What is kept of a pool. `whole`: the document as of `written_at`; `size`: the length of its text."""

    planned_at: datetime | None = None
    took_ms: float | None = None
    written_at: datetime | None = None
    whole: Document = field(default_factory=dict)
    size: int = 0
    changes: Document = field(default_factory=dict)
    forecast_at: datetime | None = None
    forecast_ms: float | None = None
    forecast: Document = field(default_factory=dict)

    @property
    def document(self) -> Document:
        """The plan of the last pass."""
        return changed(self.whole, self.changes)


#: what this process read or wrote last, by pool
_known: dict[int, Kept] = {}


def read(pool_id: int) -> Kept:
    """What is kept now. Of the long parts only those are read that this process does not have."""
    known = _known.get(pool_id, Kept())
    with connection.cursor() as cursor:
        cursor.execute(
            _READ, {"pool": pool_id, "written_at": known.written_at, "forecast_at": known.forecast_at}
        )
        row = cursor.fetchone()
    if row is None:
        raise ResourcePool.DoesNotExist(f"There is no resource pool {pool_id}.")
    planned_at, took_ms, written_at, changes, forecast_at, forecast_ms, whole, forecast = row
    _known[pool_id] = found = Kept(
        planned_at,
        took_ms,
        written_at,
        known.whole if whole is None and written_at else _unpacked(json.loads(whole or "{}")),
        known.size if whole is None else len(whole),
        json.loads(changes or "{}"),
        forecast_at,
        forecast_ms,
        known.forecast if forecast is None and forecast_at else json.loads(forecast or "{}"),
    )
    return found


def reserved(pool_id: int) -> frozenset[str]:
    """The tasks for which the last pass has reserved hosts."""
    waits = read(pool_id).document.get("waits") or {}
    return frozenset(task for task, wait in waits.items() if wait["code"] == WaitCode.HELD)


def promised(pool_id: int) -> dict[str, list[str]]:
    """Task -> names of the hosts where work was stopped for it (`scheduling.spares.freed_for`)."""
    return read(pool_id).document.get("promised") or {}


def write(
    pool_id: int, waits: Mapping[str, Reason], parts: Document, took_ms: float, at: datetime
) -> tuple[Kept, bool]:
    """Keep the plan of a pass, within its transaction: what was kept before it, and whether the plan is another one.

    `parts`: all of the document but the reasons.
    """
    before = read(pool_id)
    text = json.dumps({**parts, "waits": _packed(waits)})
    document = _unpacked(json.loads(text))
    changes = difference(before.whole, document)
    written = json.dumps(changes)
    values: dict[str, Any] = {"pool": pool_id, "at": at, "took_ms": took_ms, "plan": text, "changes": written}
    same = before.written_at is not None and changes == before.changes
    is_long = before.written_at is None or len(written) > MOST_CHANGES * before.size
    with connection.cursor() as cursor:
        cursor.execute(_PLANNED, values)
        cursor.execute(_SAME if same else _WHOLE if is_long else _CHANGES, values)
    if is_long and not same:
        _known[pool_id] = replace(before, written_at=at, whole=document, size=len(text), changes={})
    return before, not same


def difference(was: Document, now: Document) -> Document:
    """What makes `now` of `was` (`changed`): "set", parts as a whole; "put" and "gone", keys of parts that are maps."""
    found: dict[str, Document] = {"set": {}, "put": {}, "gone": {}}
    for part, value in now.items():
        old = was.get(part)
        if not isinstance(value, dict) or not isinstance(old, dict):
            if value != old:
                found["set"][part] = value
            continue
        put = {key: each for key, each in value.items() if key not in old or old[key] != each}
        gone = [key for key in old if key not in value]
        if put:
            found["put"][part] = put
        if gone:
            found["gone"][part] = gone
    return {what: parts for what, parts in found.items() if parts}


def changed(was: Document, changes: Document) -> Document:
    """`was` with a `difference`."""
    now = {**was, **changes.get("set", {})}
    for part, keys in changes.get("gone", {}).items():
        without = set(keys)
        now[part] = {key: value for key, value in now[part].items() if key not in without}
    for part, values in changes.get("put", {}).items():
        now[part] = {**now[part], **values}
    return now


def _packed(waits: Mapping[str, Reason]) -> list[tuple[dict[str, object], list[str]]]:
    """Each reason with the tasks that have it: a pass gives most of them one of a few."""
    groups: dict[int, tuple[dict[str, object], list[str]]] = {}
    for task_id, reason in waits.items():
        group = groups.get(id(reason))
        if group is None:
            groups[id(reason)] = group = (reason.record(), [])
        group[1].append(task_id)
    return [*groups.values()]


def _unpacked(document: Document) -> Document:
    """The document as it is read: "waits" is a map from the task to its reason."""
    waits = {task_id: reason for reason, tasks in document.get("waits", ()) for task_id in tasks}
    return {**document, "waits": waits}
