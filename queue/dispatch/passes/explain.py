"""Why the work of a job waits, all of it: computed now, read-only and without the pool's lock.

The plan that a pass stored has one reason a task; these are what `scheduling.explain` finds in a fresh survey.
"""

from __future__ import annotations

from datetime import datetime

from dispatch.passes import survey
from dispatch.passes.survey import no_garbage_collection
from jobs.models import Job
from scheduling.explain import explain
from scheduling.plan import decide
from scheduling.reasons import Reason


def blockers(job: Job, now: datetime) -> dict[str, list[Reason]]:
    """Task id -> every reason why it does not run, for the job's tasks that wait in its pool.

    No reason at all: the next pass starts it. A task that runs, or rests with a paused job, is left out.
    """
    with no_garbage_collection():
        snapshot = survey.take(job.pool, now)
        plan = decide(snapshot)
    waiting = [
        request.task_id
        for request in snapshot.requests
        if request.job_id == str(job.pk) and request.running is None
    ]
    return {task_id: explain(snapshot, task_id, plan) for task_id in waiting}
