"""What the end of a command's attempt means: the end of the command. It is never tried again."""

from __future__ import annotations

from commands.models import Command
from commands.states import CommandState
from commands.transitions import end, lock
from jobs import exits
from jobs.models import Allocation, Task
from jobs.states import Reason

_ACTOR = "server"
#: ends whose exit code says it all
_OWN_END = {Reason.COMPLETED, Reason.COMMAND_FAILED, Reason.COMMAND_NOT_FOUND}


def lock_for(allocation_id: str) -> Command | None:
    """Lock the command that an allocation belongs to: always before the allocation itself."""
    task_id = Task.objects.filter(allocations=allocation_id, kind=Task.Kind.COMMAND).values_list(
        "pk", flat=True
    )
    return lock(task_id[0]) if task_id else None


def allocation_ended(allocation: Allocation) -> None:
    """Runs in the transaction that terminated the allocation, the command locked."""
    command = lock(allocation.task_id)
    reason = Reason(allocation.exit_reason)
    if command.state == CommandState.STOPPING_KILLED:
        state, reason = CommandState.CANCELED, Reason.KILLED_BY_USER
    else:
        state = CommandState.COMPLETED if reason == Reason.COMPLETED else CommandState.ERROR
    end(
        command,
        state,
        _ending(allocation, reason),
        reason=reason,
        actor=_ACTOR,
        exit_code=_exit_code(allocation),
    )


def _exit_code(allocation: Allocation) -> int | None:
    """The one member's; of an attempt that was stopped too, where it still had one."""
    return allocation.members.values_list("exit_code", flat=True).first()


def _ending(allocation: Allocation, reason: Reason) -> str:
    """`exit code 3 on gpu1`, `its host was declared lost (gpu1)`, `killed, exit code 137, killed by SIGKILL`."""
    member = allocation.members.select_related("host").first()
    host = member.host.name if member else ""
    how = exits.words(member.exit_code, member.exit_signal) if member and member.exit_code is not None else ""
    if reason in _OWN_END:
        return f"{how or reason.label}{f' on {host}' if host else ''}"
    sentence = str(allocation.exit_detail.get("sentence") or "")
    return ", ".join(
        filter(None, [f"{reason.label} ({host})" if host else str(reason.label), how or sentence])
    )
