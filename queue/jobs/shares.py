"""Who holds and wants slots of a pool now, by user and by job, and in a fair-share pool what each is entitled to."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, QuerySet, Sum

from accounts.models import User
from hosts.models import ResourcePool
from jobs.models import Job, SlotHold, Task
from jobs.states import JobState, TaskState

#: job id -> slots, of the plan of a pool's last pass; None where the scheduler knows no shares
Entitled = Mapping[str, float] | None


@dataclass(frozen=True)
class OfUser:
    """In slots. `waiting`: asked for by what would start now; `entitled`: of the user's jobs together."""

    user: User
    held: int
    waiting: int
    entitled: float | None


@dataclass(frozen=True)
class OfJob:
    """In slots. `waiting`: of its tasks that would start now."""

    job: Job
    held: int
    waiting: int
    entitled: float | None


def by_user(pool: ResourcePool, shares: Entitled) -> list[OfUser]:
    """Who holds, wants or is entitled to slots, the one with the most first."""
    held = _counts(_holds(pool), "member__allocation__task__job__owner", Count("pk"))
    waiting = _counts(_waiting(pool), "job__owner", Sum("slots"))
    granted = _of_owners(shares)
    people = User.objects.in_bulk({*held, *waiting, *granted})
    found = [
        OfUser(user, held.get(pk, 0), waiting.get(pk, 0), None if shares is None else granted.get(pk, 0))
        for pk, user in people.items()
    ]
    return sorted(
        found, key=lambda each: (-each.held, -(each.entitled or 0), -each.waiting, each.user.username)
    )


def of_user(pool: ResourcePool, user: User, shares: Entitled, waiting: int) -> OfUser:
    """Return what one user holds and is entitled to, beside what is known to wait (`shown.queue.standing`)."""
    held = _holds(pool).filter(member__allocation__task__job__owner=user).count()
    return OfUser(user, held, waiting, None if shares is None else _of_owners(shares).get(user.pk, 0))


def by_job(pool: ResourcePool, shares: Entitled, first: int, end: int) -> tuple[int, list[OfJob]]:
    """How many jobs hold, want or are entitled to slots, and some of them, the one that holds most first."""
    held = _counts(_holds(pool), "member__allocation__task__job", Count("pk"))
    waiting = _counts(_waiting(pool), "job", Sum("slots"))
    granted = {uuid.UUID(job_id): slots for job_id, slots in (shares or {}).items() if slots}
    order = sorted(
        {*held, *waiting, *granted},
        key=lambda pk: (-held.get(pk, 0), -granted.get(pk, 0), -waiting.get(pk, 0), pk),
    )
    jobs = Job.objects.select_related("owner").in_bulk(order[first:end])
    rows = [
        OfJob(jobs[pk], held.get(pk, 0), waiting.get(pk, 0), None if shares is None else granted.get(pk, 0))
        for pk in order[first:end]
        if pk in jobs
    ]
    return len(order), rows


def _holds(pool: ResourcePool) -> QuerySet[SlotHold]:
    """By the pool that gave the slots: a job that was moved still holds some until it has stopped.

    What is cleaned up after a run is nobody's share.
    """
    held = SlotHold.objects.filter(released_at=None, member__cleaning_since=None)
    return held.filter(member__allocation__pool=pool).order_by()


def _waiting(pool: ResourcePool) -> QuerySet[Task]:
    waits = Task.objects.filter(state=TaskState.WAITING, slots__gt=0)
    return waits.filter(job__pool=pool, job__state=JobState.ACTIVE).order_by()


def _counts(rows: QuerySet[Any], key: str, number: Count | Sum) -> dict[Any, int]:
    return dict(rows.values(key).annotate(n=number).values_list(key, "n"))


def _of_owners(shares: Entitled) -> dict[int, float]:
    granted = {job_id: slots for job_id, slots in (shares or {}).items() if slots}
    found: dict[int, float] = defaultdict(int)
    for job_id, owner_id in Job.objects.filter(pk__in=granted).values_list("pk", "owner"):
        found[owner_id] += granted[str(job_id)]
    return found
