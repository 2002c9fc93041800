"""The one way to change the state of a row: a step that its table allows, guarded, with its event row (law 2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.db import transaction
from django.db.models import Model

from events.models import Event

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
    with transaction.atomic(savepoint=False):
        unchanged = type(row)._base_manager.filter(pk=row.pk, **{field: from_state})
        if not unchanged.update(**changes):
            return False
        event.from_state, event.to_state = from_state, to
        event.save(force_insert=True)
    for name, value in changes.items():
        setattr(row, name, value)
    return True
