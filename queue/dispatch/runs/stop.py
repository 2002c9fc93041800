"""Carries the wish to stop to the hosts: a hint by HTTP (the runner's long poll) and the word by SSH."""

from __future__ import annotations

import logging
from collections import defaultdict
from datetime import datetime, timedelta

from django.db.models.functions import Now

from dispatch.going_on import going_on
from dispatch.runs import launch
from dispatch.ssh import remote
from events import presence
from hosts.models import Host
from jobs import leaving, transitions
from jobs.models import Allocation, Member
from jobs.states import AllocationState, MemberState, Reason, StopKind

log = logging.getLogger(__name__)

#: the word is sent again while the host has not acted on it
RESEND_SECONDS = 10.0


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
            by_host[member.host].append(member)
    for host, here in by_host.items():
        _tell(host, allocation, here)


def _due(member: Member, now: datetime) -> bool:
    sent = member.stop_sent_at
    return sent is None or now - sent > timedelta(seconds=RESEND_SECONDS)


def _tell(host: Host, allocation: Allocation, members: list[Member]) -> None:
    verb = "stop" if allocation.stop_kind == StopKind.STOP else "preempt"
    order: dict[str, object] = {"reason": str(allocation.stop_reason)}
    if verb == "stop":
        order["grace_seconds"] = allocation.stop_grace_seconds
    try:
        answer = remote.verb(host, verb, {"runs": {m.run_key: order for m in members}})
    except remote.RemoteError as error:
        log.warning("%s of %s on %s: %s", verb, allocation.pk, host.name, error)
        return
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
