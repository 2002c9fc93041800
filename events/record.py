"""The one way to write event rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from events.models import Event


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
    return Event.objects.create(
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
