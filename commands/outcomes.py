"""What the end of a command's attempt means: the end of the command. Only burn-ins run more than once."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from commands import burn_in, group_burn_in
from commands.models import Command
from commands.states import CommandState
from commands.transitions import end, lock, locked
from events.announce import wake
from events.prepared import Prepared
from jobs import exits, failed_starts
from jobs import transitions as jobs
from jobs.models import Allocation, Member
from jobs.states import NEVER_STARTED, Reason, TaskState

_ACTOR = "server"
#: One that could not even start is tried again after this long.
_AGAIN_SECONDS = 2.0
#: ends whose exit code says it all
_OWN_END = {Reason.COMPLETED, Reason.COMMAND_FAILED, Reason.COMMAND_NOT_FOUND}

#: a notebook that nobody used is no failure
_WELL = {Reason.COMPLETED, Reason.IDLE_TIMEOUT}


def lock_for(allocation_id: str) -> Command | None:
    """Lock the command that an allocation belongs to: always before the allocation itself."""
    return _of_allocation.find(allocation_id)


_of_allocation = Prepared(locked, "task__allocations", "no allocation")
_members = Prepared(
    lambda: Member.objects.select_related("host").order_by("index"), "allocation", "no allocation"
)


def allocation_ended(allocation: Allocation) -> None:
    """Runs in the transaction that terminated the allocation, the command locked."""
    command = lock(allocation.task_id)
    reason = Reason(allocation.exit_reason)
    if (
        reason in NEVER_STARTED
        and command.state == CommandState.ACTIVE
        and not failed_starts.exhausted(command.task_id)
    ):
        again_at = timezone.now() + timedelta(seconds=_AGAIN_SECONDS)
        jobs.set_task_state(
            command.task_id, TaskState.WAITING, reason=reason, actor=_ACTOR, not_before=again_at
        )
        return
    if burn_in.starts_again(command, allocation) or group_burn_in.starts_again(command, allocation):
        given_way = Reason(allocation.stop_reason or allocation.exit_reason)
        jobs.set_task_state(command.task_id, TaskState.WAITING, reason=given_way, actor=_ACTOR)
        return
    if command.state == CommandState.STOPPING_KILLED:
        state, reason = CommandState.CANCELED, Reason.KILLED_BY_USER
    else:
        state = CommandState.COMPLETED if reason in _WELL else CommandState.ERROR
    member = _members.find(allocation.pk)
    if member and (failed := allocation.exit_detail.get("member")):  # of a gang
        member = Member.objects.select_related("host").filter(allocation=allocation, index=failed).first()
    code = member.exit_code if member else None  # an attempt that was stopped may have one too
    ending = _ending(allocation, member, reason)
    end(command, state, ending, reason=reason, actor=_ACTOR, exit_code=code, at=allocation.ended_at)
    if command.job.preemptible:
        wake(burn_in.JUDGE)


def _ending(allocation: Allocation, member: Member | None, reason: Reason) -> str:
    """`exit code 3 on gpu1`, `killed by ada, exit code 143`, `its host was declared lost (gpu1)`, or what it lacked."""
    code = member.exit_code if member else None
    if reason == Reason.COMMAND_NOT_FOUND and (sentence := allocation.exit_detail.get("sentence")):
        return str(sentence)
    if member and reason in _OWN_END:
        return f"{exits.words(code, member.exit_signal)} on {member.host.name}"
    if reason == Reason.KILLED_BY_USER:
        cause = f"killed by {allocation.stop_actor.partition(':')[2]}"
    else:
        cause = f"{reason.label} ({member.host.name})" if member else str(reason.label)
    more = f"exit code {code}" if code is not None else str(allocation.exit_detail.get("sentence") or "")
    return ", ".join(filter(None, [cause, more]))
