"""The one writer of samples as they come in. The stream's offset, which the caller moves, lets each batch in once."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from django.db import transaction

from events.announce import announce
from metrics.chunks import cursor
from metrics.models import SampleChunk
from metrics.names import is_known
from metrics.packing import Floats
from metrics.sample_chunks import Samples, joined, pack

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
    """As an array, with NaN for null and for what no clock or meter says; None for what is no list of numbers."""
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
