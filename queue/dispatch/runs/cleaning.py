"""Ends what is left of runs that are over, and lets go of their slots when the host says that nothing is.

A process that survives SIGKILL sits in the kernel: its host is drained, with a sentence for people, until it is gone.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings

from dispatch.going_on import going_on
from dispatch.ssh import remote
from events import presence
from hosts import server_drains
from hosts.models import Host, Slot
from jobs import cleaning
from jobs.labels import label_of
from jobs.models import Member

log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 30.0
#: of a run's launch, by which the clocks of rows and hosts may differ
_SLACK_SECONDS = 5.0
_MOST_NOTED = 16


def due(host: Host) -> list[Member]:
    """The members that are being cleaned up there."""
    rows = cleaning.under_way().filter(host=host)
    return list(rows.select_related("host", "allocation__task__job__owner", "allocation__pool"))


def clean(host: Host) -> None:
    """Signal what is left of these members, and note what has become of it."""
    members = due(host)
    if not members:
        if host.drain_cause == Host.Drain.CLEANUP:  # whoever let go of the last slot was killed before this
            server_drains.lift_drain(host.pk)
        return
    now = presence.database_now()
    orders = {member.run_key: _order(member, now) for member in members}
    try:
        answer = remote.verb(host, "clean", {"runs": orders}, timeout_seconds=_TIMEOUT_SECONDS)
    except remote.RemoteError as error:
        log.info("cannot tell what is left on %s: %s", host.name, error)
        return
    take_in(host.pk, members, answer["runs"])


def _order(member: Member, now: datetime) -> dict[str, Any]:
    slots = list(Slot.objects.filter(holds__member=member, holds__released_at=None).exclude(uuid=""))
    order: dict[str, Any] = {
        "signal": "TERM" if _seconds(member, now) < settings.CLEANING_GRACE_SECONDS else "KILL",
        "account": member.allocation.account,
        "devices": [slot.uuid for slot in slots],
        "strangers": [slot.outside["pid"] for slot in slots if slot.outside.get("pid")],
    }
    if member.launched_at:
        order["launched_seconds"] = (now - member.launched_at).total_seconds() + _SLACK_SECONDS
        order["ended_seconds"] = (now - (member.surely_ended_at or now)).total_seconds()
    return order


def _seconds(member: Member, now: datetime) -> float:
    """For how long it has been cleaned up, by the database's clock."""
    return (now - (member.cleaning_since or now)).total_seconds()


def take_in(host_id: uuid.UUID, members: Iterable[Member], runs: Mapping[str, Mapping[str, Any]]) -> None:
    """What the host answered of each; one that it could not look at stays as it is."""
    now = presence.database_now()
    for member in members:
        with going_on(f"the cleanup after {member.run_key}"):  # its account may answer anything
            _take_in(host_id, member, runs.get(member.run_key, {}), now)
    if not cleaning.under_way().filter(host_id=host_id, cleaning_failed_at__isnull=False).exists():
        server_drains.lift_drain(host_id)


def _take_in(host_id: uuid.UUID, member: Member, found: Mapping[str, Any], now: datetime) -> None:
    is_late = _seconds(member, now) > settings.CLEANING_GRACE_SECONDS + settings.UNKILLABLE_SECONDS
    if found.get("count") == 0:
        cleaning.done(member.pk)
    elif "left" in found:
        cleaning.still_there(member.pk, found["left"])
        if is_late and cleaning.failed(member.pk):
            server_drains.drain_for_cleanup(host_id, _sentence(member, found["left"]))
    elif "error" in found and is_late and cleaning.failed(member.pk):
        why = f"{_about(member)} is not possible: {found.get('message')}"
        server_drains.drain_for_cleanup(
            host_id, f"{why} The host is drained and its slots stay held until it is possible again."
        )


def _about(member: Member) -> str:
    job = member.allocation.task.job
    return f"Cleanup after {label_of(job.kind, job.entity_id)} of {job.owner.username} on {member.host.name}"


def _sentence(member: Member, left: list[dict[str, Any]]) -> str:
    shown = "; ".join(
        f"pid {process['pid']} ({process.get('command') or 'unknown'}, account {process.get('user') or 'unknown'})"
        for process in left[:3]
    )
    more = f" and {len(left) - 3} more" if len(left) > 3 else ""
    return (
        f"{_about(member)} failed: {shown}{more} survived SIGKILL. "
        "The host is drained and its slots stay held until these processes are gone; restart the host if they stay."
    )


def overdue(run: Mapping[str, Any]) -> bool:
    """Whether what is left of a run has been sent SIGKILL for so long that its end is not waited for any more."""
    seconds = run.get("killed_seconds")
    return (
        bool(run.get("pids")) and isinstance(seconds, int | float) and seconds > settings.UNKILLABLE_SECONDS
    )


def remains_of(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The first processes in the host's answer to `status`; `clean` says more of them."""
    return [{"pid": pid} for pid in list(run.get("pids") or ())[:_MOST_NOTED]]
