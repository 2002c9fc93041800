"""The one way to write event rows."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from django.db import DataError, connection

from events.models import Event

_AT_ONCE = 500
_FIELDS = [field for field in Event._meta.concrete_fields if not field.primary_key]
_ROW = f"({', '.join(['%s'] * len(_FIELDS))})"
_INSERT = f"INSERT INTO {Event._meta.db_table} ({', '.join(field.column for field in _FIELDS)}) VALUES"


def store(event: Event) -> Event:
    """Insert a new row, in the transaction that makes the change: each step of a run writes one, at a third of what
    Django's own insert costs. It has no id yet if it is inserted later (`together`)."""
    values = [
        field.get_db_prep_save(field.pre_save(event, add=True), connection=connection) for field in _FIELDS
    ]
    if _waiting.rows is None:
        event.pk = _insert([values])
    else:
        _waiting.rows.append(values)
    event._state.adding, event._state.db = False, connection.alias
    return event


def _insert(rows: Sequence[Sequence[Any]]) -> int:
    """The id of the first of them."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"{_INSERT} {', '.join([_ROW] * len(rows))} RETURNING id", [*chain.from_iterable(rows)]
        )
        return int(cursor.fetchone()[0])


class _Waiting(threading.local):
    """The rows of `together` that are not inserted yet; None outside of it."""

    rows: list[list[Any]] | None = None


_waiting = _Waiting()


@contextmanager
def together() -> Iterator[None]:
    """Insert the rows of the steps within by one statement, in their order; for the inside of a transaction.

    They are inserted at the end, before a statement that reads events, and before a savepoint begins or is over. So
    what cannot be inserted fails within the savepoint of its step, and a savepoint that is undone undoes its own.
    """
    if _waiting.rows is not None:
        yield
        return
    _waiting.rows = []
    try:
        with connection.execute_wrapper(_before):
            yield
        _insert_waiting()
    finally:
        _waiting.rows = None


def _before(execute: Callable[..., Any], sql: str, *how: Any) -> Any:
    if _waiting.rows:
        if sql.startswith("ROLLBACK"):
            _waiting.rows = []
        elif Event._meta.db_table in sql or sql.startswith(("SAVEPOINT", "RELEASE")):
            _insert_waiting()
    return execute(sql, *how)


def _insert_waiting() -> None:
    rows, _waiting.rows = _waiting.rows, []
    if not rows:
        return
    try:
        _insert(rows)
    except ValueError as error:  # Django undoes a savepoint at its end for an error of the database alone
        raise DataError(str(error)) from error


def record_all(events: Iterable[Event]) -> None:
    """Insert many new rows at once, in the transaction that makes their changes."""
    Event.objects.bulk_create(events, batch_size=_AT_ONCE)


def record(
    kind: Event.Kind,
    subject: object,
    *,
    from_state: str = "",
    to_state: str = "",
    reason: str = "",
    actor: str = "server",
    detail: dict[str, Any] | None = None,
    job_id: uuid.UUID | None = None,
    task_id: str = "",
    experiment_id: int | None = None,
    pools: Iterable[int] = (),
) -> Event:
    """Insert the row. Call it inside the transaction that makes the change."""
    return store(
        Event(
            kind=kind,
            subject=str(subject),
            from_state=from_state,
            to_state=to_state,
            reason=reason,
            actor=actor,
            detail=detail or {},
            job_id=job_id,
            task_id=task_id,
            experiment_id=experiment_id,
            pools=[*pools],
        )
    )


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, list[str]]:
    """What a change of fields changed, for an event's detail: field -> [was, now] as text, both empty where long."""
    return {
        field: [_text(was[field]), _text(value)] if field not in _LONG else ["", ""]
        for field, value in now.items()
        if was[field] != value
    }


#: fields of which an event says only that they changed
_LONG = {"description", "notes"}


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
