"""Writes what became of promised starts: missed ones at once, the others when their tasks have started.

All is read before the transaction of the forecast, which holds rows of the pool.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from jobs import queue_history
from jobs.models import Allocation, ForecastOutcome
from scheduling.calibration import Learned, still_waiting
from scheduling.promises import Kept, Promise
from scheduling.world import Plan


@dataclass(frozen=True)
class Outcomes:
    """`found`: rows to add. `over`: rows of missed promises whose tasks have started since, or left the queue.

    `learned`: with the starts that no edit of the queue has moved (`scheduling.calibration`).
    """

    found: list[ForecastOutcome]
    over: list[ForecastOutcome]
    learned: Learned


def started(promised: Mapping[str, Promise]) -> dict[str, datetime]:
    """Task id -> its first start since it was promised, for those that have started."""
    since = {task: _time(promise.at) for task, promise in promised.items()}
    starts = _Starts(since, since.values())
    firsts = {task: starts.first(task, at) for task, at in since.items()}
    return {task: first for task, first in firsts.items() if first is not None}


def late(
    pool_id: int, promised: Mapping[str, Promise], started: Mapping[str, datetime], now: float
) -> list[float]:
    """Where the starts of what still waits are at the earliest, but for what an edit of the queue may have moved."""
    waiting = [
        (promise.at, promise.guess)
        for task, promise in promised.items()
        if promise.guess is not None and task not in started and now - promise.at > promise.guess[0]
    ]
    if not waiting:
        return []
    edits = queue_history.edits_since(pool_id, _time(min(at for at, _ in waiting)))
    last = max((at.timestamp() for at in edits), default=0.0)
    return still_waiting([one for one in waiting if one[0] >= last], now)


def windows_edited(pool_id: int, promised: Mapping[str, Promise]) -> float:
    """When windows of the pool were edited last since the first of these promises; 0 if they were not."""
    if not promised:
        return 0.0
    first = _time(min(promise.at for promise in promised.values()))
    return max((at.timestamp() for at in queue_history.window_edits_since(pool_id, first)), default=0.0)


def due(
    pool_id: int, kept: Kept, started: Mapping[str, datetime], plan: Plan, now: float, learned: Learned
) -> Outcomes:
    """What is to be written. `started`: as above, of the promises from which `kept` was made; `learned`: before."""
    begun = {task: kept.gone[task] for task in started}
    ended = {**kept.missed, **{task: promise for task, promise in begun.items() if not promise.missed}}
    since = min((promise.at for promise in {**ended, **begun}.values()), default=now)
    edits = [at.timestamp() for at in queue_history.edits_since(pool_id, _time(since))] if since < now else []

    def edited(promise: Promise) -> bool:
        return any(promise.at < edit < now for edit in edits)

    found = [
        ForecastOutcome(
            pool_id=pool_id,
            task_id=task,
            promised_at=_time(promise.at),
            earliest=_time(promise.span[0]),
            latest=_time(promise.span[1]),
            missed_at=_time(now) if task in kept.missed else None,
            why=plan.waits[task].sentence if task in kept.missed else "",
            started_at=started.get(task),
            edited=edited(promise),
        )
        for task, promise in ended.items()
    ]
    for task, promise in sorted(begun.items(), key=lambda one: one[1].at):
        if promise.guess is not None and not edited(promise):
            learned = learned.started(promise.at, promise.guess, started[task].timestamp() - promise.at)
    return Outcomes(found, _over(pool_id, plan, now), learned)


def write(outcomes: Outcomes) -> None:
    ForecastOutcome.objects.bulk_create(outcomes.found, ignore_conflicts=True)
    ForecastOutcome.objects.bulk_update(outcomes.over, ["started_at", "left_at"])


def _over(pool_id: int, plan: Plan, now: float) -> list[ForecastOutcome]:
    waiting = list(ForecastOutcome.objects.filter(pool=pool_id, started_at=None, left_at=None))
    starts = _Starts({row.task_id for row in waiting}, [row.promised_at for row in waiting])
    queued = set(plan.order) if waiting else set()
    for row in waiting:
        row.started_at = starts.first(row.task_id, row.promised_at)
        if row.started_at is None and row.task_id not in queued:
            row.left_at = _time(now)
    return [row for row in waiting if row.started_at or row.left_at]


class _Starts:
    """When tasks got slots, by one query. `since`: times of which none earlier matters."""

    def __init__(self, tasks: Collection[str], since: Collection[datetime]) -> None:
        self._of: dict[str, list[datetime]] = defaultdict(list)
        if tasks:
            attempts = Allocation.objects.filter(task__in=tasks, assigned_at__gt=min(since))
            for task, at in attempts.order_by("assigned_at").values_list("task", "assigned_at"):
                self._of[task].append(at)

    def first(self, task: str, since: datetime) -> datetime | None:
        return next((at for at in self._of.get(task, ()) if at > since), None)


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
