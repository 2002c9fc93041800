"""The sums of what held slots went to, by day, pool, user, experiment and part.

They are kept beside the records that say so of each member, since a year of a busy server has millions of these parts.
Whoever tells a record adds it here in the same transaction (`add`). What a server of an older version told, during an
upgrade or before it, is added later (`add_rest`); `UsageRecord.in_sums` says what is. `differences` compares the two.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from django.db import connection, transaction

from jobs.models import SlotTimeOfDay

#: records that one round adds
_MOST = 5000
_TABLE = SlotTimeOfDay._meta.db_table
_KEY = "day, pool_id, owner_id, experiment_number, part"
_TOLD = """
SELECT day.key::date AS day, pool_id, owner_id, coalesce(experiment_number, 0) AS experiment_number, part.key AS part,
       sum(part.value::bigint)::bigint AS slot_microseconds
FROM {records} AS record, jsonb_each(went_to) AS day, jsonb_each_text(day.value) AS part
WHERE slots > 0 AND went_to IS NOT NULL AND {which} GROUP BY 1, 2, 3, 4, 5
"""
_IN_SUMS = _TOLD.format(records="jobs_usagerecord", which="in_sums")
#: of all that is told
DAYS = f"""
SELECT {_KEY}, slot_microseconds FROM {_TABLE}
UNION ALL ({_TOLD.format(records="jobs_usagerecord", which="NOT in_sums")})
"""
#: in the order of the key, so that two who add at a time wait for each other and never in a circle
_INSERT = f"""
INSERT INTO {_TABLE} AS sums ({_KEY}, slot_microseconds) SELECT * FROM ({{told}}) AS told ORDER BY {_KEY}
ON CONFLICT ({_KEY}) DO UPDATE SET slot_microseconds = sums.slot_microseconds + excluded.slot_microseconds
"""
_ADD = f"""
WITH added AS (
  UPDATE jobs_usagerecord SET in_sums = true
  WHERE run_key = ANY({{run_keys}}) AND NOT in_sums AND went_to IS NOT NULL RETURNING *)
{_INSERT.format(told=_TOLD.format(records="added", which="true"))}
"""
#: none that somebody adds now
_REST = """ARRAY(
  SELECT run_key FROM jobs_usagerecord WHERE NOT in_sums AND went_to IS NOT NULL
  ORDER BY ended_at DESC LIMIT %s FOR UPDATE SKIP LOCKED)
"""
_DIFFERENCES = f"""
SELECT {_KEY}, coalesce(told.slot_microseconds, 0), coalesce(sums.slot_microseconds, 0)
FROM ({_IN_SUMS}) AS told FULL JOIN {_TABLE} AS sums USING ({_KEY})
WHERE told.slot_microseconds IS DISTINCT FROM sums.slot_microseconds ORDER BY {_KEY}
"""


class Difference(NamedTuple):
    """Where the sums are not what the records say."""

    day: object
    pool_id: int
    owner_id: int
    experiment_number: int
    part: str
    told: int
    summed: int


def add(run_keys: Collection[str]) -> None:
    """Add what these records have been told to the sums, in the transaction that tells them."""
    _run(_ADD.format(run_keys="%s"), list(run_keys))


def add_rest(most: int | None = _MOST) -> None:
    """Add what is told and not in the sums, the latest first; at most so many records, None: all."""
    _run(_ADD.format(run_keys=_REST), most)


@transaction.atomic
def rebuild() -> int:
    """Make the sums again from the records; how many there are. Whoever adds waits until it is done."""
    _run(f"LOCK TABLE {_TABLE} IN EXCLUSIVE MODE; DELETE FROM {_TABLE}")
    _run(_INSERT.format(told=_IN_SUMS))
    add_rest(None)
    return SlotTimeOfDay.objects.count()


def _run(statement: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)


def differences() -> list[Difference]:
    """Where the sums are not what the records in them say: nowhere, unless someone wrote one of the two by hand."""
    with connection.cursor() as cursor:
        cursor.execute(_DIFFERENCES)
        return [Difference(*row) for row in cursor.fetchall()]
