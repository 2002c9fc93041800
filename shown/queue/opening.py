"""What the queue page opens on beside a person's own jobs: the next departures, and what theirs wait for.

Tasks and jobs are asked for in turn and never joined: a planner that has not yet counted a burst of submissions looks
through all waiting tasks for each job of a join.
"""

from __future__ import annotations

import heapq
import uuid
from typing import Any

from dispatch.passes import last_plan
from hosts.models import ResourcePool
from jobs.labels import called
from jobs.models import Job, Task
from jobs.states import JobState, TaskState

#: candidates; those alike fold into one line, and a few lines are shown (`listing.OTHERS_LINES`)
MOST_DEPARTURES = 100
MOST_BLOCKERS = 20
#: so many of a person's waiting tasks, of so many of their jobs, are asked what they wait for
MOST_JOBS = 1000
MOST_ASKED = 200
#: the soonest forecasts may be of a person's own tasks, and several of one job
FORECASTS_READ = 5 * MOST_DEPARTURES


def departures(pool: ResourcePool, me: int) -> list[uuid.UUID]:
    """Others' jobs that start next, by their forecasts."""
    plan = last_plan.of(pool)
    soonest = heapq.nsmallest(FORECASTS_READ, plan.forecast, key=lambda task: plan.forecast[task])
    jobs = dict(Task.objects.filter(pk__in=soonest, state=TaskState.WAITING).values_list("pk", "job_id"))
    others = Job.objects.filter(pk__in=set(jobs.values()), pool=pool, state=JobState.ACTIVE).exclude(
        owner_id=me
    )
    known = set(others.values_list("pk", flat=True))
    found = dict.fromkeys(jobs[task] for task in soonest if task in jobs)
    return [job for job in found if job in known][:MOST_DEPARTURES]


def blockers(pool: ResourcePool, me: int) -> list[uuid.UUID]:
    """The jobs that the reasons of a person's waiting work name."""
    waits = last_plan.of(pool).waits
    labels = dict.fromkeys(
        label for task in _waiting_of(pool, me) if task in waits for label in _named(waits[task])
    )
    named = Job.objects.filter(called(list(labels)[:MOST_BLOCKERS]))
    return list(named.exclude(state=JobState.ENDED).values_list("pk", flat=True))


def _waiting_of(pool: ResourcePool, me: int) -> list[str]:
    """A person's first waiting tasks, in the order of their jobs."""
    mine = Job.objects.filter(pool=pool, owner_id=me, state=JobState.ACTIVE).order_by("priority", "position")
    order = {job_id: place for place, job_id in enumerate(mine.values_list("pk", flat=True)[:MOST_JOBS])}
    waiting = Task.objects.filter(job__in=order, state=TaskState.WAITING)
    found = waiting.values_list("job_id", "created_at", "pk")
    return [task for *_, task in sorted((order[job], at, task) for job, at, task in found)][:MOST_ASKED]


def _named(wait: dict[str, Any]) -> list[str]:
    """The labels of jobs in the numbers of a reason (scheduling.reasons): who holds, frees, or has it kept."""
    data = wait.get("data") or {}
    runs = [str(run[0]) for run in data.get("runs") or []]
    return [*(data.get("by") or []), *(data.get("for") or []), *runs]
