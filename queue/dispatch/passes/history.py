"""How long work like this ran before: what forecasts go by where the work itself says nothing."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from django.conf import settings
from django.db.models import F
from django.utils import timezone

from jobs.models import Allocation
from jobs.states import AllocationState, Reason

#: attempts that are looked at, the newest first, and how many of them stand for one job or one person
MOST_ATTEMPTS = 5000
MOST_ALIKE = 30


@dataclass(frozen=True)
class History:
    """Seconds that attempts ran which ended by themselves, the newest first."""

    by_job: Mapping[str, Sequence[float]] = field(default_factory=dict)
    by_owner: Mapping[tuple[int, str], Sequence[float]] = field(default_factory=dict)

    def like(self, job_id: str, owner_id: int, kind: str) -> Sequence[float]:
        """Return run times of the same job (another trial of the search), else of its owner's work of this kind."""
        return self.by_job.get(job_id) or self.by_owner.get((owner_id, kind), ())


#: what this process read last, and when by its monotonic clock
_kept: tuple[float, History] | None = None


def recent() -> History:
    """Read at most once in FORECAST_HISTORY_SECONDS: one more attempt changes no forecast much."""
    global _kept
    now = time.monotonic()
    if _kept is None or now - _kept[0] > settings.FORECAST_HISTORY_SECONDS:
        _kept = (now, _read())
    return _kept[1]


def _read() -> History:
    since = timezone.now() - timedelta(days=settings.FORECAST_HISTORY_DAYS)
    rows = (
        Allocation.objects.filter(
            state=AllocationState.TERMINATED,
            exit_reason=Reason.COMPLETED,
            ended_at__gt=since,
            started_at__isnull=False,
        )
        .order_by("-ended_at")
        .annotate(ran=F("ended_at") - F("started_at"))
        .values_list("task__job_id", "task__job__owner_id", "task__job__kind", "ran")[:MOST_ATTEMPTS]
    )
    by_job: dict[str, list[float]] = defaultdict(list)
    by_owner: dict[tuple[int, str], list[float]] = defaultdict(list)
    for job_id, owner_id, kind, ran in rows:
        for alike in (by_job[str(job_id)], by_owner[owner_id, kind]):
            if len(alike) < MOST_ALIKE:
                alike.append(ran.total_seconds())
    return History(by_job, by_owner)
