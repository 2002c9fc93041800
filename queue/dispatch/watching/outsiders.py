"""Who computes on a host's GPUs without the queue: asked with the status of its runs, now and then."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from events import presence
from hosts import slots
from hosts.models import Host
from jobs import cleaning
from jobs.models import Member, SlotHold
from jobs.states import MemberState
from trainmaster.protocol import ProtocolError, check_run_key

#: a process of ours whose run the host could not read (docs/protocol.md)
_OURS = "?"
#: by which the times of rows and hosts may differ
_SLACK_SECONDS = 5.0


def question(host: Host) -> dict[str, bool]:
    """What to add to a `status` request: nothing where there is no GPU, or where it was asked just now."""
    due = timezone.now() - timedelta(seconds=settings.GPU_USERS_SECONDS)
    asked = host.gpu_users_at is not None and host.gpu_users_at > due
    return {} if asked or not any(slot.uuid for slot in host.slots.all()) else {"gpu_users": True}


def take_in(host_id: uuid.UUID, answer: Mapping[str, Any]) -> None:
    """Note what the host said, if it was asked and could tell.

    Processes of a run that has ended are ended: nobody else may be given what they use. One that only carries a run's
    marker is from outside, and costs no more than the GPU that it uses. What a run holds is its own until it ends.
    """
    users: Mapping[str, Sequence[dict[str, Any]]] | None = answer.get("gpu_users")
    if users is None:
        return
    runs = {str(user["run"]) for here in users.values() for user in here if user.get("run")}
    known = {member.run_key: member for member in members(host_id, runs)}
    open_holds = SlotHold.objects.filter(member__in=known.values(), released_at=None)
    held = set(open_holds.values_list("slot__uuid", "member_id"))
    now = presence.database_now()

    def is_ours(gpu: str, user: Mapping[str, Any]) -> bool:
        member = known.get(str(user.get("run")))
        if member is None:
            return user.get("run") == _OURS
        if member.state != MemberState.ENDED and (gpu, member.pk) in held:
            return True
        return _is_by_account(member, user) and _may_be_of(member, user, now)

    ours = {user["run"] for gpu, here in users.items() for user in here if is_ours(gpu, user)}
    left = {
        (member.allocation_id, member.index)
        for key, member in known.items()
        if key in ours and member.state == MemberState.ENDED and member.cleaning_since is None
    }
    if left:
        cleaning.again(host_id, left)
    strangers = {gpu: [user for user in here if not is_ours(gpu, user)] for gpu, here in users.items()}
    slots.note_outside(host_id, strangers)


def _is_by_account(member: Member, user: Mapping[str, Any]) -> bool:
    """Whether the account of the run has set the marker. A login of which nobody knows the name is not compared."""
    login = (member.host.facts.get("account") or {}).get("name")
    return user.get("by") == (member.allocation.account or login or user.get("by"))


def _may_be_of(member: Member, user: Mapping[str, Any], now: datetime) -> bool:
    """Whether a process with the marker of this run began before its end, as all that is left of it did."""
    if member.state != MemberState.ENDED:
        return True
    seconds = user.get("seconds")
    since_end = (now - (member.surely_ended_at or now)).total_seconds() - _SLACK_SECONDS
    return isinstance(seconds, int | float) and seconds >= since_end


def members(host_id: uuid.UUID, run_keys: set[str]) -> list[Member]:
    """Those that this server has on the host: a marker of another server's run is that of an outsider."""
    query = Q(pk__in=[])
    for key in run_keys:
        with contextlib.suppress(ProtocolError):  # a marker is what its process says, and may be anything
            allocation_id, _, index = check_run_key(key).rpartition(".")
            if index.isdecimal():
                query |= Q(allocation_id=allocation_id, index=int(index))
    return list(Member.objects.filter(query, host_id=host_id).select_related("allocation", "host"))
