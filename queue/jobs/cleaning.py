"""Ended members of which processes may still live: their slots stay held; part of `jobs.transitions`, the one writer.

`dispatch.runs.cleaning` ends what is left, and says here what the host found.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from events.announce import announce
from events.models import Event
from events.record import store
from hosts.models import Slot
from hosts.pools import mark_dirty
from jobs.job_transitions import event_of
from jobs.models import Member, SlotHold
from jobs.states import MemberState, Reason
from scheduling.reasons import listed

Remains = list[dict[str, Any]]


def in_words(remains: Remains) -> str:
    """`pid 7`, `pid 7, pid 8, pid 9 and 5 more`; empty without any."""
    return listed(f"pid {process['pid']}" for process in remains if process.get("pid"))


def under_way() -> QuerySet[Member]:
    """Members that have ended and are being cleaned up."""
    return Member.objects.filter(cleaning_since__isnull=False)


def begin(member: Member, remains: Remains) -> None:
    """Keep the slots of a member that has ended; its allocation is locked by the caller."""
    Member.objects.filter(pk=member.pk).update(cleaning_since=Now(), cleaning_failed_at=None, remains=remains)
    _record(member, Reason.CLEANING, remains)


@transaction.atomic
def again(host_id: uuid.UUID, run_keys: set[tuple[str, int]]) -> int:
    """Processes of these members, (allocation, index) each, were seen on the host although they have ended.

    They are cleaned up once more, and hold those of their slots that nobody has been given since. The number of them.
    """
    rows = _locked(
        host_id=host_id, state=MemberState.ENDED, cleaning_since=None,
        allocation_id__in=[allocation_id for allocation_id, _ in run_keys],
    )  # fmt: skip
    found = [row for row in rows if (row.allocation_id, row.index) in run_keys]
    for member in found:
        slots = Slot.objects.select_for_update(of=("self",), no_key=True).filter(holds__member=member)
        held = set(
            SlotHold.objects.filter(slot__in=slots, released_at=None).values_list("slot_id", flat=True)
        )
        free = [slot for slot in slots.order_by("pk") if slot.pk not in held]
        with suppress(IntegrityError), transaction.atomic():  # a pass has given one away in this moment
            SlotHold.objects.filter(member=member, slot__in=free).update(released_at=None)
        begin(member, [])
        mark_dirty(member.host.pool_id)
    return len(found)


def _locked(**which: Any) -> QuerySet[Member]:
    rows = Member.objects.select_for_update(of=("self",), no_key=True)
    return rows.filter(**which).select_related("host", "allocation__task").order_by("pk")


@transaction.atomic
def still_there(member_id: int, remains: Remains) -> None:
    """Keep what the host found this time, for those who look."""
    if under_way().filter(pk=member_id).exclude(remains=remains).update(remains=remains):
        announce("hosts")


@transaction.atomic
def failed(member_id: int) -> bool:
    """What is left survives SIGKILL. False: that was known, and a person may have decided about it since."""
    member = _locked(pk=member_id).get()
    if member.cleaning_since is None or member.cleaning_failed_at is not None:
        return False
    Member.objects.filter(pk=member_id).update(cleaning_failed_at=Now())
    _record(member, Reason.STOP_TIMED_OUT, member.remains)
    return True


@transaction.atomic
def done(member_id: int) -> bool:
    """Nothing of the member is left on its host: its slots are free. False: that was known."""
    member = _locked(pk=member_id).get()
    if member.cleaning_since is None:
        return False
    Member.objects.filter(pk=member_id).update(cleaning_since=None, cleaning_failed_at=None, remains=[])
    SlotHold.objects.filter(member=member, released_at=None).update(released_at=Now())
    _record(member, Reason.CLEANED, member.remains)
    mark_dirty(member.host.pool_id)
    return True


def _record(member: Member, reason: Reason, remains: Remains) -> None:
    task, host = member.allocation.task, member.host.name
    detail = {"host": host, "index": member.index, "remains": remains}
    event = event_of(Event.Kind.MEMBER, member.run_key, task, reason, f"host:{host}", detail)
    event.to_state = reason  # of its slots: the member itself stays as it ended
    store(event)
    announce("hosts", f"allocation:{member.allocation_id}")
