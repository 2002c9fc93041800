"""One row for each job of a queue that is shown, the same for pages and REST, read for these jobs alone."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection

from accounts.models import User
from dispatch.passes import last_plan
from hosts.models import ResourcePool
from jobs import phases, queue_order
from jobs.models import Allocation, Job
from jobs.states import AllocationState, TaskState
from shown.queue import lines
from shown.queue.standing import StandingJob

# The table's own columns, as the model has them: Django makes the objects, but no statement.
_JOBS = "SELECT * FROM jobs_job WHERE id = ANY(%s)"
# Forty ids are one value here, and forty to be checked and written one by one where Django makes the statement.
_OF_EXPERIMENTS = """
SELECT e.job_id, p.workspace_id, e.progress
FROM experiments_experiment e JOIN experiments_project p ON p.id = e.project_id WHERE e.job_id = ANY(%s)
"""
_OF_TASKS = f"""
SELECT t.job_id, count(*), count(*) FILTER (WHERE t.state = '{TaskState.RUNNING}'),
       coalesce(array_agg(t.id ORDER BY t.created_at) FILTER (WHERE t.state = '{TaskState.WAITING}'), '{{}}')
FROM jobs_task t WHERE t.job_id = ANY(%s) AND {queue_order.WANTS} GROUP BY t.job_id
"""


class LiveAttempt(NamedTuple):
    """An attempt that has not ended; a job may have thousands of them."""

    id: str
    state: str
    stop_kind: str
    stop_reason: str
    #: the task that it is stopped for; empty if for none
    stop_for_task: str
    #: when it is forced, if it has not saved and left by then
    stop_deadline_at: datetime | None
    preempt_acked_at: datetime | None
    started_at: datetime | None
    assigned_at: datetime
    on_sufferance: bool


@dataclass(slots=True)
class JobRow:
    """One job of a queue, where it stands, and what the last pass said of it."""

    job: Job
    pool: ResourcePool
    #: from 0
    place: int
    #: queued, scheduled or backfilled
    state: str
    #: slots; `needed` is at least `held`
    held: int
    needed: int
    #: in the order in which they were assigned
    runs: Sequence[LiveAttempt] = ()
    #: tasks that want slots or have them
    tasks: int = 0
    tasks_running: int = 0
    #: the record of the reason why it waits (`last_plan.Plan.why`)
    wait: dict[str, Any] | None = None
    #: earliest and latest start of its next task in epoch seconds, or why they are not known
    forecast: list[float] | None = None
    #: another scheduler, whose word that is, and when it said so in epoch seconds; empty: the queue's own
    forecast_by: str = ""
    said_at: float | None = None
    unknown: str | None = None
    #: slots that it is entitled to, where jobs have shares
    share: float | None = None
    progress: float | None = None
    workspace_id: int = 1

    @property
    def ahead(self) -> int | None:
        """How many jobs stand before it; None if the pool keeps no order."""
        return ahead(self.pool, self.place)

    @property
    def waits(self) -> bool:
        """Whether it lacks something of what it asks for."""
        return self.held < self.needed or self.state == "queued"

    @property
    def preemptible(self) -> bool:
        """Whether the pool may stop it for others."""
        return self.job.preemptible and self.pool.policy.stops_runs(self.pool.preemption)

    @property
    def leaving(self) -> str | None:
        """`pausing`, `saving`, `1 of 20 stopping`; None while none of its runs leaves."""
        words = [phases.word(run) for run in self.runs if phases.leaves(run)]
        if not words:
            return None
        word = phases.together(words)
        return word if len(words) == len(self.runs) else f"{len(words)} of {len(self.runs)} {word}"


def ahead(pool: ResourcePool, place: int) -> int | None:
    """How many jobs stand before the one at a place; None if the pool keeps no order."""
    return place if pool.policy.order else None


def one(job: Job) -> JobRow | None:
    """The row of a job; None if it stands in no queue."""
    return next(iter(of(job.pool, lines.page(job.pool, ids=[job.pk])[0])), None)


def of(pool: ResourcePool, found: Iterable[StandingJob]) -> list[JobRow]:
    """The rows of these lines of a pool's queue, in their order, by six queries at most.

    A job that was removed since they were read is left out.
    """
    asked = {line.job_id: line for line in found}
    jobs = {job.pk: job for job in Job.objects.raw(_JOBS, [list(asked)])}
    owners = User.objects.defer("password").in_bulk({job.owner_id for job in jobs.values()})
    rows = {}
    for job_id, line in asked.items():
        if job := jobs.get(job_id):
            job.owner = owners[job.owner_id]  # one instance for all of a person's jobs
            rows[job_id] = JobRow(
                job, pool, line.place, line.state, line.held, line.needed, progress=job.progress
            )
    _note_experiments(rows)
    _note_runs({job_id: row for job_id, row in rows.items() if row.state != "queued"})
    _note_plan(pool, rows, _note_tasks(rows))
    return list(rows.values())


def _note_experiments(rows: dict[uuid.UUID, JobRow]) -> None:
    for job_id, workspace_id, progress in _asked(_OF_EXPERIMENTS, rows):
        rows[job_id].workspace_id = workspace_id
        if progress is not None:
            rows[job_id].progress = progress


def _note_runs(rows: dict[uuid.UUID, JobRow]) -> None:
    if not rows:
        return
    runs: dict[uuid.UUID, list[LiveAttempt]] = defaultdict(list)
    opened = Allocation.objects.filter(task__job_id__in=rows).exclude(state=AllocationState.TERMINATED)
    for job_id, *values in opened.order_by("assigned_at").values_list("task__job_id", *LiveAttempt._fields):
        runs[job_id].append(LiveAttempt(*values))
    for job_id, found in runs.items():
        rows[job_id].runs = found


def _note_tasks(rows: dict[uuid.UUID, JobRow]) -> dict[uuid.UUID, list[str]]:
    """Count the tasks of each job; return the ids of those that wait, oldest first."""
    waiting = {}
    for job_id, tasks, running, waits in _asked(_OF_TASKS, rows):
        rows[job_id].tasks, rows[job_id].tasks_running = tasks, running
        waiting[job_id] = waits
    return waiting


def waiting_tasks(jobs: Sequence[uuid.UUID]) -> list[list[str]]:
    """The ids of the tasks of each of these jobs that wait, oldest first, in the order of the jobs."""
    waiting = {job_id: waits for job_id, *_, waits in _asked(_OF_TASKS, jobs)}
    return [waiting[job_id] for job_id in jobs if job_id in waiting]


def _asked(statement: str, jobs: Iterable[uuid.UUID]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, [list(jobs)])
        return list(cursor.fetchall())


def _note_plan(
    pool: ResourcePool, rows: dict[uuid.UUID, JobRow], waiting: dict[uuid.UUID, list[str]]
) -> None:
    """Why tasks of it wait, the earliest start of any, and the share."""
    plan = last_plan.of(pool)
    for job_id, tasks in waiting.items():
        row = rows[job_id]
        row.wait = plan.why(tasks)
        for task_id in tasks:
            row.unknown = row.unknown or plan.why_unknown(task_id)
            span = plan.forecast.get(task_id)
            if span and (row.forecast is None or span[0] < row.forecast[0]):
                row.forecast, row.forecast_by = span, plan.by
                row.said_at = plan.said_at.get(task_id)
    if plan.shares:
        for job_id, row in rows.items():
            row.share = plan.shares.get(str(job_id))
