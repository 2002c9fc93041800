"""Starts one member on its host. Idempotent: the run folder on the host decides who was first."""

from __future__ import annotations

import logging
import random
from typing import Any

from django.conf import settings

from dispatch.engines import chosen, slurm
from dispatch.runs import kinds, settle, spec
from dispatch.ssh import remote
from dispatch.ssh.server_route import server_address
from events.prepared import Prepared
from hosts import login_accounts
from hosts.models import Host
from jobs import transitions
from jobs.failed_starts import Fault
from jobs.models import Member
from jobs.states import Reason
from scheduling.reasons import lacks_account

log = logging.getLogger(__name__)

#: A worker that died in the middle of a launch holds its claim this long.
CLAIM_SECONDS = 120.0
RETRY_SECONDS = 2.0
#: A launch in doubt is asked about this often.
LOOK_SECONDS = 5.0
#: A host that answers one of these may well start other runs: their account or their code is what is wrong.
_OF_THE_RUN = {
    "bad_spec", "bad_archive", "unsafe_archive", "incomplete", "no_account", "no_sudo", "sudo", "account", "taken"
}  # fmt: skip


_member = Prepared(
    lambda: Member.objects.select_related("host", "allocation__task__job__owner", "allocation__pool")
)


def launch(member_id: int) -> None:
    """Launch the member if nobody else does; keep the sentence of what went wrong."""
    if not transitions.claim_launch(member_id, CLAIM_SECONDS):
        return
    member = _member.get(member_id)
    if member.allocation.stop_kind:
        give_up(member, Reason(member.allocation.stop_reason))
        return
    if member.launch_crashes > settings.LAUNCH_ATTEMPTS:
        sentence = f"The launch crashed the server's worker {settings.LAUNCH_ATTEMPTS} times."
        give_up(member, Reason.LAUNCH_FAILED, sentence, Fault.WORKER)
        return
    if member.launch_in_doubt and not _may_be_sent_again(member):
        return
    transitions.keep_account(member.allocation)
    if sentence := _why_not_there(member):
        give_up(member, Reason.LAUNCH_FAILED, sentence)
        return
    order, code = _order(member)
    if not transitions.note_launch_sent(member_id):
        return
    try:
        answer = _send(member, order, code)
    except remote.RemoteError as error:
        _failed(member, error)
        return
    if answer.get("state") == "starting":
        _awaited(member, _STARTING.format(host=member.host.name))
        return
    transitions.member_launched(member_id, boot_id=str(answer.get("boot_id", "")))


_STARTING = "{host} is still starting it."


def _may_be_sent_again(member: Member) -> bool:
    """A launch in doubt, once the host has said that nothing of it is there; else what it says is noted."""
    try:
        question = {"runs": [member.run_key], "accounts": {member.run_key: member.allocation.account}}
        answer = chosen.of_host(member.host).poll(member.host, question)
    except remote.RemoteError as error:
        _awaited(member, str(error))
        return False
    run = answer["runs"].get(member.run_key) or {"state": "absent"}
    state = (
        "absent" if run.get("error") == "taken" else run.get("state")
    )  # what is in its place is not the run
    if state in {"running", "ended", "remains"}:
        boot_id = str(run.get("boot_id") or answer.get("boot_id", ""))
        transitions.member_launched(member.pk, boot_id=boot_id)
    elif state == "starting" and run.get("starting_seconds", 0.0) < settings.LAUNCH_GIVE_UP_SECONDS:
        _awaited(member, _STARTING.format(host=member.host.name))
    elif state is None:  # the host could not look
        _awaited(member, str(run.get("message") or ""))
    elif state == "starting":
        sentence = f"{member.host.name} did not start it within {settings.LAUNCH_GIVE_UP_SECONDS:g} s."
        give_up(member, Reason.LAUNCH_FAILED, sentence, Fault.HOST)
    elif (
        member.launch_attempts > settings.LAUNCH_ATTEMPTS
    ):  # each answer was lost, and the host has nothing of it
        give_up(member, Reason.LAUNCH_FAILED, member.last_error, Fault.LINK)
    else:
        return True
    return False


def _awaited(member: Member, sentence: str) -> None:
    transitions.note_launch_awaited(member.pk, sentence, LOOK_SECONDS * random.uniform(0.8, 1.2))


def _order(member: Member) -> tuple[dict[str, Any], bytes]:
    """What the host is told, and the archive of the job's code."""
    members = list(member.allocation.members.select_related("host"))
    slot_kinds = {slot.slot.kind for slot in member.holds.select_related("slot")}
    run = kinds.describe(member.allocation, next(iter(slot_kinds), "cpu"))
    order = {
        "spec": spec.build(member, members, run),
        "server": server_address(chosen.contact(member.host)),
        "code_bytes": len(run.code),
    }
    return order, run.code


def _why_not_there(member: Member) -> str:
    """Why its host may not run it after all: accounts and rules may have changed since it was placed; else empty."""
    pool, host, account = member.allocation.pool, member.host, member.allocation.account
    now = member.allocation.account_now
    if account != now:
        was, is_now = (f"the account {name}" if name else "the login account" for name in (account, now))
        return f"Its first launch was to be under {was}; by now the jobs of its owner run under {is_now}."
    if login_accounts.may_run(pool, account, host.facts):
        return ""
    return f"{lacks_account([host.name], pool.name, shared=login_accounts.is_shared(pool)).sentence}."


def _send(member: Member, order: dict[str, Any], code: bytes) -> dict[str, Any]:
    return chosen.of_host(member.host).submit(member, order, code)


def _failed(member: Member, error: remote.RemoteError) -> None:
    """Try again while that may help; otherwise end the member with the sentence.

    A launch whose answer was lost may run, or start later: it ends by the host's word alone, however often the host
    cannot be reached afterwards. `member` is as it was before this launch was sent.
    """
    log.warning("launch of %s on %s: %s", member.run_key, member.host.name, error)
    if isinstance(error, remote.FolderAway):  # its job waits on the node, and ends if this lasts too long
        transitions.note_launch_error(
            member.pk, str(error), 0.0, in_doubt=member.launch_in_doubt or error.delivered
        )
        _awaited(member, str(error))
        return
    said_no = isinstance(error, remote.VerbFailed) and not error.delivered
    in_doubt = member.launch_in_doubt or error.delivered
    too_often = isinstance(error, remote.VerbFailed) and member.launch_attempts >= settings.LAUNCH_ATTEMPTS
    if in_doubt and (said_no or too_often):  # this one did not start; an earlier one may be on its way
        member.launch_in_doubt = True
        give_up(member, Reason.LAUNCH_FAILED, str(error), _fault(member, error))
        return
    if in_doubt or (error.may_pass and member.launch_attempts < settings.LAUNCH_ATTEMPTS):
        pause = RETRY_SECONDS * min(member.launch_attempts, 10) * random.uniform(0.8, 1.2)
        transitions.note_launch_error(member.pk, str(error), pause, in_doubt=in_doubt)
        return
    transitions.note_launch_error(member.pk, str(error), 0.0, in_doubt=False)
    _over(member, Reason.LAUNCH_FAILED, str(error), _fault(member, error))


def _fault(member: Member, error: remote.RemoteError) -> Fault:
    if error.may_pass or isinstance(error, remote.HostKeyRefused):  # silent, or suspended by now
        return Fault.LINK
    if isinstance(error, remote.VerbFailed) and (error.code in _OF_THE_RUN or _by_login_node(member)):
        return Fault.RUN
    return Fault.HOST


def _by_login_node(member: Member) -> bool:
    """Whether the login node was asked, so that its own node has nothing to do with the answer."""
    return member.host.transport == Host.Transport.SLURM and slurm.is_shared(member.host)


def give_up(member: Member, reason: Reason, sentence: str = "", fault: Fault = Fault.RUN) -> None:
    """End a member that was not launched. The caller has claimed its launch.

    Where a launch may have reached the host, the host first makes sure that none of them starts anything. What has
    begun there after all goes the way of every run, and is stopped if that was asked for.
    """
    if member.launch_in_doubt:
        try:
            answer = chosen.of_host(member.host).withdraw(member)
        except remote.RemoteError as error:
            log.info("cannot tell whether %s was started on %s: %s", member.run_key, member.host.name, error)
            _awaited(member, sentence or str(error))
            return
        if answer["state"] == "begun":
            transitions.member_launched(member.pk, boot_id=str(answer.get("boot_id", "")))
            return
        if answer["state"] != "revoked":
            _awaited(member, sentence or _STARTING.format(host=member.host.name))
            return
    _over(member, reason, sentence, fault)


def _over(member: Member, reason: Reason, sentence: str, fault: Fault) -> None:
    detail = {"rank": None, "host": member.host.name, "member": member.index, "sentence": sentence}
    settle.member_over(member.pk, reason=reason, detail=detail if sentence else None, fault=fault)
