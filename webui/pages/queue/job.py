"""One job as the queue knows it: its details, its place, every reason why it waits, its start, and who changed it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone

from dispatch.passes.explain import blockers
from events.models import Event
from jobs.models import Job
from jobs.states import JobState
from shown import timeline
from webui.pages.frame import page, show
from webui.pages.queue import listing, rows
from webui.pages.queue.rows import Row


@dataclass(frozen=True)
class Blocker:
    """A reason, and how many of the job's waiting tasks have it."""

    sentence: str
    tasks: int


@page
def detail(request: HttpRequest, job_id: UUID) -> HttpResponse:
    found = Job.objects.select_related("owner", "pool").filter(pk=job_id).first()
    if found is None:
        raise Http404(f"There is no job {job_id}.")
    row = _row(found)
    waiting, reasons = _reasons(found) if row and found.state == JobState.ACTIVE else (0, [])
    context = {
        "job": found,
        "pool": found.pool,
        "row": row,
        "waiting": waiting,
        "blockers": reasons,
        "entries": timeline.of(Event.objects.filter(kind=Event.Kind.JOB, subject=str(found.pk))),
    }
    return show(request, "queue_job", context, room="Job Queue", fragment="queue_job")


def _row(job: Job) -> Row | None:
    """The job as the board shows it; None when it stands in no queue."""
    if job.state == JobState.ENDED:
        return None
    return next(iter(rows.of(job.pool, listing.only(job.pool, job.pk))), None)


def _reasons(job: Job) -> tuple[int, list[Blocker]]:
    """How many of its tasks wait, and why, worked out now; the most frequent reason first."""
    found = blockers(job, timezone.now())
    counts = Counter(
        sentence for each in found.values() for sentence in dict.fromkeys(reason.sentence for reason in each)
    )
    return len(found), [Blocker(sentence, tasks) for sentence, tasks in counts.most_common()]
