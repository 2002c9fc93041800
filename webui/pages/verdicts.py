"""Why a trial waits and why it ended, in sentences (ux.md 4 and 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from experiments.models import Trial
from hosts.models import Host
from jobs.models import Allocation, Member
from jobs.states import AllocationState, MemberState, Reason, TaskState
from logs import read
from logs.models import Stream
from webui.pages import words

LAST_LINES = 12
NOT_FAILURES = [
    Reason.COMPLETED,
    Reason.PREEMPTED,
    Reason.PAUSED_BY_USER,
    Reason.CANCELED_BY_USER,
    Reason.KILLED_BY_USER,
    Reason.SEARCHER_STOPPED,
]


@dataclass(frozen=True)
class Failure:
    """The first failure of an attempt: which rank, where, how, and what it said last."""

    attempt: int
    sentence: str
    lines: list[str]
    rank: int | None


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


def failure(trial: Trial) -> Failure | None:
    """The first failure of the latest attempt that failed."""
    allocation = (
        trial.task.allocations.filter(state=AllocationState.TERMINATED)
        .exclude(exit_reason__in=NOT_FAILURES)
        .order_by("-number")
        .first()
    )
    if allocation is None:
        return None
    detail = allocation.exit_detail
    rank = detail.get("rank")
    return Failure(allocation.number, _sentence(allocation, detail), _last_lines(trial, rank), rank)


def _sentence(allocation: Allocation, detail: dict[str, Any]) -> str:
    reason = Reason(allocation.exit_reason).label
    if detail.get("sentence"):
        return f"Attempt {allocation.number}: {reason} {detail.get('host', '')}: {detail['sentence']}"
    how = words.exit_code(detail.get("code", allocation.exit_code), detail.get("signal"))
    if detail.get("rank") is not None:
        return (
            f"Attempt {allocation.number}: rank {detail['rank']} on {detail.get('host')} failed first, {how}."
        )
    where = f" on {detail['host']}" if detail.get("host") else ""
    return f"Attempt {allocation.number}: {reason}{where}, {how}."


def _last_lines(trial: Trial, rank: int | None) -> list[str]:
    ranks = frozenset({rank}) if rank is not None else frozenset()
    return [line.text for line in read.tail(trial.task_id, read.Filters(ranks=ranks), LAST_LINES)]


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
