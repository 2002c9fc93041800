"""How trials failed, in one sentence each for lists; the whole story is `logs.why_stopped` (ux.md 5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Exists, OuterRef, QuerySet

from events.prepared import Prepared
from experiments.models import Trial
from jobs import exits
from jobs.models import Allocation
from jobs.states import AllocationState, Reason
from logs import why_stopped

NOT_FAILURES = [
    Reason.COMPLETED,
    Reason.PREEMPTED,
    Reason.PAUSED_BY_USER,
    Reason.CANCELED_BY_USER,
    Reason.KILLED_BY_USER,
    Reason.SEARCHER_STOPPED,
    Reason.SEARCHER_PARKED,
    Reason.MAX_SLOTS_SET,
    Reason.WINDOW,
]


@dataclass(frozen=True)
class Failure:
    """The first failure of an attempt. `rank` is None when none is known (a launch that failed, a lost host)."""

    attempt: int
    sentence: str
    lines: list[str]
    rank: int | None
    host: str
    code: int | None


def sentences(trials: Iterable[Trial]) -> dict[int, str]:
    """Trial id -> how its newest failed attempt failed, one query for all; trials that never failed are left out."""
    trial_of = {trial.task_id: trial.pk for trial in trials}
    failed = _failed().filter(task__in=trial_of).order_by("number")
    return {trial_of[each.task_id]: _sentence(each) for each in failed}


def _failed() -> QuerySet[Allocation]:
    over = Allocation.objects.filter(state=AllocationState.TERMINATED)
    left_in_time = {"exit_reason": Reason.HOST_FAULT, "stop_reason": Reason.HOST_FAULT}
    return over.exclude(exit_reason__in=NOT_FAILURES).exclude(**left_in_time)


def has_failed() -> Exists:
    """An annotation of trials: whether an attempt has failed."""
    return Exists(_failed().filter(task=OuterRef("task")))


_newest_failed = Prepared(
    lambda: _failed().select_related("task").order_by("-number"), "task_id", "of no task"
)


def latest(trial: Trial) -> Failure | None:
    """The failure of the newest attempt that failed, with the last words of the rank that failed first."""
    allocation = _newest_failed.find(trial.task_id)
    if allocation is None:
        return None
    story = why_stopped.of_attempt(allocation)
    return Failure(
        allocation.number,
        f"Attempt {allocation.number}: {' '.join(story.sentences)}",
        [line.text for line in story.words.lines],
        story.rank,
        story.host,
        story.exit_code,
    )


def _sentence(allocation: Allocation) -> str:
    attempt, reason = f"Attempt {allocation.number}", Reason(allocation.exit_reason).label
    if allocation.exit_reason == Reason.TIME_LIMIT:
        return f"{attempt}: {reason}; its checkpoints are kept."
    detail = allocation.exit_detail
    where = f" on {detail['host']}" if detail.get("host") else ""
    if detail.get("sentence"):
        return f"{attempt}: {reason}{where}: {detail['sentence']}"
    how = exits.words(detail.get("code", allocation.exit_code), detail.get("signal"))
    if detail.get("rank") is not None:
        return f"{attempt}: rank {detail['rank']}{where} failed first, {how}."
    return f"{attempt}: {reason}{where}, {how}."
