"""Inserts many rows by one statement that carries each value once: what rows share is not repeated for each of them.

The values travel as one JSON text, which takes a tenth of the time that an array for each column would.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Model


def _text(value: object) -> str:
    if isinstance(value, datetime | UUID):
        return str(value)
    raise TypeError(f"{value!r} is not a value of a column.")


def insert(
    model: type[Model],
    columns: Mapping[str, Sequence[Any]],
    *,
    ignore_conflicts: bool = False,
    **same: Any,
) -> list[Any]:
    """Insert one row for each value of the columns; return the primary keys, in the order of the values.

    `columns`: values by attribute, as the database has them (the ids of foreign keys). All rows share `same` and the
    defaults of the other fields: what must differ, such as a secret, must be in `columns`. None is NULL, in a
    JSON column too.
    With `ignore_conflicts`, rows that exist already are left out.
    """
    template = model(**same)
    names, selected, values, given = [], [], [], []
    for field in model._meta.concrete_fields:
        kind = (field.db_type(connection) or "").split("(")[0]  # a cast to varchar(n) would cut silently
        if field.attname in columns:
            given.append((field.column, kind, columns[field.attname]))
            selected.append(f'given."{field.column}"')
        elif field.primary_key:
            continue
        else:
            values.append(field.get_db_prep_save(field.pre_save(template, add=True), connection=connection))
            selected.append(f"%s::{kind}")
        names.append(f'"{field.column}"')
    own = ", ".join(f'"{column}"' for column, _, _ in given)
    kinds = ", ".join(f'"{column}" {kind}' for column, kind, _ in given)
    rows = [
        dict(zip([column for column, _, _ in given], each, strict=True))
        for each in zip(*[each for _, _, each in given], strict=True)
    ]
    key = model._meta.pk
    assert key is not None
    with connection.cursor() as cursor:
        cursor.execute(
            f'INSERT INTO "{model._meta.db_table}" ({", ".join(names)}) SELECT {", ".join(selected)}'
            f" FROM ROWS FROM (json_to_recordset(%s) AS ({kinds})) WITH ORDINALITY AS given ({own}, place)"
            " ORDER BY place"
            f'{" ON CONFLICT DO NOTHING" if ignore_conflicts else ""} RETURNING "{key.column}"',
            [*values, json.dumps(rows, default=_text)],
        )
        return [row[0] for row in cursor.fetchall()]
