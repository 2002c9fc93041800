"""The time that preempted work has to save in: it counts from when its hosts were told, not from the wish.

A host may be away when someone pauses a job, and its code is asked to save only once the host is back. So a preemption
has no deadline until everything of it that runs is known to have been told. All times are the database's, since web
processes and workers of many machines write and compare them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.db import transaction
from django.db.models import (
    DateTimeField,
    DurationField,
    Exists,
    ExpressionWrapper,
    F,
    Max,
    OuterRef,
    Q,
    Value,
)
from django.db.models.functions import Coalesce, Now

from jobs import transitions
from jobs.models import Allocation, Member
from jobs.states import AllocationState, MemberState, Reason, StopKind


def preempt_told(member_ids: Iterable[int]) -> int:
    """Keep that the hosts of these members have confirmed the order to save and leave; how many were new."""
    untold = Member.objects.filter(preempt_told_at=None, allocation__stop_kind=StopKind.PREEMPT)
    return untold.filter(pk__in=list(member_ids)).update(preempt_told_at=Now())


def all_told() -> list[str]:
    """Ids of preempted allocations that have no deadline yet although everything of them that runs was told.

    Training code that has acknowledged the order answers for its whole gang: its ranks leave together.
    """
    may_run = Q(state__in=[MemberState.LAUNCHED, MemberState.RUNNING]) | Q(
        state=MemberState.ASSIGNED, launch_in_doubt=True
    )
    untold = Member.objects.filter(may_run, allocation=OuterRef("pk"), preempt_told_at=None)
    waiting = Allocation.objects.filter(stop_kind=StopKind.PREEMPT, stop_deadline_at=None)
    waiting = waiting.exclude(state=AllocationState.TERMINATED)
    return list(
        waiting.filter(~Exists(untold) | Q(preempt_acked_at__isnull=False)).values_list("pk", flat=True)
    )


def start_countdown(allocation_id: str) -> None:
    """Set the end of the time to save, counted from when the last member was told."""
    told = Member.objects.filter(allocation=allocation_id).aggregate(at=Max("preempt_told_at"))["at"]
    begin = Coalesce(Value(told, DateTimeField()), F("preempt_acked_at"), F("stop_requested_at"))
    seconds = ExpressionWrapper(F("stop_save_seconds") * Value(timedelta(seconds=1)), DurationField())
    Allocation.objects.filter(pk=allocation_id, stop_deadline_at=None).update(
        stop_deadline_at=begin + seconds
    )


def overdue() -> list[Allocation]:
    """Preempted allocations whose time to save is over."""
    late = Allocation.objects.filter(stop_kind=StopKind.PREEMPT, stop_deadline_at__lt=Now())
    return list(late.exclude(state=AllocationState.TERMINATED))


@transaction.atomic
def asked_by_slurm(allocation_id: str) -> bool:
    """Slurm has asked an attempt in its cluster to save and leave, as the queue asks: it waits again afterwards."""
    free = Allocation.objects.filter(pk=allocation_id, stop_kind=StopKind.NONE).exclude(pool__slurm={})
    return free.exists() and transitions.request_stop(
        allocation_id, StopKind.PREEMPT, reason=Reason.PREEMPTED, actor="slurm"
    )


@transaction.atomic
def acknowledged(allocation_id: str) -> bool:
    """The training code will save and leave. If the queue has not asked for that, Slurm has."""
    asked_by_slurm(allocation_id)
    return transitions.preempt_acknowledged(allocation_id)
