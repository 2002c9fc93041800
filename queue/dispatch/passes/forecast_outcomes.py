"""Writes what became of promised starts: missed ones at once, the others when their tasks have started."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from django.db.models import Min

from jobs.models import Allocation, ForecastOutcome, QueueEdit
from scheduling.promises import Kept, Promise
from scheduling.world import Plan


def write(pool_id: int, kept: Kept, plan: Plan, now: float) -> None:
    """Add rows for the promises that were missed just now, and for those whose tasks have started since."""
    started = _started(kept.gone)
    ended = {**kept.missed, **{task: kept.gone[task] for task in started}}
    if not ended:
        return
    edits = _edits(pool_id, min(promise.at for promise in ended.values()))
    for task, at in started.items():
        ForecastOutcome.objects.filter(task=task, started_at=None).update(started_at=at)
    ForecastOutcome.objects.bulk_create(
        [
            ForecastOutcome(
                pool_id=pool_id,
                task_id=task,
                promised_at=_time(promise.at),
                earliest=_time(promise.span[0]),
                latest=_time(promise.span[1]),
                missed_at=_time(now) if task in kept.missed else None,
                why=plan.waits[task].sentence if task in kept.missed else "",
                started_at=started.get(task),
                edited=any(promise.at < edit < now for edit in edits),
            )
            for task, promise in ended.items()
            if task in kept.missed or not promise.missed
        ],
        ignore_conflicts=True,
    )


def _started(gone: Mapping[str, Promise]) -> dict[str, datetime]:
    """Task id -> its start since it was promised, for those that have started: others are paused or over."""
    if not gone:
        return {}
    attempts = Allocation.objects.filter(
        task__in=gone, assigned_at__gt=_time(min(promise.at for promise in gone.values()))
    )
    return dict(attempts.values("task").annotate(first=Min("assigned_at")).values_list("task", "first"))


def _edits(pool_id: int, since: float) -> list[float]:
    made = QueueEdit.objects.filter(made_at__gt=_time(since)).values_list("made_at", "before", "after")
    return [
        at.timestamp()
        for at, *states in made
        if any(one["pool"] == pool_id for state in states for one in state)
    ]


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
