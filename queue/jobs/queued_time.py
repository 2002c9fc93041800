"""How long jobs stood in the queue until their first start, by the day on which they were submitted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.db.models import Avg, Count, F
from django.db.models.functions import TruncDate

from hosts.models import ResourcePool
from jobs.models import FirstStart


@dataclass(frozen=True)
class Day:
    """`seconds`: the mean wait of the `jobs` that have started; None when none has."""

    day: date
    jobs: int
    seconds: float | None


def by_day(pool: ResourcePool, days: int, now: datetime) -> list[Day]:
    """The last `days` days in UTC, today last. Jobs that still wait for their first start are not counted."""
    today = now.astimezone(UTC).date()
    first = today - timedelta(days=days - 1)
    started = FirstStart.objects.filter(
        job__pool=pool, submitted_at__gte=datetime(first.year, first.month, first.day, tzinfo=UTC)
    )
    rows = (
        started.annotate(day=TruncDate("submitted_at", tzinfo=UTC))
        .values("day")
        .annotate(jobs=Count("pk"), mean=Avg(F("at") - F("submitted_at")))
        .values_list("day", "jobs", "mean")
    )
    found = {day: (count, mean.total_seconds()) for day, count, mean in rows}
    return [Day(day, *found.get(day, (0, None))) for day in (first + timedelta(days=n) for n in range(days))]
