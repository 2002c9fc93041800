"""How long jobs stood in the queue until their first start, by the day on which they were submitted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.db.models import Avg, Count, ExpressionWrapper, F, OuterRef, Subquery
from django.db.models import fields as columns
from django.db.models.functions import TruncDate

from hosts.models import ResourcePool
from jobs.models import Allocation, Job


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
    started = (
        Allocation.objects.filter(task__job=OuterRef("pk")).order_by("assigned_at").values("assigned_at")[:1]
    )
    wait = ExpressionWrapper(F("started") - F("submitted_at"), output_field=columns.DurationField())
    rows = (
        Job.objects.filter(
            pool=pool, submitted_at__gte=datetime(first.year, first.month, first.day, tzinfo=UTC)
        )
        .annotate(started=Subquery(started), day=TruncDate("submitted_at", tzinfo=UTC))
        .filter(started__isnull=False)
        .order_by()
        .values("day")
        .annotate(jobs=Count("pk"), mean=Avg(wait))
        .values_list("day", "jobs", "mean")
    )
    found = {day: (count, mean.total_seconds()) for day, count, mean in rows}
    return [Day(day, *found.get(day, (0, None))) for day in (first + timedelta(days=n) for n in range(days))]
