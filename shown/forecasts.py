"""Promised starts of a pool against real ones: how often forecasts were right in the last week, and the worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from hosts.models import ResourcePool
from jobs.labels import label_of
from jobs.models import ForecastOutcome

DAYS = 7
#: outcomes that are read, the newest first, and misses that are listed
MOST_OUTCOMES = 5000
MOST_MISSES = 10


@dataclass(frozen=True)
class Outcome:
    """One promise and what became of it. `error`: seconds by which the start was outside of the range, below 0: sooner.

    A task that has not started is late by what has passed since; if it left the queue without a start, by what had
    passed then. `edited`: a user edited the queue in between.
    """

    job_id: str
    label: str
    promised_at: datetime
    earliest: datetime
    latest: datetime
    started_at: datetime | None
    left_at: datetime | None
    missed_at: datetime | None
    why: str
    edited: bool
    error: float

    @property
    def off(self) -> float:
        return abs(self.error)

    @property
    def width(self) -> float:
        return (self.latest - self.earliest).total_seconds()


@dataclass(frozen=True)
class Record:
    """The week in numbers. Percentages are of `promises`, None if there were none; `median_error`: of those outside."""

    promises: int
    inside: float | None
    sooner: float | None
    later: float | None
    withdrawn: float | None
    edited: int
    median_width: float | None
    median_error: float | None
    worst: list[Outcome]


def outcomes(pool: ResourcePool, now: datetime) -> list[Outcome]:
    """The promises of the last days that were missed or whose tasks have started, the newest first."""
    rows = (
        ForecastOutcome.objects.filter(pool=pool, promised_at__gte=now - timedelta(days=DAYS))
        .select_related("task__job")
        .order_by("-promised_at")[:MOST_OUTCOMES]
    )
    return [_outcome(row, now) for row in rows]


def _outcome(row: ForecastOutcome, now: datetime) -> Outcome:
    start, job = row.started_at or row.left_at or now, row.task.job
    outside = start - row.earliest if start < row.earliest else max(timedelta(), start - row.latest)
    return Outcome(
        job_id=str(job.pk),
        label=label_of(job.kind, job.entity_id),
        promised_at=row.promised_at,
        earliest=row.earliest,
        latest=row.latest,
        started_at=row.started_at,
        left_at=row.left_at,
        missed_at=row.missed_at,
        why=row.why,
        edited=row.edited,
        error=outside.total_seconds(),
    )


def record(found: Sequence[Outcome]) -> Record:
    """What `outcomes` found, in numbers."""
    outside = [each for each in found if each.error]
    sooner, later = (sum(sign * each.error > 0 for each in found) for sign in (-1, 1))
    return Record(
        promises=len(found),
        inside=_percent(len(found) - len(outside), found),
        sooner=_percent(sooner, found),
        later=_percent(later, found),
        withdrawn=_percent(sum(each.missed_at is not None for each in found), found),
        edited=sum(each.edited for each in outside),
        median_width=median(each.width for each in found) if found else None,
        median_error=median(each.off for each in outside) if outside else None,
        worst=sorted(outside, key=lambda each: -each.off)[:MOST_MISSES],
    )


def _percent(count: int, found: Sequence[Outcome]) -> float | None:
    return round(100 * count / len(found), 1) if found else None
