"""Chunks of reports: tables as bytes and back, and the statements that move them.

`head` is three packed columns (metrics.packing) of integers, each behind its length (uint32): steps, times in
microseconds since the epoch, run numbers. `data` is a column per name, one after the other: a byte of flags, then

- with MASKED: a bit per report, the first report in the highest bit of the first byte: has it a number here?
- with OTHERS: a length (uint32) and JSON `{"<report>": value}` of what is no number, or no plain one;
- the packed numbers of the reports that have one.

A column lies uncompressed in PostgreSQL's TOAST, so that one of them can be read without those beside it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import psycopg
from django.db import connection

from metrics.packing import Floats, Integers, pack_floats, pack_integers, unpack_floats, unpack_integers
from metrics.table import Column, Flags, Table

#: A chunk with so many reports is not added to.
FULL = 1000

MASKED, OTHERS, WHOLE = 1, 2, 4
_LENGTH = struct.Struct("<I")


def pack_head(table: Table) -> bytes:
    parts = map(pack_integers, (table.steps, table.times, table.runs))
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def unpack_head(head: bytes, count: int) -> tuple[Integers, Integers, Integers]:
    """Steps, times in microseconds, run numbers."""
    parts, start = [], 0
    for _ in range(3):
        begin = start + _LENGTH.size
        start = begin + _LENGTH.unpack_from(head, start)[0]
        parts.append(unpack_integers(head[begin:start], count))
    return parts[0], parts[1], parts[2]


def pack_column(column: Column) -> bytes:
    flags, parts, numbers = WHOLE if column.whole else 0, [b""], column.values
    if not column.present.all():
        flags |= MASKED
        parts.append(np.packbits(column.present).tobytes())
        numbers = numbers[column.present]
    if column.others:
        flags |= OTHERS
        others = json.dumps(column.others, separators=(",", ":"), allow_nan=False).encode()
        parts += [_LENGTH.pack(len(others)), others]
    parts[0] = bytes([flags])
    return b"".join([*parts, pack_floats(numbers)])


def unpack_numbers(data: bytes, count: int) -> tuple[Floats, Flags | None]:
    """The numbers of a column, and which of its `count` reports have one; None: all have."""
    present, at = _present(data, count)
    if data[0] & OTHERS:
        at += _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
    return unpack_floats(data[at:], count if present is None else int(present.sum())), present


def unpack_column(data: bytes, count: int) -> Column:
    present, at = _present(data, count)
    others = {}
    if data[0] & OTHERS:
        begin = at + _LENGTH.size
        others = json.loads(data[begin : begin + _LENGTH.unpack_from(data, at)[0]])
    numbers, _ = unpack_numbers(data, count)
    if present is None:
        values, present = numbers, np.ones(count, np.bool_)
    else:
        values = np.full(count, np.nan)
        values[present] = numbers
    return Column(values, present, {int(row): value for row, value in others.items()}, bool(data[0] & WHOLE))


def _present(data: bytes, count: int) -> tuple[Flags | None, int]:
    if not data[0] & MASKED:
        return None, 1
    size = -(-count // 8)
    return np.unpackbits(np.frombuffer(data, np.uint8, size, 1), count=count).astype(np.bool_), 1 + size


def unpack(count: int, head: bytes, columns: Sequence[tuple[str, bytes]]) -> Table:
    """The table of a chunk, of the columns that were read."""
    return Table(*unpack_head(head, count), {name: unpack_column(data, count) for name, data in columns})


def pieces(table: Table, *, at_the_tail: bool) -> list[Table]:
    """A table cut into what chunks hold: full ones and a rest at the tail, equal ones where more may come between."""
    count = len(table)
    if count <= FULL:
        return [table]
    if at_the_tail:
        sizes = [min(FULL, count - start) for start in range(0, count, FULL)]
    else:
        share, more = divmod(count, -(-count // FULL))
        sizes = [share + (index < more) for index in range(-(-count // FULL))]
    return [table.taken(slice(*ends)) for ends in pairwise([0, *accumulate(sizes)])]


def insert(group_id: int, tables: Sequence[Table], *, archived: bool = False) -> None:
    """Write each table as a chunk."""
    with cursor() as sends:
        for table in tables:
            sends.execute(_INSERT, {"group": group_id, **values(table, archived=archived)})


def values(table: Table, *, archived: bool = False) -> dict[str, Any]:
    """What VALUES wants to know of a chunk."""
    columns = [pack_column(column) for column in table.columns.values()]
    return {
        "first": int(table.steps[0]),
        "last": int(table.steps[-1]),
        "count": len(table),
        "archived": archived,
        "names": list(table.columns),
        "ends": list(accumulate(map(len, columns))),
        "head": pack_head(table),
        "data": b"".join(columns),
    }


COLUMNS = "group_id, first_step, last_step, reports, archived, names, ends, head, data"
VALUES = """%(first)s::bigint, %(last)s::bigint, %(count)s::int, %(archived)s::bool, %(names)s::text[], %(ends)s::int[],
  %(head)b::bytea, %(data)b::bytea"""
_INSERT = f"INSERT INTO metrics_chunk ({COLUMNS}) VALUES (%(group)s, {VALUES})"


@contextmanager
def cursor() -> Iterator[psycopg.Cursor[Any]]:
    """psycopg's own, for bytes: Django's sends them as hex within the SQL."""
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as own:
        yield own


def live(
    where: str, parameters: Sequence[Any], names: Sequence[str] | None, first: int | None, last: int | None
) -> Iterator[Row]:
    """As `select`, without archived chunks and those that hold none of the steps from `first` to `last`."""
    where = f"{where} AND NOT chunk.archived"
    for condition, step in (("chunk.last_step >= %s", first), ("chunk.first_step <= %s", last)):
        if step is not None:
            where, parameters = f"{where} AND {condition}", [*parameters, step]
    return select(where, parameters, names)


def select(where: str, parameters: Sequence[Any], names: Sequence[str] | None) -> Iterator[Row]:
    """Chunks that `where` (about `chunk` and `metric_group`) chooses, by trial, group and step.

    With `names`, a chunk that has none of them is left out, and no other column is read from disk.
    """
    some = names is not None
    sql = f"{_SELECT_SOME if some else _SELECT_ALL} WHERE {where} {_WITH_SOME if some else ''} {_ORDER}"
    with cursor() as asks:
        asks.execute(sql, [list(names), *parameters] if names is not None else parameters, binary=True)
        for trial_id, group, count, head, found, ends, data in asks:
            if some:
                columns = list(zip(found, data, strict=True))
            else:
                starts = [0, *ends]
                columns = [
                    (name, data[start:end]) for name, start, end in zip(found, starts, ends, strict=False)
                ]
            yield trial_id, group, count, head, columns


#: trial, group, reports, head, (name, data) of its columns
Row = tuple[int, str, int, bytes, list[tuple[str, bytes]]]

_FROM = "FROM metrics_group metric_group JOIN metrics_chunk chunk ON chunk.group_id = metric_group.id"
_SELECT_ALL = f"""SELECT metric_group.trial_id, metric_group.name, chunk.reports, chunk.head,
  chunk.names, chunk.ends, chunk.data {_FROM}"""
_SELECT_SOME = f"""SELECT metric_group.trial_id, metric_group.name, chunk.reports, chunk.head,
  part.names, NULL, part.data {_FROM}
CROSS JOIN LATERAL (
  SELECT array_agg(place.name) AS names, array_agg(
    substring(chunk.data FROM coalesce(chunk.ends[place.i - 1], 0) + 1
              FOR chunk.ends[place.i] - coalesce(chunk.ends[place.i - 1], 0))) AS data
  FROM unnest(chunk.names) WITH ORDINALITY AS place(name, i) WHERE place.name = ANY(%s::text[])
) part"""
_WITH_SOME = "AND part.names IS NOT NULL"
_ORDER = "ORDER BY metric_group.trial_id, metric_group.name, chunk.first_step"
