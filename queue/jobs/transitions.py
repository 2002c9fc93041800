"""The one writer of the states of allocations and members, and the door to that of jobs and tasks (law 2).

Every function is one guarded step: it changes a row only if the row is still in a state from which the
step is legal, writes the event row in the same transaction, and announces after commit. Losing a race
is not an error: the function returns False (or None) and has changed nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from events.announce import announce, wake, wake_all
from events.models import Event
from events.prepared import Prepared
from events.presence import database_now
from events.steps import joined, step
from hosts import failed_starts
from hosts.pools import mark_dirty
from jobs import cleaning, feeding, rank_ends
from jobs.assigning import run_token as run_token
from jobs.job_transitions import avoid_host as avoid_host
from jobs.job_transitions import create_job as create_job
from jobs.job_transitions import create_task as create_task
from jobs.job_transitions import create_tasks as create_tasks
from jobs.job_transitions import element_ended as element_ended
from jobs.job_transitions import end_waiting_elements as end_waiting_elements
from jobs.job_transitions import event_of, record_allocation, step_allocation
from jobs.job_transitions import lock_tasks as lock_tasks
from jobs.job_transitions import revive_job as revive_job
from jobs.job_transitions import set_job_state as set_job_state
from jobs.job_transitions import set_task_state as set_task_state
from jobs.job_transitions import unblock as unblock
from jobs.models import Allocation, Member, PortLease, SlotHold, Task
from jobs.states import MEMBER_STEPS, AllocationState, MemberState, Reason, StopKind

#: An end that the server learned of later than this is told with when it was.
_TOLD_LATE_SECONDS = 60.0


# --- allocations ----------------------------------------------------------------------------------


def lock_allocation(allocation_id: str) -> Allocation:
    """The allocation, locked for the rest of the transaction. Always locked before its members."""
    return _allocation.get(allocation_id)


def _locked_allocations() -> QuerySet[Allocation]:
    return Allocation.objects.select_related("task__job").select_for_update(of=("self",), no_key=True)


_allocation = Prepared(_locked_allocations, "pk", "no allocation")
_allocation_of_member = Prepared(_locked_allocations, "members")
_member = Prepared(lambda: Member.objects.select_related("host"))


@transaction.atomic
def request_stop(
    allocation_id: str,
    kind: StopKind,
    *,
    reason: Reason,
    actor: str,
    grace_seconds: float | None = None,
    preemption_timeout_seconds: float | None = None,
    for_task_id: str = "",
) -> bool:
    """Ask an open allocation to leave (PREEMPT) or to end (STOP). A STOP overrides a PREEMPT, never the reverse.

    The same wish again can only make the end come sooner; why it ends stays as it was.
    """
    allocation = lock_allocation(allocation_id)
    if allocation.state == AllocationState.TERMINATED:
        return False
    if allocation.stop_kind == StopKind.STOP:
        return kind == StopKind.STOP and _stop_sooner(allocation, grace_seconds)
    if allocation.stop_kind == kind:
        return _leave_sooner(allocation, preemption_timeout_seconds, reason, actor)
    timeout = (
        preemption_timeout_seconds
        if preemption_timeout_seconds is not None
        else settings.PREEMPTION_TIMEOUT_SECONDS
    )
    fields: dict[str, Any] = {
        "stop_kind": kind,
        "stop_reason": reason,
        "stop_actor": actor,
        "stop_requested_at": Now(),
        "stop_for_task": for_task_id,
        "stop_grace_seconds": grace_seconds if grace_seconds is not None else settings.STOP_GRACE_SECONDS,
        "stop_save_seconds": timeout if kind == StopKind.PREEMPT else None,
        "stop_deadline_at": None,
    }
    Allocation.objects.filter(pk=allocation_id).update(**fields)
    if kind == StopKind.STOP:
        Member.objects.filter(allocation=allocation).update(stop_sent_at=None)
    if not step_allocation(allocation, AllocationState.TERMINATING, reason, actor, {"stop": kind}):
        record_allocation(allocation, reason, actor, {"stop": kind})
    wake("dispatch.tasks.stop", allocation_id)
    mark_dirty(allocation.pool_id)
    return True


def _leave_sooner(allocation: Allocation, seconds: float | None, reason: Reason, actor: str) -> bool:
    """Shorten the time to save; what is left of it, where it has begun to count."""
    deadline, whole = allocation.stop_deadline_at, allocation.stop_save_seconds
    if seconds is None:
        return False
    if deadline is not None:
        sooner = database_now() + timedelta(seconds=seconds)
        if sooner >= deadline:
            return False
        Allocation.objects.filter(pk=allocation.pk).update(stop_deadline_at=sooner)
    elif whole is not None and seconds < whole:
        Allocation.objects.filter(pk=allocation.pk).update(stop_save_seconds=seconds)
    else:
        return False
    record_allocation(allocation, reason, actor, {"stop": allocation.stop_kind})
    return True


def _stop_sooner(allocation: Allocation, grace_seconds: float | None) -> bool:
    """Shorten the grace of a stop under way.

    Hosts count it from when they are told and take the earliest deadline, so it does not matter when it was asked for.
    """
    grace = allocation.stop_grace_seconds
    if grace_seconds is None or grace is None or grace_seconds >= grace:
        return False
    Allocation.objects.filter(pk=allocation.pk).update(
        stop_requested_at=Now(), stop_grace_seconds=grace_seconds
    )
    Member.objects.filter(allocation=allocation).update(stop_sent_at=None)
    wake("dispatch.tasks.stop", allocation.pk)
    return True


@transaction.atomic
def warn_of_limit(allocation_id: str, *, seconds_left: float) -> bool:
    """Say once, in the log and on the pages, that the time limit of an open allocation is near."""
    allocation = lock_allocation(allocation_id)
    if allocation.state == AllocationState.TERMINATED or allocation.time_warned_at or allocation.stop_kind:
        return False
    Allocation.objects.filter(pk=allocation_id).update(time_warned_at=Now())
    record_allocation(
        allocation, Reason.TIME_NEARLY_UP, "server",
        {"seconds_left": round(seconds_left), "max_time_seconds": allocation.task.max_time_seconds},
    )  # fmt: skip
    wake("dispatch.tasks.merge_log", allocation.task_id)
    return True


def tell(allocation: Allocation, reason: Reason, detail: dict[str, Any]) -> None:
    """Say what was found of an attempt: a line that matched a log policy (experiments.log_policies), a hang.

    The caller holds a lock under which it looked whether that was said before; nothing is locked here.
    """
    record_allocation(allocation, reason, "server", detail)
    wake("dispatch.tasks.merge_log", allocation.task_id)


@transaction.atomic
def asked_to_preempt(allocation_id: str) -> bool:
    """The training code has asked whether it should stop, so it can save when it is told to. Kept once."""
    return bool(
        Allocation.objects.filter(pk=allocation_id, asked_preempt_at=None).update(asked_preempt_at=Now())
    )


@transaction.atomic
def preempt_acknowledged(allocation_id: str) -> bool:
    """The training code has seen the signal and will save and leave."""
    asked = Allocation.objects.filter(pk=allocation_id, stop_kind=StopKind.PREEMPT, preempt_acked_at=None)
    heard = bool(asked.update(preempt_acked_at=Now()))
    if heard:  # pages say now that it saves
        pool_id = Allocation.objects.values_list("pool_id", flat=True).get(pk=allocation_id)
        announce(f"allocation:{allocation_id}", f"pool:{pool_id}")
    return heard


# --- members --------------------------------------------------------------------------------------


def _step_member(
    member: Member, to: MemberState, reason: str, actor: str, sentence: str = "", **fields: Any
) -> bool:
    """Guarded step of a member whose allocation is locked by the caller. `sentence`: the host's own words on it."""
    detail = {
        "host": member.host.name,
        "index": member.index,
        "code": fields.get("exit_code"),
        "signal": fields.get("exit_signal"),
        **({"sentence": sentence} if sentence else {}),
    }
    event = event_of(Event.Kind.MEMBER, member.run_key, member.allocation.task, reason, actor, detail)
    if not step(member, MEMBER_STEPS, to, event, **fields):
        return False
    if to in {MemberState.LAUNCHED, MemberState.RUNNING}:
        failed_starts.forget(member.host)
    return True


def lock_member(member_id: int) -> Member:
    """The member with its host, its allocation (and task and job) locked for the rest of the transaction.

    The steps below take such a member, or the id alone and then lock it themselves.
    """
    allocation = _allocation_of_member.get(member_id)
    member = _member.get(member_id)
    member.allocation = allocation
    return member


def _locked(member: Member | int) -> Member:
    return member if isinstance(member, Member) else lock_member(member)


@joined
def member_launched(member_or_id: Member | int, *, boot_id: str) -> bool:
    member = _locked(member_or_id)
    done = _step_member(
        member, MemberState.LAUNCHED, Reason.LAUNCHED, f"host:{member.host.name}",
        boot_id=boot_id, launched_at=Now(), last_error="",
    )  # fmt: skip
    waiting = Member.objects.filter(allocation=member.allocation, state=MemberState.ASSIGNED).exists()
    if done and not waiting and member.allocation.state == AllocationState.ASSIGNED:
        step_allocation(member.allocation, AllocationState.STARTING, Reason.LAUNCHED, "server")
    return done


@joined
def member_running(member_or_id: Member | int, *, at: datetime | None = None) -> bool:
    """Its entrypoint has started, at the server's time `at` (None: now).

    A record of the run may say so before the answer of its launch does; then it was launched by now, too.
    """
    member = _locked(member_or_id)
    now = at if at and member.launched_at else database_now()
    at = at or now
    done = _step_member(
        member, MemberState.RUNNING, Reason.STARTED, f"host:{member.host.name}",
        started_at=at, launched_at=member.launched_at or now,
    )  # fmt: skip
    if done and member.allocation.state in {AllocationState.ASSIGNED, AllocationState.STARTING}:
        step_allocation(member.allocation, AllocationState.RUNNING, Reason.STARTED, "server", started_at=at)
        if member.allocation.task.recovers:  # from now on it is work like any other
            Task.objects.filter(pk=member.allocation.task_id).update(recovers=False)
    return done


@joined
def member_ended(
    member_or_id: Member | int,
    *,
    code: int | None,
    signal: int | None,
    reason: Reason,
    exited: bool = False,
    at: datetime | None = None,
    detail: dict[str, Any] | None = None,
    left: list[dict[str, Any]] | None = None,
) -> bool:
    """The member's part is over. Its slots are free, unless processes of it may be `left` on its host: then they stay
    held until `jobs.cleaning.done` (None: nothing is left; empty: nobody has looked yet).

    `exited`: its host has said so, and its runner may still bring what has not arrived. `at`: when that was, in the
    server's time (None: now), which may be long ago for a server that was away.
    `detail` is the first failing rank {"rank", "code", "signal", "t", "lines", …} where one is known. The
    earliest failure of the gang stands as the allocation's, so a peer that fell because of it never does.
    """
    member = _locked(member_or_id)
    at = max(filter(None, [at or database_now(), member.started_at]))
    if not _step_member(
        member, MemberState.ENDED, reason, f"host:{member.host.name}", str((detail or {}).get("sentence") or ""),
        exit_code=code, exit_signal=signal, exit_reason=reason, exited=exited, ended_at=at,
    ):  # fmt: skip
        return False
    if left is None:
        SlotHold.objects.filter(member=member, released_at=None).update(released_at=Now())
    else:
        cleaning.begin(member, left)
    allocation = member.allocation
    if detail is not None and rank_ends.is_earlier(detail, allocation.exit_detail):
        Allocation.objects.filter(pk=allocation.pk).update(exit_detail=detail)
        allocation.exit_detail = detail
    step_allocation(allocation, AllocationState.TERMINATING, reason, f"host:{member.host.name}")
    mark_dirty(allocation.pool_id)
    feeding.freed(member.host)
    announce(f"allocation:{allocation.pk}")
    return True


@joined
def terminate(
    allocation: Allocation, members: Sequence[Member], *, exit_reason: Reason, exit_code: int | None
) -> bool:
    """Close a locked allocation whose `members`, read under that lock, have all ended. False: not yet, or before.

    From now on its token opens nothing but the rest of its streams (dispatch.runs.intake) and of its uploads.
    """
    if allocation.state == AllocationState.TERMINATED:
        return False
    if any(member.state != MemberState.ENDED for member in members):
        return False
    now = database_now()
    ended_at = max((member.ended_at for member in members if member.ended_at), default=now)
    late_seconds = (now - ended_at).total_seconds()
    detail = {
        "code": exit_code,
        **({"known_after_seconds": round(late_seconds)} if late_seconds > _TOLD_LATE_SECONDS else {}),
        **{
            key: allocation.exit_detail[key]
            for key in ("rank", "host", "signal", "silent_seconds", "sentence")
            if key in allocation.exit_detail
        },
    }
    if not step_allocation(
        allocation, AllocationState.TERMINATED, exit_reason, "server", detail,
        exit_reason=exit_reason, exit_code=exit_code, ended_at=ended_at, settled_at=now,
    ):  # fmt: skip
        return False
    PortLease.objects.filter(allocation=allocation).delete()
    mark_dirty(allocation.pool_id)
    return True


# --- who launches a member, until when, and what came of it; all times are the database's -------------

#: no worker is launching it
_UNCLAIMED = Q(launch_claimed_until=None) | Q(launch_claimed_until__lt=Now())


@transaction.atomic
def claim_launch(member_id: int, seconds: float) -> bool:
    """Take the launch of a member for some seconds, so that a redelivered message does nothing."""
    return bool(
        Member.objects.filter(_UNCLAIMED, pk=member_id, state=MemberState.ASSIGNED).update(
            launch_claimed_until=Now() + timedelta(seconds=seconds),
            launch_attempts=F("launch_attempts") + 1,
            launch_crashes=F("launch_crashes") + 1,
        )
    )


@transaction.atomic
def ask_for_launches_again(after_seconds: float) -> int:
    """Send a message for each member that nobody launches although one was sent so long ago; the number of them.

    Not in every sweep: where workers are behind, messages that are sent again and again would put them further behind.
    """
    asked = Q(launch_asked_at__gt=Now() - timedelta(seconds=after_seconds), launch_asked_at__lte=Now())
    due = Member.objects.filter(_UNCLAIMED, state=MemberState.ASSIGNED).exclude(asked)
    ids = list(due.select_for_update(no_key=True, skip_locked=True).values_list("pk", flat=True))
    Member.objects.filter(pk__in=ids).update(launch_asked_at=Now())
    wake_all("dispatch.tasks.launch", [(pk,) for pk in ids])
    return len(ids)


def keep_account(allocation: Allocation) -> None:
    """Keep the account of an attempt's first launch for all its members and files, whoever is linked with it later."""
    if allocation.unix_user is None:
        of_it, account = Allocation.objects.filter(pk=allocation.pk), allocation.account or ""
        is_first = of_it.filter(unix_user=None).update(unix_user=account)
        allocation.unix_user = account if is_first else of_it.values_list("unix_user", flat=True).get()


def note_launch_sent(member_id: int) -> bool:
    """From now on until an answer comes nobody but the host knows whether the run was started. False: it is over."""
    return bool(Member.objects.filter(pk=member_id, state=MemberState.ASSIGNED).update(launch_in_doubt=True))


def note_launch_error(member_id: int, sentence: str, retry_seconds: float, *, in_doubt: bool) -> None:
    """Keep the sentence for the pages and free the claim in `retry_seconds`."""
    Member.objects.filter(pk=member_id, state=MemberState.ASSIGNED).update(
        last_error=sentence,
        launch_claimed_until=Now() + timedelta(seconds=retry_seconds),
        launch_in_doubt=in_doubt,
        launch_crashes=0,
    )


def note_launch_awaited(member_id: int, sentence: str, look_again_seconds: float) -> None:
    """The claim was only used to ask the host about a launch in doubt: that was no attempt."""
    Member.objects.filter(pk=member_id, state=MemberState.ASSIGNED, launch_attempts__gt=0).update(
        last_error=sentence,
        launch_claimed_until=Now() + timedelta(seconds=look_again_seconds),
        launch_attempts=F("launch_attempts") - 1,
        launch_crashes=0,
    )
