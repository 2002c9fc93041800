"""Starts one member on its host. Idempotent: the run folder on the host decides who was first."""

from __future__ import annotations

import logging
import random
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from dispatch import kinds, remote, settle, spec
from dispatch.addresses import server_address
from jobs import transitions
from jobs.failed_starts import Fault
from jobs.models import Member
from jobs.states import Reason

log = logging.getLogger(__name__)

#: A worker that died in the middle of a launch holds its claim this long.
CLAIM_SECONDS = 120.0
LAUNCH_TIMEOUT_SECONDS = 90.0
RETRY_SECONDS = 2.0
#: A host that answers one of these may well start other runs: their account or their code is what is wrong.
_OF_THE_RUN = {
    "bad_spec", "bad_archive", "unsafe_archive", "incomplete", "no_account", "no_sudo", "sudo", "account", "taken"
}  # fmt: skip


def launch(member_id: int) -> None:
    """Launch the member if nobody else does; keep the sentence of what went wrong."""
    if not transitions.claim_launch(member_id, CLAIM_SECONDS):
        return
    member = Member.objects.select_related("host", "allocation__task__job", "allocation__pool").get(
        pk=member_id
    )
    if member.allocation.stop_kind:
        end_unlaunched(member, Reason(member.allocation.stop_reason))
        return
    transitions.note_launch_sent(member_id)
    try:
        answer = _send(member)
    except remote.RemoteError as error:
        _failed(member, error)
        return
    transitions.member_launched(member_id, boot_id=str(answer.get("boot_id", "")))


def _send(member: Member) -> dict[str, Any]:
    members = list(member.allocation.members.select_related("host"))
    slot_kinds = {slot.slot.kind for slot in member.holds.select_related("slot")}
    run = kinds.describe(member.allocation, next(iter(slot_kinds), "cpu"))
    payload = {
        "spec": spec.build(member, members, run),
        "server": server_address(member.host),
        "code_bytes": len(run.code),
    }
    return remote.verb(member.host, "launch", payload, body=run.code, timeout_seconds=LAUNCH_TIMEOUT_SECONDS)


def _failed(member: Member, error: remote.RemoteError) -> None:
    """Try again while that may help; otherwise end the member with the sentence.

    A launch whose answer was lost may run: it ends by the host's word alone (dispatch.reconcile), however often
    the host cannot be reached afterwards.
    """
    log.warning("launch of %s on %s: %s", member.run_key, member.host.name, error)
    said_no = isinstance(error, remote.VerbFailed) and error.code != "broke"
    in_doubt = not said_no and (member.launch_in_doubt or error.delivered)
    may_help = error.may_pass and member.launch_attempts < settings.LAUNCH_ATTEMPTS
    if may_help or in_doubt:
        transitions.note_launch_error(member.pk, str(error), _retry_at(member), in_doubt=in_doubt)
        return
    transitions.note_launch_error(member.pk, str(error), timezone.now(), in_doubt=False)
    settle.member_over(
        member.pk,
        reason=Reason.LAUNCH_FAILED,
        detail={"rank": None, "host": member.host.name, "member": member.index, "sentence": str(error)},
        fault=_fault(error),
    )


def _fault(error: remote.RemoteError) -> Fault:
    if error.may_pass or isinstance(error, remote.HostKeyRefused):  # silent, or suspended by now
        return Fault.LINK
    if isinstance(error, remote.VerbFailed) and error.code in _OF_THE_RUN:
        return Fault.RUN
    return Fault.HOST


def _retry_at(member: Member) -> datetime:
    pause = RETRY_SECONDS * min(member.launch_attempts, 10) * random.uniform(0.8, 1.2)
    return timezone.now() + timedelta(seconds=pause)


def end_unlaunched(member: Member, reason: Reason) -> None:
    """The allocation is to stop before this member was launched.

    Where a launch may have reached the host, the host is asked; what runs there after all is then stopped.
    """
    if member.launch_in_doubt:
        try:
            answer = remote.verb(member.host, "status", {"runs": [member.run_key]})
        except remote.RemoteError as error:
            log.info("whether %s was started on %s is not known: %s", member.run_key, member.host.name, error)
            transitions.note_launch_error(member.pk, str(error), _retry_at(member), in_doubt=True)
            return
        state = answer["runs"].get(member.run_key, {}).get("state", "absent")
        if state != "absent":
            transitions.member_launched(member.pk, boot_id=str(answer.get("boot_id", "")))
            return
    settle.member_over(member.pk, reason=reason)
