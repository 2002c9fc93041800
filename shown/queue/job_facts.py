"""What Manage Job says of one job: a few counts, never the whole queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Sum

from dispatch.passes import last_plan
from experiments.models import Experiment
from jobs import phases, queue_order
from jobs.models import Allocation, Job, Task
from jobs.states import AllocationState, JobState, TaskState

#: of an edit of many jobs not every sentence is read
MOST_SENTENCES = 3
#: rows shown above and below a job
AROUND = 3
TYPES = dict(Job.Kind.choices)


@dataclass(frozen=True)
class Facts:
    """Where a job stands. `ahead` is None where the pool keeps no order, or when the job stands in no queue."""

    job: Job
    experiment: Experiment | None
    state: str
    held: int
    needed: int
    backfilled: bool
    preemptible: bool
    progress: float | None
    ahead: int | None
    standing: int
    #: what the last forecast says of its deadline
    deadline: str = ""

    @property
    def position(self) -> int | None:
        return None if self.ahead is None else self.ahead + 1

    @property
    def type(self) -> str:
        return TYPES.get(self.job.kind, self.job.kind.capitalize())

    @property
    def percent(self) -> str:
        return "" if self.progress is None else f"{100 * self.progress:.1f} %"

    @property
    def ahead_words(self) -> str:
        """`no jobs`, `1 job`, `5 jobs`."""
        if self.ahead is None:
            return ""
        return f"{self.ahead or 'no'} job{'' if self.ahead == 1 else 's'}"


def deadline_of(job: Job) -> dict[str, Any]:
    """What the last forecast says of the job's deadline: outcome, sentence and latest_start; empty if nothing."""
    return last_plan.of(job.pool).deadlines.get(str(job.pk), {}) if job.deadline_at else {}


def facts_of(job: Job) -> Facts:
    """Everything the dialog says of the job."""
    queue = queue_order.listed(job.pool)
    policy = job.pool.policy
    stands = queue.filter(pk=job.pk).exists()
    attempts = list(Allocation.objects.filter(task__job=job).exclude(state=AllocationState.TERMINATED))
    live = Task.objects.filter(job=job).exclude(state=TaskState.ENDED)
    experiment = None
    if job.kind == Job.Kind.EXPERIMENT:
        experiment = Experiment.objects.select_related("owner").filter(job=job).first()
    return Facts(
        job=job,
        experiment=experiment,
        state=_state(job, attempts),
        held=sum(attempt.slots for attempt in attempts),
        needed=live.aggregate(slots=Sum("slots"))["slots"] or 0,
        backfilled=bool(attempts) and all(attempt.on_sufferance for attempt in attempts),
        preemptible=job.preemptible and policy.stops_runs(job.pool.preemption),
        progress=experiment.progress if experiment else job.progress,
        ahead=queue.filter(queue_order.stands_before(job)).count() if policy.order and stands else None,
        standing=queue.count(),
        deadline=deadline_of(job).get("sentence", ""),
    )


def _state(job: Job, attempts: list[Allocation]) -> str:
    """A word of shown.words."""
    if attempts:
        return phases.of_runs(attempts)
    return "QUEUED" if job.state == JobState.ACTIVE else str(job.state)


def around(facts: Facts) -> list[tuple[int, Job]]:
    """Who stands around the job now: (place from 0, job), itself included; nothing where there is no order."""
    if facts.ahead is None:
        return []
    first = max(0, facts.ahead - AROUND)
    rows = queue_order.listed(facts.job.pool).select_related("owner")[first : facts.ahead + AROUND + 1]
    return list(enumerate(rows, first))


def wait_of(job: Job) -> str:
    """Why its work waits, as the last pass said it; empty when none waits."""
    wait = last_plan.of(job.pool).why(_waiting(job))
    return str(wait["sentence"]) if wait else ""


def forecast_of(job_id: str) -> tuple[float, float] | None:
    """When the last pass expected the job's next start, as epoch seconds; None where it knew nothing."""
    job = Job.objects.select_related("pool").get(pk=job_id)
    forecast = last_plan.of(job.pool).forecast
    spans = [forecast[task] for task in _waiting(job) if task in forecast]
    return min(((float(first), float(last)) for first, last in spans), default=None)


def _waiting(job: Job) -> list[str]:
    tasks = Task.objects.filter(job=job, state=TaskState.WAITING)
    return list(tasks.order_by("created_at").values_list("pk", flat=True))


def told(sentences: Sequence[str]) -> list[str]:
    """The first sentences of an edit, and how many more there are."""
    if len(sentences) <= MOST_SENTENCES:
        return list(sentences)
    first = sentences[: MOST_SENTENCES - 1]
    return [*first, f"And {len(sentences) - len(first)} more."]
