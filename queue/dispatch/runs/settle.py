"""Ends of members and what follows from them, in one transaction: the gang's stop, the verdict, the next attempt."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction

from commands import services
from dispatch.going_on import going_on
from dispatch.keeping import usage
from dispatch.runs import kinds
from events.prepared import cursor
from events.steps import joined
from hosts.models import Host
from jobs import failed_starts, quarantine, rank_ends, transitions
from jobs.failed_starts import Fault
from jobs.models import Allocation, Member, Task
from jobs.states import NEVER_STARTED, MemberState, Reason, StopKind
from logs import last_words
from logs import store as log_store

FAILURES = {Reason.RANK_FAILED, Reason.COMMAND_FAILED, Reason.COMMAND_NOT_FOUND, Reason.RUN_VANISHED}
#: Ends of a host: ranks elsewhere fail because of them, often before anyone knows.
_OF_A_HOST = {Reason.HOST_LOST, Reason.HOST_RESTARTED}
#: an entrypoint that the shell could not find or execute
_NOT_RUNNABLE = {126, 127}
_SENTENCE_CHARACTERS = 2000  # training code can write such a record, too


_WHAT_IT_IS_OF = """
SELECT allocation.id, task.kind FROM jobs_member member JOIN jobs_allocation allocation ON allocation.id = allocation_id
JOIN jobs_task task ON task.id = allocation.task_id WHERE member.id = %s
"""


def lock(member_id: int) -> Member:
    """The member, with what its end may change locked in the order that all use: experiment or command, allocation."""
    with cursor() as asks:
        asks.execute(_WHAT_IT_IS_OF, [member_id])
        found = asks.fetchone()
    if found is None:
        raise Member.DoesNotExist(f"There is no member {member_id}.")
    allocation_id, kind = found
    kinds.outcomes_of_kind(kind).lock_for(allocation_id)
    return transitions.lock_member(member_id)


def reason_of_exit(allocation: Allocation, code: int | None, *, of_hook: bool = False) -> Reason:
    """Why a member ended, from its exit code and from whether it had been told to stop.

    `of_hook`: the code is that of a hook before the entrypoint, so it says nothing of the entrypoint's command.
    """
    if allocation.stop_kind == StopKind.STOP:
        return Reason(allocation.stop_reason)
    if code == 0:
        return Reason.COMPLETED
    if code is None:
        return Reason.RUN_VANISHED
    if code in _NOT_RUNNABLE and not of_hook:
        return Reason.COMMAND_NOT_FOUND
    return Reason.RANK_FAILED if allocation.task.kind == Task.Kind.TRIAL else Reason.COMMAND_FAILED


@joined
def member_exited(
    member_or_id: Member | int,
    *,
    code: int | None,
    signal: int | None,
    ended_at: float | None,
    first_failure: dict[str, Any] | None = None,
    boot_id: str = "",
    oom_kills: dict[str, int] | None = None,
    port_in_use: int | None = None,
    storage_fault: str = "",
    image_fault: str = "",
    hook_fault: str = "",
    kernel: object = None,
    left: list[dict[str, Any]] | None = None,
) -> bool:
    """The host said that the entrypoint has ended (exit record, or exit file read over SSH).

    The member is one of `lock`, or an id. `ended_at` is in its host's clock. `boot_id` is the host's when it said so:
    an end without a code after a restart is the restart's. `oom_kills` is what the host counted meanwhile,
    `port_in_use` the leased port that another program had, `storage_fault` what is wrong with the checkpoint storage,
    `image_fault` what kept the container from starting, so that nothing was started, `hook_fault` how the hook ended
    whose code this is (docs/protocol.md, exit.json), `kernel` what its kernel reported meanwhile. That is the run's own
    word, and decides on nothing but whether the end uses up a restart.
    `left`: as of `member_over`.
    """
    member = member_or_id if isinstance(member_or_id, Member) else lock(member_or_id)
    at = member.server_time(ended_at) if ended_at else None
    over = partial(member_over, member, exited=True, at=at)
    where = {"rank": None, "host": member.host.name, "member": member.index}
    if port_in_use is not None and member.allocation.stop_kind != StopKind.STOP:
        sentence = f"Port {port_in_use} of {member.host.name} is in use by another program."
        return over(reason=Reason.PORT_IN_USE, detail={**where, "sentence": sentence})
    fault = storage_fault or image_fault
    if fault and code != 0 and member.allocation.stop_kind != StopKind.STOP:
        sentence = f"{fault[:_SENTENCE_CHARACTERS].rstrip('.')}."
        kept_by = Reason.STORAGE_FAILED if storage_fault else Reason.LAUNCH_FAILED
        return over(reason=kept_by, detail={**where, "sentence": sentence})
    first_failure = rank_ends.first_failure(first_failure)  # training code can write such a record, too
    restarted = code is None and bool(boot_id and member.boot_id) and boot_id != member.boot_id
    reason = (
        Reason.HOST_RESTARTED
        if restarted
        else reason_of_exit(member.allocation, code, of_hook=bool(hook_fault))
    )
    if left and member.allocation.stop_kind == StopKind.STOP:
        reason = Reason.STOP_TIMED_OUT
    elif code is None and not restarted and left is None:
        left = not_swept(member)
    detail = None
    if reason == Reason.COMMAND_NOT_FOUND and (lacking := services.lacking(member.allocation.task_id)):
        return over(code=code, reason=reason, detail={**where, "sentence": lacking})
    # a peer that was stopped may still have failed first: its record came later than the other's
    if reason in FAILURES or (reason == Reason.PEER_ENDED and first_failure):
        detail = {"rank": None, "code": code, "signal": signal, **(first_failure or {})}
        stamp = detail.get("t") or ended_at
        detail |= {"host": member.host.name, "member": member.index}
        if hook_fault:
            detail["sentence"] = f"{hook_fault[:_SENTENCE_CHARACTERS].rstrip('.')}."
        if stamp is not None:  # in the server's clock, so that hosts can be compared
            detail["t"] = member.server_seconds(float(stamp))
        if oom_kills:
            detail["oom_kills"] = oom_kills
    if not hook_fault and _may_be_a_fault(member, reason) and (fault := quarantine.fault_of(member, kernel)):
        begun = member.allocation.assigned_at.timestamp()  # before whatever fell of it
        reason = Reason.HOST_FAULT
        detail = {**where, "code": code, "signal": signal, "sentence": fault, "t": begun}
    return over(code=code, signal=signal, reason=reason, detail=detail, left=left)


def _may_be_a_fault(member: Member, reason: Reason) -> bool:
    """Whether hardware may have brought about this end: a rank's own, or that of one which fell with its gang."""
    if reason == Reason.STOP_TIMED_OUT:
        return member.allocation.stop_reason == Reason.PEER_ENDED
    return reason in {Reason.RANK_FAILED, Reason.PEER_ENDED}


def ended_by_slurm(member: Member, *, stopped: bool) -> bool:
    """Whether a run in a Slurm cluster was stopped, and not by the queue: Slurm's own state will say why.

    One that is to save and leave is stopped by nobody else, if the queue has not stopped it since.
    """
    by_queue = member.allocation.stop_kind == StopKind.STOP
    return stopped and member.host.transport == Host.Transport.SLURM and not by_queue


def not_swept(member: Member) -> list[dict[str, Any]] | None:
    """As `left` of a member whose launcher, which sees all that the run has started, was killed.

    A process that has cleared its marker is then known by the GPU that it uses alone, so the host looks there first.
    """
    return [] if member.holds.filter(released_at=None).exclude(slot__uuid="").exists() else None


@joined
def member_over(
    member_or_id: Member | int,
    *,
    reason: Reason,
    exited: bool = False,
    at: datetime | None = None,
    code: int | None = None,
    signal: int | None = None,
    detail: dict[str, Any] | None = None,
    fault: Fault = Fault.RUN,
    left: list[dict[str, Any]] | None = None,
) -> bool:
    """End a member, stop its peers if it failed, and conclude the allocation when it was the last.

    `fault`: whose it is, where the member never started.
    `exited`: its host has said that its entrypoint is over, `at` when that was (None: now).
    `left`: processes of it that may live on its host, whose slots stay held then (None: nothing is left; empty: nobody
    has looked yet).
    """
    member = member_or_id if isinstance(member_or_id, Member) else lock(member_or_id)
    ended = transitions.member_ended(
        member, code=code, signal=signal, reason=reason, exited=exited, at=at, detail=detail, left=left
    )
    if not ended:
        return False
    if reason in NEVER_STARTED:
        failed_starts.note(member, reason, fault, str((detail or {}).get("sentence") or ""))
    members = list(Member.objects.filter(allocation_id=member.allocation_id).order_by("ended_at"))
    if all(peer.state == MemberState.ENDED for peer in members):
        _close(member.allocation, members)
    elif reason != Reason.COMPLETED:
        transitions.request_stop(
            member.allocation_id,
            StopKind.STOP,
            reason=Reason.PEER_ENDED,
            actor="server",
            grace_seconds=settings.GANG_FAILURE_GRACE_SECONDS,
        )
    return True


@transaction.atomic
def conclude(allocation_id: str) -> bool:
    """Close the allocation if all its members have ended, and let the experiment decide what follows."""
    kinds.outcomes_of(allocation_id).lock_for(allocation_id)
    allocation = transitions.lock_allocation(allocation_id)
    members = list(allocation.members.order_by("ended_at"))
    if any(member.state != MemberState.ENDED for member in members):
        return False
    return _close(allocation, members)


def _close(allocation: Allocation, members: list[Member]) -> bool:
    """All members of the locked allocation have ended."""
    reason, code = verdict(allocation, members)
    if last_words.first_rank_may_differ(reason) and (
        detail := last_words.corrected_exit(allocation, members)
    ):
        rank_ends.correct(allocation, detail)
        code = detail["code"]
    if reason == Reason.HOST_FAULT and not allocation.exit_detail.get("sentence"):
        _say_the_fault(allocation, members)
    if reason in _OF_A_HOST:
        code = _name_the_host(allocation, members, reason)
    if not transitions.terminate(allocation, members, exit_reason=reason, exit_code=code):
        return False
    usage.keep(allocation, members)
    failed_starts.forget(allocation)
    kinds.outcomes(allocation.task).allocation_ended(allocation)
    # in this transaction, so the log has all its lines when the end is shown, and a short run needs no message for it
    with going_on(f"the log of {allocation.task_id}"), transaction.atomic():
        log_store.merge_events(allocation.task_id, known=allocation.task)
    return True


def _say_the_fault(allocation: Allocation, members: list[Member]) -> None:
    fault = next(filter(None, map(quarantine.fault_of, members)), "")
    rank_ends.correct(allocation, {**allocation.exit_detail, "sentence": fault})


def _name_the_host(allocation: Allocation, members: list[Member], reason: Reason) -> int | None:
    """Make the host that was lost or restarted the attempt's cause, not the rank elsewhere that failed first.

    Returns the exit code of its member.
    """
    member = next(member for member in members if member.exit_reason == reason)
    if allocation.exit_detail.get("member") != member.index:
        rank_ends.correct(allocation, {"rank": None, "host": member.host.name, "member": member.index})
    return member.exit_code


def verdict(allocation: Allocation, members: list[Member]) -> tuple[Reason, int | None]:
    """Why the attempt ended: what was asked of it, else its first failure, else success."""
    failed = [member for member in members if member.exit_reason not in {Reason.COMPLETED, Reason.PEER_ENDED}]
    asked = Reason(allocation.stop_reason) if allocation.stop_reason else None
    if asked and asked != Reason.PEER_ENDED and allocation.stop_kind == StopKind.STOP:
        return asked, next((member.exit_code for member in members if member.exit_code), 0)
    if failed and asked == Reason.HOST_FAULT:  # whatever it failed of, its hardware had failed before
        return asked, failed[0].exit_code
    if failed:
        detail = allocation.exit_detail
        code = detail.get("code") if detail else failed[0].exit_code
        return _worst(failed), code
    if allocation.stop_kind == StopKind.PREEMPT and asked and allocation.preempt_acked_at:
        return asked, 0
    return Reason.COMPLETED, 0


def _worst(failed: list[Member]) -> Reason:
    """The first end that was not a consequence; a lost host explains the ranks that fell with it."""
    reasons = [Reason(member.exit_reason) for member in failed]
    for reason in (
        Reason.HOST_LOST,
        Reason.HOST_RESTARTED,
        Reason.HOST_DISABLED,
        Reason.HOST_FAULT,
        Reason.LAUNCH_FAILED,
        Reason.PORT_IN_USE,
        Reason.STORAGE_FAILED,
    ):
        if reason in reasons:
            return reason
    return reasons[0]
