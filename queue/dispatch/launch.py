"""Starts one member on its host. Idempotent: the run folder on the host decides who was first."""

from __future__ import annotations

import logging
import random
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from dispatch import remote, settle, spec
from dispatch.addresses import server_address
from experiments import runs
from jobs import transitions
from jobs.models import Member
from jobs.states import MemberState, Reason, StopKind

log = logging.getLogger(__name__)

#: A worker that died in the middle of a launch holds its claim this long.
CLAIM_SECONDS = 120.0
LAUNCH_TIMEOUT_SECONDS = 90.0
RETRY_SECONDS = 2.0


def launch(member_id: int) -> None:
    """Launch the member if nobody else does; keep the sentence of what went wrong."""
    if not transitions.claim_launch(member_id, CLAIM_SECONDS):
        return
    member = Member.objects.select_related("host", "allocation__task__job", "allocation__pool").get(
        pk=member_id
    )
    if member.allocation.stop_kind:
        end_unlaunched(member, Reason(member.allocation.stop_reason), certain=member.launch_attempts == 1)
        return
    try:
        answer = _send(member)
    except remote.RemoteError as error:
        _failed(member, error)
        return
    transitions.member_launched(member_id, boot_id=str(answer.get("boot_id", "")))


def _send(member: Member) -> dict[str, Any]:
    members = list(member.allocation.members.select_related("host"))
    kinds = {slot.slot.kind for slot in member.holds.select_related("slot")}
    run = runs.describe(member.allocation, next(iter(kinds), "cpu"))
    payload = {
        "spec": spec.build(member, members, run),
        "server": server_address(member.host),
        "code_bytes": len(run.code),
    }
    return remote.verb(member.host, "launch", payload, body=run.code, timeout_seconds=LAUNCH_TIMEOUT_SECONDS)


def _failed(member: Member, error: remote.RemoteError) -> None:
    """Try again while that may help; otherwise end the member with the sentence."""
    log.warning("launch of %s on %s: %s", member.run_key, member.host.name, error)
    may_help = error.may_pass and member.launch_attempts < settings.LAUNCH_ATTEMPTS
    if may_help or error.delivered:
        # after a lost answer the host itself is asked first (dispatch.reconcile), so that nothing runs twice
        pause = RETRY_SECONDS * member.launch_attempts * random.uniform(0.8, 1.2)
        transitions.note_launch_error(member.pk, str(error), timezone.now() + timedelta(seconds=pause))
        return
    transitions.note_launch_error(member.pk, str(error), timezone.now())
    settle.member_over(
        member.pk,
        reason=Reason.LAUNCH_FAILED,
        detail={"rank": None, "host": member.host.name, "member": member.index, "sentence": str(error)},
    )


def end_unlaunched(member: Member, reason: Reason, *, certain: bool) -> None:
    """The allocation is to stop before this member was launched. `certain`: no launch was ever sent.

    Otherwise the host is asked to stop whatever may have started; its answer is settled by the reconciler.
    """
    if not certain:
        answer = remote.verb(member.host, "status", {"runs": [member.run_key]})
        state = answer["runs"].get(member.run_key, {}).get("state", "absent")
        if state != "absent":
            transitions.member_launched(member.pk, boot_id=str(answer.get("boot_id", "")))
            return
    settle.member_over(member.pk, reason=reason)


def needs_launch(member: Member) -> bool:
    """Is it time (again) to launch this member?"""
    claimed = member.launch_claimed_until
    free = claimed is None or claimed < timezone.now()
    return member.state == MemberState.ASSIGNED and free and member.allocation.stop_kind != StopKind.STOP
