"""How long work ran: the time of its attempts alone, without what it waited before and between them; what it holds."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, F, OuterRef, Q, Subquery, Sum
from django.db.models.functions import Coalesce, Now

from jobs.models import Allocation
from jobs.states import AllocationState
from trainmaster.quantities import duration

_SECONDS = Sum(Coalesce(F("ended_at"), Now()) - F("started_at"))
#: of a trial, to order trials by
OF_TRIAL = Subquery(
    Allocation.objects.filter(task=OuterRef("task_id"), started_at__isnull=False)
    .order_by()
    .values("task")
    .annotate(ran=_SECONDS)
    .values("ran")
)


@dataclass(frozen=True)
class Ran:
    """`seconds` of all attempts that began, side by side or not."""

    seconds: float
    attempts: int

    @property
    def time(self) -> str:
        return duration(self.seconds)

    def __str__(self) -> str:
        """`ran 2 min in 2 attempts`, or `not started`."""
        if not self.attempts:
            return "not started"
        times = f" in {self.attempts} attempts" if self.attempts > 1 else ""
        return f"ran {self.time}{times}"


@dataclass(frozen=True)
class Held:
    """`slots` of attempts that have not ended, and the names of their `hosts`."""

    slots: int
    hosts: list[str]


def held(of: Q) -> Held:
    """What these attempts hold now."""
    running = Allocation.objects.filter(of).exclude(state=AllocationState.TERMINATED)
    hosts = running.filter(members__host__isnull=False).values_list("members__host__name", flat=True)
    return Held(running.aggregate(sum=Sum("slots"))["sum"] or 0, sorted(set(hosts)))


def ran(of: Q) -> Ran:
    """How long these attempts ran."""
    begun = Allocation.objects.filter(of, started_at__isnull=False)
    found = begun.aggregate(seconds=_SECONDS, attempts=Count("pk"))
    return Ran(found["seconds"].total_seconds() if found["seconds"] else 0.0, found["attempts"])
