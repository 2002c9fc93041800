"""The job queue as a departures board: order, state, slots held and needed, priority, start, why."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone

from accounts.models import User
from hosts import registry
from hosts.models import ResourcePool, Slot
from hosts.pools import default_pool
from jobs.models import Allocation, Job, SlotHold, Task
from jobs.states import AllocationState, JobState, TaskState
from scheduling.reasons import NEVER, WaitCode
from webui.pages.frame import page, show, user_of

#: above this many, one bar stands for the lamps, and a number for the names
MOST_LAMPS = 32
MOST_HOSTS = 4


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
    stopping: bool
    on_sufferance: bool
    start: str
    started: datetime | None
    why: str
    never: bool
    #: slots that are being freed for it
    coming_free: int

    @property
    def lamps(self) -> list[str]:
        if self.needed > MOST_LAMPS:
            return []
        full = "preparing" if self.preparing else "held"
        coming = min(self.coming_free, max(0, self.needed - self.held))
        free = max(0, self.needed - self.held - coming)
        return [full] * self.held + ["preparing"] * coming + ["waiting"] * free

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
    chips = _chips(rows, user_of(request))
    chosen = request.GET.get("show", "all")
    slots = Slot.objects.filter(host__in=registry.present().filter(pool=pool), missing=False)
    used = SlotHold.objects.filter(released_at=None, slot__host__pool=pool).count()
    context = {
        "pool": pool,
        "pools": [(p, Job.objects.filter(pool=p, state=JobState.ACTIVE).count()) for p in pools],
        "rows": dict(chips).get(chosen, rows),
        "chips": [(name, len(found)) for name, found in chips],
        "chosen": chosen,
        "paused": list(Job.objects.filter(pool=pool, state=JobState.PAUSED).select_related("owner")),
        "slots": slots.count(),
        "used": used,
        "outside": slots.exclude(outside={}).count(),
        "scheduled": sum(1 for row in rows if row.state != "QUEUED"),
        "queued": sum(1 for row in rows if row.state == "QUEUED"),
        "took_ms": pool.plan.get("took_ms"),
        "planned_at": pool.planned_at,
    }
    return show(request, "queue", context, room="Job Queue", fragment="queue")


def _chips(rows: list[Row], user: User) -> list[tuple[str, list[Row]]]:
    """What the list can be narrowed to, with the rows of each."""
    mine = [row for row in rows if row.job.owner_id == user.pk]
    return [
        ("all", rows),
        ("mine", mine),
        ("mine, waiting", [row for row in mine if row.state == "QUEUED"]),
        ("never fits", [row for row in rows if row.never]),
        ("being stopped", [row for row in rows if row.stopping]),
    ]


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
    why = (
        _where(hosts, attempts)
        if attempts
        else str(wait["sentence"])
        if wait
        else "looked at in the next pass"
    )
    never = wait is not None and not attempts and wait.get("code") in NEVER
    return Row(
        job=job,
        place=index,
        state=state,
        tasks=len(tasks),
        held=held,
        needed=sum(task.slots for task in tasks),
        preparing=not running,
        stopping=any(attempt.stop_reason for attempt in attempts),
        on_sufferance=any(attempt.on_sufferance for attempt in attempts),
        start=_start(started, never, pool, tasks),
        started=started,
        why=why,
        never=never,
        coming_free=_coming_free(wait) if wait is not None and not attempts else 0,
    )


def _where(hosts: list[str], attempts: list[Allocation]) -> str:
    """The hosts, and why it is being stopped if it is."""
    stops = {
        f"asked to stop: {attempt.get_stop_reason_display()}" for attempt in attempts if attempt.stop_reason
    }
    place = (
        ", ".join(hosts)
        if len(hosts) <= MOST_HOSTS
        else f"{', '.join(hosts[:MOST_HOSTS])} and {len(hosts) - MOST_HOSTS} more"
    )
    return "; ".join(filter(None, [place, *sorted(stops)]))


def _coming_free(wait: dict[str, Any]) -> int:
    """Slots that runs which are being stopped will leave to it (`reasons.coming_free`)."""
    if wait.get("code") != WaitCode.COMING_FREE:
        return 0
    return sum(int(coming) for _, _, coming in wait.get("data", {}).get("hosts", []))


def _start(started: datetime | None, never: bool, pool: ResourcePool, tasks: list[Task]) -> str:
    if started is not None:
        return f"Started {_clock(started)}"
    return "Never" if never else _forecast(pool, tasks)


def _forecast(pool: ResourcePool, tasks: list[Task]) -> str:
    """`12:44 to 12:50`, never a bare minute; `not known` without a forecast."""
    spans = [span for task in tasks if (span := (pool.plan.get("forecast") or {}).get(task.pk))]
    if not spans:
        return "not known"
    earliest, latest = min(spans)
    return f"{_clock(datetime.fromtimestamp(earliest, UTC))} to {_clock(datetime.fromtimestamp(latest, UTC))}"


def _clock(moment: datetime) -> str:
    """The minute in UTC, with the date before it unless it is today's."""
    now = timezone.now()
    moment = moment.astimezone(UTC)
    return f"{moment:%H:%M}" if moment.date() == now.date() else f"{moment:%b %d %H:%M}"
