"""Removes event rows that have been kept long enough, some in each round of the garbage collection.

What belongs to work that has not ended stays however old it is, and so does whatever notifications have yet to pass.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Exists, OuterRef, Q

from events.models import Event
from experiments.models import Experiment
from experiments.states import EXPERIMENT_END_STATES
from jobs.models import Job, Task
from jobs.states import JobState, TaskState
from notifications.models import Cursor

FOR_EVER = -1
#: event rows that one round removes at most
ROWS_PER_ROUND = 5000


def remove_old(now: datetime) -> int:
    """Remove rows older than EVENT_RETENTION_DAYS; how many. ROWS_PER_ROUND: there may be more."""
    if settings.EVENT_RETENTION_DAYS == FOR_EVER:
        return 0
    before = now - timedelta(days=settings.EVENT_RETENTION_DAYS)
    jobs = Job.objects.filter(pk=OuterRef("job_id")).exclude(state=JobState.ENDED)
    tasks = Task.objects.filter(pk=OuterRef("task_id")).exclude(state=TaskState.ENDED)
    experiments = Experiment.objects.filter(
        Q(pk=OuterRef("experiment_id")) | Q(job=OuterRef("job_id"))
    ).exclude(state__in=EXPERIMENT_END_STATES)  # a detached one lives although its job has ended
    old = Event.objects.filter(at__lt=before).exclude(Exists(jobs) | Exists(tasks) | Exists(experiments))
    passed = Cursor.objects.values_list("done", flat=True).first()
    if passed is not None:
        old = old.filter(pk__lte=passed)
    ids = list(old.order_by().values_list("pk", flat=True)[:ROWS_PER_ROUND])
    Event.objects.filter(pk__in=ids).delete()
    return len(ids)
