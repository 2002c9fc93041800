"""Why a trial waits, and which of its hosts are silent, in sentences (ux.md 4)."""

from __future__ import annotations

from django.utils import timezone

from experiments.models import Trial
from hosts.models import Host
from jobs.models import Allocation, Member
from jobs.states import AllocationState, MemberState, TaskState
from logs.models import Stream


def waiting(trial: Trial) -> str:
    """Why the trial does not run, from the plan of the last pass; empty when it runs or rests."""
    if trial.task.state != TaskState.WAITING:
        return ""
    plan = trial.task.job.pool.plan
    wait = (plan.get("waits") or {}).get(trial.task_id)
    return str(wait["sentence"]) if wait else "It will be looked at in the next pass."


def silent_hosts(allocation: Allocation | None) -> str:
    """The hosts of a live attempt that do not answer, with their age: silence is shown, never acted on."""
    if allocation is None or allocation.state == AllocationState.TERMINATED:
        return ""
    members = allocation.members.exclude(state=MemberState.ENDED).select_related("host")
    parts = []
    for member in members:
        host = member.host
        if host.contact != Host.Contact.SILENT:
            continue
        heard = max(filter(None, [host.last_seen_at, host.last_heartbeat_at]), default=None)
        age = f" for {(timezone.now() - heard).total_seconds():.0f} s" if heard else ""
        parts.append(f"{host.name} silent{age}")
    if not parts:
        return ""
    return (
        f"{'; '.join(parts)}. Its work is not touched: it goes on when the host answers, "
        "or when somebody declares the host lost."
    )


def parts(allocation: Allocation | None) -> list[Member]:
    """The gang of an attempt, with hosts."""
    if allocation is None:
        return []
    return list(allocation.members.select_related("host"))


def missing_bytes(trial: Trial) -> int:
    """Bytes of log that never arrived."""
    return sum(
        Stream.objects.filter(member__allocation__task_id=trial.task_id).values_list(
            "missing_bytes", flat=True
        )
    )
