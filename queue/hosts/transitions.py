"""The one writer of a host's admission and of its contact (law 2).

Both are guarded steps of a row that the caller has read: they change it only if their table allows the step and nobody
has changed it since. Losing a race is not an error: the function returns False and has changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from events.announce import announce
from events.models import Event
from events.record import record
from events.steps import Table, step
from hosts.models import Host
from hosts.pools import mark_dirty
from hosts.states import ADMISSION_STEPS, CONTACT_STEPS, Admission, Contact


def set_admission(
    host: Host,
    to: Admission,
    *,
    reason: str,
    actor: str,
    sentence: str = "",
    detail: dict[str, Any] | None = None,
    **values: Any,
) -> bool:
    """`sentence`: for people, what stands in the way of using the host. `values` are written with the step."""
    if Admission.REMOVED in {host.admission, to}:
        values["contact"] = Contact.UNKNOWN
    event = event_of(host, reason, actor, {"name": host.name, **(detail or {})})
    return _step(
        host, ADMISSION_STEPS, to, event, field="admission", state_reason=sentence, probe_after=None, **values
    )


def set_contact(host: Host, to: Contact, *, silent_for: timedelta | None) -> bool:
    """`silent_for`: how long the host has been silent, or was."""
    detail = {
        "silent_seconds": silent_for.total_seconds() if silent_for is not None else None,
        "sentence": host.contact_error,
    }
    reason = "answered" if to == Contact.REACHABLE else "silent"
    return _step(
        host, CONTACT_STEPS, to, event_of(host, reason, f"host:{host.name}", detail), field="contact"
    )


def note(
    host: Host,
    reason: str,
    actor: str,
    detail: dict[str, Any],
    *,
    to_state: str = "",
    left: Iterable[int] = (),
) -> None:
    """Record the event of a change that is not a state step. `left`: the pool that the host was in before."""
    pools = [*left, host.pool_id]
    record(
        Event.Kind.HOST, host.pk, to_state=to_state, reason=reason, actor=actor, detail=detail, pools=pools
    )
    announce("hosts")


def event_of(host: Host, reason: str, actor: str, detail: dict[str, Any], *, to_state: str = "") -> Event:
    """The event of a change of the host, for whoever stores it with the change."""
    about = {"kind": Event.Kind.HOST, "subject": str(host.pk), "pools": [host.pool_id]}
    return Event(**about, reason=reason, actor=actor, detail=detail, to_state=to_state)


def _step(host: Host, table: Table, to: str, event: Event, *, field: str, **values: Any) -> bool:
    if not step(host, table, to, event, field=field, **values):
        return False
    announce("hosts")
    mark_dirty(host.pool_id)
    return True
