"""Stops of attempts: carries the wish to the hosts, and watches the time to save and the time that tasks run.

The hosts get a hint by HTTP (the runner's long poll) and the word by SSH. At the end of its time to save an attempt is
stopped. Ahead of a time limit there is a warning, at it a preemption, then the stop.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models.functions import Now

from dispatch.engines import chosen
from dispatch.going_on import going_on
from dispatch.runs import launch
from dispatch.ssh import remote
from events import presence
from hosts.models import Host
from jobs import leaving, transitions
from jobs.models import Allocation, Member, Task
from jobs.states import AllocationState, MemberState, Reason, StopKind
from jobs.time_limits import time_used

log = logging.getLogger(__name__)

#: the word is sent again while the host has not acted on it
RESEND_SECONDS = 10.0
#: of a short limit the warning comes when this part of it is left
WARNING_PART = 0.1


def stop(allocation_id: str) -> None:
    """Tell every open member of the allocation what is asked of it."""
    allocation = Allocation.objects.get(pk=allocation_id)
    if allocation.state == AllocationState.TERMINATED or not allocation.stop_kind:
        return
    # the runner of a detached run has heard of it over HTTP
    asked = allocation.members.exclude(state=MemberState.ENDED).exclude(host__transport=Host.Transport.NONE)
    members = asked.select_related("host", "allocation__task__job")
    by_host: dict[Host, list[Member]] = defaultdict(list)
    now = presence.database_now()
    for member in members:
        if member.state == MemberState.ASSIGNED:
            launch.launch(member.pk)  # claims it, sees the stop, and ends it
        elif _due(member, now):
            by_host[chosen.contact(member.host)].append(member)
    for host, here in by_host.items():
        _tell(host, allocation, here)


def _due(member: Member, now: datetime) -> bool:
    sent = member.stop_sent_at
    return sent is None or now - sent > timedelta(seconds=RESEND_SECONDS)


def _tell(host: Host, allocation: Allocation, members: list[Member]) -> None:
    kind = StopKind(allocation.stop_kind)
    order: dict[str, object] = {"reason": str(allocation.stop_reason)}
    if kind == StopKind.STOP:
        order["grace_seconds"] = allocation.stop_grace_seconds
    try:
        answer = chosen.of_host(host).cancel(host, kind, {m.run_key: order for m in members})
    except remote.RemoteError as error:
        log.warning("%s of %s on %s: %s", kind.lower(), allocation.pk, host.name, error)
        return
    finally:  # one that does not answer is not asked at every look either
        Member.objects.filter(pk__in=[m.pk for m in members]).update(stop_sent_at=Now())
    told = [m.pk for m in members if answer.get("runs", {}).get(m.run_key, {}).get("preempting")]
    leaving.preempt_told(told)


def escalate() -> int:
    """Stop preempted allocations that did not leave in the time they have had since they were told; how many."""
    for allocation_id in leaving.all_told():
        with going_on(f"the time that {allocation_id} has to save"):
            leaving.start_countdown(allocation_id)
    stopped = 0
    for allocation in leaving.overdue():
        with going_on(f"the stop of {allocation.pk}, which did not end in time"):
            stopped += transitions.request_stop(
                allocation.pk,
                StopKind.STOP,
                reason=Reason(allocation.stop_reason),
                actor="server",
                grace_seconds=allocation.stop_grace_seconds,
            )
    return stopped


def watch_limits(now: datetime) -> None:
    """Look at every attempt that runs under a limit; each is warned once and stopped once.

    One that is being preempted for another reason is among them: at its limit it has no longer to save than others.
    A run that waits for its members' launch has not begun; what its host did not let begin costs it no time.
    """
    limited = list(
        Allocation.objects.filter(task__max_time_seconds__isnull=False, started_at__isnull=False)
        .exclude(state=AllocationState.TERMINATED)
        .exclude(stop_kind=StopKind.STOP)
        .select_related("task")
    )
    used = time_used([allocation.task_id for allocation in limited])
    for allocation in limited:
        with going_on(f"the time limit of {allocation.pk}"):
            _look_at_limit(allocation, used.get(allocation.task_id, 0.0), now)


def _look_at_limit(allocation: Allocation, used: float, now: datetime) -> None:
    """`used`: seconds that earlier attempts of the task have run."""
    assert allocation.started_at is not None and allocation.task.max_time_seconds is not None
    limit = allocation.task.max_time_seconds
    ran = used + (now - allocation.started_at).total_seconds()
    if ran >= limit:
        _stop_at_limit(allocation)
    elif ran >= limit - min(settings.TIME_WARNING_SECONDS, WARNING_PART * limit):
        transitions.warn_of_limit(allocation.pk, seconds_left=limit - ran)


def _stop_at_limit(allocation: Allocation) -> None:
    """A trial may save first; a command cannot be asked to, and gets the grace of any stop."""
    kind = StopKind.STOP if allocation.task.kind == Task.Kind.COMMAND else StopKind.PREEMPT
    transitions.request_stop(
        allocation.pk,
        kind,
        reason=Reason.TIME_LIMIT,
        actor="server",
        preemption_timeout_seconds=settings.TIME_LIMIT_SAVE_SECONDS,
    )
