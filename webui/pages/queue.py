"""The job queue as a departures board: order, state, slots held and needed, priority, start, why."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime

from django.http import Http404, HttpRequest, HttpResponse

from hosts.models import ResourcePool, Slot
from hosts.pools import default_pool
from jobs.models import Allocation, Job, SlotHold, Task
from jobs.states import AllocationState, JobState, TaskState
from webui.pages.frame import page, show

#: above this many, one bar stands for the lamps
MOST_LAMPS = 32


@dataclass
class Row:
    """One job as the board shows it."""

    job: Job
    place: int
    state: str
    tasks: int
    held: int
    needed: int
    preparing: bool
    on_sufferance: bool
    start: str
    why: str
    never: bool

    @property
    def lamps(self) -> list[str]:
        if self.needed > MOST_LAMPS:
            return []
        full = "preparing" if self.preparing else "held"
        return [full] * self.held + ["waiting"] * max(0, self.needed - self.held)

    @property
    def share(self) -> int:
        return round(100 * self.held / self.needed) if self.needed else 0


@page
def board(request: HttpRequest, pool_name: str = "") -> HttpResponse:
    """The queue of one pool."""
    pools = list(ResourcePool.objects.order_by("-default_compute", "name")) or [default_pool()]
    pool = next((p for p in pools if p.name == pool_name), None) if pool_name else pools[0]
    if pool is None:
        raise Http404(f"There is no resource pool {pool_name}; there are {', '.join(p.name for p in pools)}.")
    rows = rows_of(pool)
    slots = Slot.objects.filter(host__pool=pool)
    used = SlotHold.objects.filter(released_at=None, slot__host__pool=pool).count()
    context = {
        "pool": pool,
        "pools": [(p, Job.objects.filter(pool=p, state=JobState.ACTIVE).count()) for p in pools],
        "rows": rows,
        "paused": list(Job.objects.filter(pool=pool, state=JobState.PAUSED).select_related("owner")),
        "slots": slots.count(),
        "used": used,
        "scheduled": sum(1 for row in rows if row.state != "QUEUED"),
        "queued": sum(1 for row in rows if row.state == "QUEUED"),
        "took_ms": pool.plan.get("took_ms"),
    }
    return show(request, "queue", context, room="Job Queue", fragment="queue")


def rows_of(pool: ResourcePool) -> list[Row]:
    """Active jobs in the order of the last pass; those that came after it stand by priority and position."""
    jobs = list(Job.objects.filter(pool=pool, state=JobState.ACTIVE).select_related("owner"))
    place = {job_id: index for index, job_id in enumerate(pool.plan.get("order") or [])}
    jobs.sort(key=lambda job: (place.get(str(job.pk), len(place)), job.priority, job.position))
    tasks: dict[object, list[Task]] = defaultdict(list)
    for task in Task.objects.filter(job__in=jobs).exclude(state=TaskState.ENDED):
        tasks[task.job_id].append(task)
    attempts: dict[object, list[Allocation]] = defaultdict(list)
    for attempt in (
        Allocation.objects.filter(task__job__in=jobs)
        .exclude(state=AllocationState.TERMINATED)
        .select_related("task")
    ):
        attempts[attempt.task.job_id].append(attempt)
    held: dict[object, int] = defaultdict(int)
    for job_id in SlotHold.objects.filter(
        released_at=None, member__allocation__task__job__in=jobs
    ).values_list("member__allocation__task__job_id", flat=True):
        held[job_id] += 1
    hosts = _hosts(jobs)
    return [
        _row(index, job, tasks[job.pk], attempts[job.pk], held[job.pk], hosts.get(job.pk, []), pool)
        for index, job in enumerate(jobs)
    ]


def _hosts(jobs: list[Job]) -> dict[object, list[str]]:
    names: dict[object, list[str]] = defaultdict(list)
    for job_id, host in (
        Allocation.objects.filter(task__job__in=jobs)
        .exclude(state=AllocationState.TERMINATED)
        .order_by("members__index")
        .values_list("task__job_id", "members__host__name")
    ):
        if host and host not in names[job_id]:
            names[job_id].append(host)
    return names


def _row(
    index: int,
    job: Job,
    tasks: list[Task],
    attempts: list[Allocation],
    held: int,
    hosts: list[str],
    pool: ResourcePool,
) -> Row:
    states = {attempt.state for attempt in attempts}
    waits = pool.plan.get("waits") or {}
    wait = next(
        (waits[task.pk] for task in tasks if task.pk in waits and task.state == TaskState.WAITING), None
    )
    running = AllocationState.RUNNING in states
    if running:
        state = "RUNNING"
    elif states & {AllocationState.ASSIGNED, AllocationState.STARTING}:
        state = "STARTING"
    else:
        state = "STOPPING" if AllocationState.TERMINATING in states else "QUEUED"
    started = min((attempt.started_at or attempt.assigned_at for attempt in attempts), default=None)
    why = ", ".join(hosts) if attempts else str(wait["sentence"]) if wait else "looked at in the next pass"
    never = (
        wait is not None
        and not attempts
        and wait.get("code") in {"never_fits", "avoids_hosts", "over_max_slots"}
    )
    if started is not None:
        start = f"Started {started.astimezone(UTC):%H:%M}"
    else:
        start = "Never" if never else _forecast(pool, tasks)
    return Row(
        job=job,
        place=index,
        state=state,
        tasks=len(tasks),
        held=held,
        needed=sum(task.slots for task in tasks),
        preparing=not running,
        on_sufferance=any(attempt.on_sufferance for attempt in attempts),
        start=start,
        why=why,
        never=never,
    )


def _forecast(pool: ResourcePool, tasks: list[Task]) -> str:
    """`12:44 to 12:50`, never a bare minute; a dash when nothing is known."""
    spans = [span for task in tasks if (span := (pool.plan.get("forecast") or {}).get(task.pk))]
    if not spans:
        return "-"
    earliest, latest = min(spans)
    return f"{datetime.fromtimestamp(earliest, UTC):%H:%M} to {datetime.fromtimestamp(latest, UTC):%H:%M}"
