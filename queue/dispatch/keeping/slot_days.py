"""The sums of what held slots went to, by day, pool, user, experiment and part.

They are kept beside the records that say so of each member, since a year of a busy server has millions of these parts.
Whoever tells a record adds it here in the same transaction (`add`), so the two always agree; `differences` shows it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from django.db import connection, transaction

from jobs.models import SlotTimeOfDay

_TABLE = SlotTimeOfDay._meta.db_table
_KEY = "day, pool_id, owner_id, experiment_number, part"
_TOLD = """
SELECT day.key::date AS day, pool_id, owner_id, coalesce(experiment_number, 0) AS experiment_number, part.key AS part,
       sum(part.value::bigint)::bigint AS slot_microseconds
FROM jobs_usagerecord, jsonb_each(went_to) AS day, jsonb_each_text(day.value) AS part
WHERE slots > 0 AND went_to IS NOT NULL {which} GROUP BY 1, 2, 3, 4, 5
"""
#: in the order of the key, so that two who add at a time wait for each other and never in a circle
_ADD = f"""
INSERT INTO {_TABLE} AS sums ({_KEY}, slot_microseconds) SELECT * FROM ({_TOLD}) AS told ORDER BY {_KEY}
ON CONFLICT ({_KEY}) DO UPDATE SET slot_microseconds = sums.slot_microseconds + excluded.slot_microseconds
"""
_DIFFERENCES = f"""
SELECT {_KEY}, coalesce(told.slot_microseconds, 0), coalesce(sums.slot_microseconds, 0)
FROM ({_TOLD.format(which="")}) AS told FULL JOIN {_TABLE} AS sums USING ({_KEY})
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
    with connection.cursor() as cursor:
        cursor.execute(_ADD.format(which="AND run_key = ANY(%s)"), [list(run_keys)])


@transaction.atomic
def rebuild() -> int:
    """Make the sums again from the records; how many there are. Whoever adds waits until it is done."""
    with connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLE {_TABLE} IN EXCLUSIVE MODE")
        cursor.execute(f"DELETE FROM {_TABLE}")
        cursor.execute(_ADD.format(which=""))
        return int(cursor.rowcount)


def differences() -> list[Difference]:
    """Where the sums are not what the records say: nowhere, unless someone wrote one of the two by hand."""
    with connection.cursor() as cursor:
        cursor.execute(_DIFFERENCES)
        return [Difference(*row) for row in cursor.fetchall()]
