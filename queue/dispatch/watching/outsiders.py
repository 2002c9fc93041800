"""Who computes on a host's GPUs without the queue: asked with the status of its runs, now and then."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from hosts import slots
from hosts.models import Host
from jobs import cleaning
from jobs.models import Member
from jobs.states import MemberState
from trainmaster.protocol import ProtocolError, check_run_key

#: a process of ours whose run the host could not read (docs/protocol.md)
_OURS = "?"


def question(host: Host) -> dict[str, bool]:
    """What to add to a `status` request: nothing where there is no GPU, or where it was asked just now."""
    due = timezone.now() - timedelta(seconds=settings.GPU_USERS_SECONDS)
    asked = host.gpu_users_at is not None and host.gpu_users_at > due
    return {} if asked or not any(slot.uuid for slot in host.slots.all()) else {"gpu_users": True}


def take_in(host_id: uuid.UUID, answer: Mapping[str, Any]) -> None:
    """Note what the host said, if it was asked and could tell.

    Processes of a run that has ended are ended: nobody else may be given what they use.
    """
    users: Mapping[str, Sequence[dict[str, Any]]] | None = answer.get("gpu_users")
    if users is None:
        return
    present = members(
        host_id, {str(user["run"]) for here in users.values() for user in here if user.get("run")}
    )
    left = {
        (m.allocation_id, m.index)
        for m in present
        if m.state == MemberState.ENDED and m.cleaning_since is None
    }
    if left:
        cleaning.again(host_id, left)
    ours = {_OURS} | {member.run_key for member in present}
    strangers = {gpu: [user for user in here if user.get("run") not in ours] for gpu, here in users.items()}
    slots.note_outside(host_id, strangers)


def members(host_id: uuid.UUID, run_keys: set[str]) -> list[Member]:
    """Those that this server has on the host: a marker of another server's run is that of an outsider."""
    query = Q(pk__in=[])
    for key in run_keys:
        with contextlib.suppress(ProtocolError):  # a marker is what its process says, and may be anything
            allocation_id, _, index = check_run_key(key).rpartition(".")
            if index.isdecimal():
                query |= Q(allocation_id=allocation_id, index=int(index))
    return list(Member.objects.filter(query, host_id=host_id))
