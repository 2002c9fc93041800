"""The one writer of samples: stores them as they come in, makes chunks large once their quarter of an hour is over, and
forgets what has been kept long enough.

The stream's offset, which the caller moves, lets each batch in once. The batches of a host become two rows in one
transaction: every point, and minutes with their lowest, highest and mean value. Points are kept for some hours, minutes
for as long as the server's setting says, both no longer than their task; minutes of no task for as long as a setting of
their own says.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet

from events.announce import announce
from metrics.chunks import cursor
from metrics.models import SampleChunk
from metrics.names import is_known
from metrics.packing import Floats
from metrics.sample_chunks import ZSTD_LEVEL_COLD, Samples, by_minute, joined, pack, unpack

#: a meter that says more is broken
_LARGEST = 1e15
#: and so is a clock, in epoch seconds: pages write out the times of what they show
_LATEST = 1e11
#: of one record; a host with 512 ranks and 16 GPUs has some 1,100
_MOST_COLUMNS = 4096

_STORE = """
INSERT INTO metrics_samplechunk (task_id, host_id, host, grain, first_time, last_time, points, columns, data)
VALUES (%(task)s, %(host_id)s, %(host)s, %(grain)s, %(first)s, %(last)s, %(points)s, %(columns)s, %(data)b)
"""
BLOCK_SECONDS = 900
#: a block is merged again for what a host ships later than this
_COLD_SECONDS = 60
_ROWS_PER_STEP = 2000

_DUE = f"""
SELECT task_id, host_id, floor(first_time / {BLOCK_SECONDS}) AS block
FROM metrics_samplechunk WHERE grain = %s AND last_time < %s
GROUP BY 1, 2, 3 HAVING (floor(first_time / {BLOCK_SECONDS}) + 1) * {BLOCK_SECONDS} < %s
LIMIT 5000
"""


def store(task_id: str, host_id: uuid.UUID, host: str, records: Iterable[Mapping[str, Any]]) -> int:
    """Store the `samples` records of a batch, in the caller's transaction, as one row; how many points they had.

    Hosts wrote them: a column or a record of another form than docs/protocol.md says counts as not given.
    """
    parts = [samples for record in records if (samples := read(record)) is not None]
    if not parts:
        return 0
    samples = joined(parts) if len(parts) > 1 else parts[0]
    _write([_row(task_id, host_id, host, samples)])
    announce(f"samples:{task_id}", f"hostsamples:{host_id}")
    return len(samples.times)


@transaction.atomic
def store_of_hosts(answers: Iterable[tuple[uuid.UUID, str, Mapping[str, Any]]]) -> int:
    """Store what hosts answered that were asked for a sample, in one transaction; how many hosts that were.

    Each is (host id, name, record); a record that cannot be read is left out.
    """
    found = [(host_id, host, read(record)) for host_id, host, record in answers]
    rows = [_row(None, host_id, host, samples) for host_id, host, samples in found if samples is not None]
    if rows:
        _write(rows)
        announce(*(f"hostsamples:{row['host_id']}" for row in rows))
    return len(rows)


def _row(task_id: str | None, host_id: uuid.UUID, host: str, samples: Samples) -> dict[str, Any]:
    return {
        "task": task_id,
        "host_id": host_id,
        "host": host,
        "grain": int(SampleChunk.Grain.SHIPPED),
        "first": float(samples.times[0]),
        "last": float(samples.times[-1]),
        "points": len(samples.times),
        "columns": list(samples.columns),
        "data": pack(samples, float(samples.times[0])),
    }


def _write(rows: list[dict[str, Any]]) -> None:
    with cursor() as sends:
        for row in rows:
            sends.execute(_STORE, row)


def read(record: Mapping[str, Any]) -> Samples | None:
    """The samples of a record, None without any that can be read."""
    times = _numbers(record.get("t"))
    values = record.get("v")
    if times is None or not len(times) or not isinstance(values, dict):
        return None
    if not ((times >= 0) & (times <= _LATEST)).all():
        return None
    columns: dict[str, Floats] = {}
    for name, column in values.items():
        if len(columns) < _MOST_COLUMNS and is_known(name):
            numbers = _numbers(column)
            if numbers is not None and len(numbers) == len(times) and not np.isnan(numbers).all():
                columns[name] = numbers
    if not columns:
        return None
    matrix = np.array(list(columns.values()), dtype=np.float32)
    return Samples.taken(times, list(columns), matrix)


def _numbers(column: object) -> Floats | None:
    """As an array, with NaN for null and for what no clock or meter says; None if it is not a list of numbers."""
    if not isinstance(column, list):
        return None
    try:
        numbers = np.array(column, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    if numbers.ndim != 1:
        return None
    numbers[np.abs(numbers) > _LARGEST] = np.nan
    return numbers


def merge_due(seconds: float, now: float | None = None) -> int:
    """Merge the blocks that are over for at most about so many seconds; how many rows fewer there are.

    `now` is in epoch seconds, by default the server's clock.
    """
    deadline = time.monotonic() + seconds
    before = (time.time() if now is None else now) - _COLD_SECONDS
    with connection.cursor() as cursor:
        cursor.execute(_DUE, [SampleChunk.Grain.SHIPPED, before, before])
        due = cursor.fetchall()
    fewer = 0
    for task_id, host_id, block in due:
        if time.monotonic() > deadline:
            break
        fewer += merge(task_id, host_id, float(block) * BLOCK_SECONDS)
    return fewer


@transaction.atomic
def merge(task_id: str | None, host_id: uuid.UUID, start: float) -> int:
    """Merge what a host of a task (None: of none) has shipped that begins in the block from `start` (epoch seconds) on.

    What came late goes in with what was merged before, as long as its points are kept.
    """
    block = SampleChunk.objects.select_for_update().filter(
        task_id=task_id,
        host_id=host_id,
        first_time__gte=start,
        first_time__lt=start + BLOCK_SECONDS,
    )
    all_rows = list(block.order_by("first_time"))
    rows = [row for row in all_rows if row.grain != SampleChunk.Grain.MINUTES]
    if all(row.grain == SampleChunk.Grain.POINTS for row in rows):
        return 0
    merged = {row.first_time for row in rows if row.grain == SampleChunk.Grain.POINTS}
    replaced = rows + [row for row in all_rows if row not in rows and row.first_time in merged]
    samples = joined([unpack(bytes(row.data), row.first_time, row.points, row.columns) for row in rows])
    SampleChunk.objects.filter(pk__in=[row.pk for row in replaced]).delete()
    SampleChunk.objects.bulk_create(
        [
            _chunk(rows[0], SampleChunk.Grain.POINTS, samples, samples),
            _chunk(rows[0], SampleChunk.Grain.MINUTES, by_minute(samples), samples),
        ]
    )
    return len(replaced) - 2


def _chunk(like: SampleChunk, grain: int, samples: Samples, points: Samples) -> SampleChunk:
    """A row of the same host; its times are those of the points, so that both rows say the same."""
    first = float(points.times[0])
    return SampleChunk(
        task_id=like.task_id,
        host_id=like.host_id,
        host=like.host,
        grain=grain,
        first_time=first,
        last_time=float(points.times[-1]),
        points=len(samples.times),
        columns=list(samples.columns),
        data=pack(samples, first, ZSTD_LEVEL_COLD),
    )


def remove_due(seconds: float, now: float | None = None) -> int:
    """Remove points and minutes that have been kept long enough, for at most about so many seconds; how many rows."""
    deadline = time.monotonic() + seconds
    now = time.time() if now is None else now
    points, minutes = (
        SampleChunk.objects.filter(grain=grain)
        for grain in (SampleChunk.Grain.POINTS, SampleChunk.Grain.MINUTES)
    )
    kept = (
        (points, settings.SAMPLE_POINTS_HOURS * 3600),
        (minutes, settings.SAMPLE_RETENTION_DAYS * 86_400),
        (minutes.filter(task_id=None), settings.HOST_SAMPLE_RETENTION_DAYS * 86_400),
    )
    return sum(removed(rows, now - age, deadline) for rows, age in kept if age >= 0)


def removed(rows: QuerySet[Any], before: float, deadline: float) -> int:
    """Remove the rows that end before this time until a deadline of the monotonic clock; how many that were."""
    count = 0
    while time.monotonic() < deadline:
        some = rows.filter(last_time__lt=before).order_by().values("pk")[:_ROWS_PER_STEP]
        found, _ = rows.model._default_manager.filter(pk__in=some).delete()
        count += found
        if found < _ROWS_PER_STEP:
            break
    return count
