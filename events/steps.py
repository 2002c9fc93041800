"""The one way to change the state of a row: a step that its table allows, guarded, with its event row (law 2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.db import connection, transaction
from django.db.models import Model

from events.models import Event
from events.record import store

#: For steps that are mostly part of a larger transaction, which what they raise undoes as a whole: a savepoint each
#: would cost two statements more.
joined = transaction.atomic(savepoint=False)

#: state -> the states that may follow it
Table = Mapping[Any, Collection[Any]]


def step(row: Model, table: Table, to: str, event: Event, *, field: str = "state", **values: Any) -> bool:
    """Change the state of a row, unless the table does not allow it or the state has changed since the row was read.

    `values` are written with the state, and the row in memory gets them all. `event` says why; it is stored in the
    same transaction, with both states. False: nothing was written.
    """
    from_state = str(getattr(row, field))
    if to not in table.get(from_state, ()):
        return False
    changes = {field: to, **values}
    with joined:
        if not _changed(row, field, from_state, changes):
            return False
        event.from_state, event.to_state = from_state, to
        store(event)
    for name, value in changes.items():
        setattr(row, name, value)
    return True


def _changed(row: Model, field: str, from_state: str, changes: Mapping[str, Any]) -> bool:
    """Whether the guarded update found its row. Plain values are written by a statement of ours: Django takes three
    times as long to write its own, and a run that ends at once makes ten steps."""
    model = type(row)
    if any(isinstance(value, Model) or hasattr(value, "resolve_expression") for value in changes.values()):
        return bool(model._base_manager.filter(pk=row.pk, **{field: from_state}).update(**changes))
    columns = [model._meta.get_field(name) for name in changes]
    values = [
        column.get_db_prep_save(value, connection=connection)  # type: ignore[union-attr]  # all are columns
        for column, value in zip(columns, changes.values(), strict=True)
    ]
    key, guard = model._meta.pk, model._meta.get_field(field)
    assert key is not None
    assigned = ", ".join(f'"{column.column}" = %s' for column in columns)  # type: ignore[union-attr]
    where = f'"{key.column}" = %s AND "{guard.column}" = %s'  # type: ignore[union-attr]
    with connection.cursor() as cursor:
        cursor.execute(
            f'UPDATE "{model._meta.db_table}" SET {assigned} WHERE {where}',
            [*values, key.get_db_prep_save(row.pk, connection=connection), from_state],
        )
        return bool(cursor.rowcount)
