"""Rows of the departures board: what is shown of the jobs that a listing names, read for these jobs alone."""

from __future__ import annotations

import uuid
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils import timezone

from dispatch import last_plan
from dispatch.last_plan import Plan
from experiments.models import Experiment
from hosts.models import ResourcePool
from jobs import idle_slots, run_words
from jobs.models import Allocation, Job, SlotHold, Task
from jobs.states import AllocationState, TaskState
from scheduling.reasons import NEVER, WaitCode
from webui.pages import queue_times
from webui.pages.queue_listing import Line

#: above this many, one bar stands for the lamps, and a number for the names of hosts
MOST_LAMPS = 32
MOST_HOSTS = 4
SHORT_KINDS = {
    Job.Kind.EXPERIMENT: "exp",
    Job.Kind.COMMAND: "cmd",
    Job.Kind.SHELL: "shell",
    Job.Kind.NOTEBOOK: "notebook",
    Job.Kind.TENSORBOARD: "tensorboard",
}


@dataclass
class Row:
    """One job, or the first of `alike` jobs, as the board shows it. Times are absolute, so `version` is stable."""

    id: uuid.UUID
    kind: str
    entity_id: str
    name: str
    owner_id: int
    owner: str
    priority: int
    weight: float
    submitted_at: datetime
    progress: float | None
    locked: bool
    place: int | None
    alike: int = 1
    state: str = "QUEUED"
    backfilled: bool = False
    stopping: bool = False
    stops_for: str = ""
    tasks: int = 0
    tasks_running: int = 0
    held: int = 0
    needed: int = 0
    #: slots that are being freed for it
    coming_free: int = 0
    #: GPUs that it holds and leaves idle, and the page that shows what it does with them
    idle: int = 0
    idle_at: str = ""
    hosts: list[str] = field(default_factory=list)
    #: (text, title) of the start, and whether it is a moment that is known
    start: str = ""
    start_title: str = ""
    why: str = ""
    never: bool = False
    share: int | None = None

    @property
    def key(self) -> str:
        """The id of the row's element."""
        return f"{'job' if self.alike == 1 else 'alike'}-{self.id}"

    @property
    def version(self) -> str:
        """Changes when anything that the row shows does."""
        return f"{zlib.crc32(repr(self).encode()):08x}"

    @property
    def link(self) -> str:
        """Where the job's work is shown."""
        room = "experiments" if self.kind == Job.Kind.EXPERIMENT else "commands"
        return f"/{room}/{self.entity_id}"

    @property
    def label(self) -> str:
        """How sentences call it: `exp 152`."""
        return f"{SHORT_KINDS[Job.Kind(self.kind)]} {self.entity_id[:8]}"

    @property
    def lamps(self) -> list[str]:
        """One class of a lamp for each slot; none where a bar stands for them."""
        if self.needed > MOST_LAMPS or self.alike > 1:
            return []
        full = "hollow" if self.backfilled else "held" if self.state == "RUNNING" else "preparing"
        coming = min(self.coming_free, max(0, self.needed - self.held))
        free = max(0, self.needed - self.held - coming)
        return [full] * self.held + ["preparing"] * coming + ["waiting"] * free

    @property
    def filled(self) -> int:
        """Percent of the bar."""
        return round(100 * self.held / self.needed) if self.needed else 0


def of(pool: ResourcePool, lines: list[Line]) -> list[Row]:
    """The rows of these lines, in their order; what has ended since the listing was read is left out."""
    ids = [line.job_id for line in lines]
    ordered = pool.scheduler == ResourcePool.Scheduler.PRIORITY
    may_stop = pool.preemption or not ordered
    jobs = {
        job.pk: job for job in Job.objects.filter(pk__in=ids).select_related("owner").defer("owner__password")
    }
    found = {
        line.job_id: _row(jobs[line.job_id], line, ordered, may_stop) for line in lines if line.job_id in jobs
    }
    for job_id, progress in Experiment.objects.filter(job_id__in=found).values_list("job_id", "progress"):
        found[job_id].progress = progress
    tasks = _count_tasks(found)
    started = _note_attempts(found)
    _note_plan(last_plan.of(pool), found, tasks, started)
    return list(found.values())


def _row(job: Job, line: Line, ordered: bool, may_stop: bool) -> Row:
    return Row(
        id=job.pk,
        kind=job.kind,
        entity_id=job.entity_id,
        name=job.name,
        owner_id=job.owner_id,
        owner=job.owner.username,
        priority=job.priority,
        weight=job.weight,
        submitted_at=job.submitted_at,
        progress=job.progress,
        locked=not (job.preemptible and may_stop),
        place=line.place if ordered else None,
        alike=line.alike,
        held=line.held,
        needed=line.needed,
    )


def _count_tasks(rows: dict[uuid.UUID, Row]) -> dict[uuid.UUID, list[str]]:
    """Counts them; the tasks of each job that wait, oldest first."""
    live = Task.objects.filter(job_id__in=rows, state__in=[TaskState.WAITING, TaskState.RUNNING])
    waiting: dict[uuid.UUID, list[str]] = defaultdict(list)
    for task_id, job_id, state in live.order_by("created_at").values_list("pk", "job_id", "state"):
        rows[job_id].tasks += 1
        if state == TaskState.RUNNING:
            rows[job_id].tasks_running += 1
        else:
            waiting[job_id].append(task_id)
    return waiting


def _note_attempts(rows: dict[uuid.UUID, Row]) -> set[uuid.UUID]:
    """State, hosts, start and stops of those that hold something; their ids."""
    attempts: dict[uuid.UUID, list[Allocation]] = defaultdict(list)
    opened = Allocation.objects.filter(task__job_id__in=rows).exclude(state=AllocationState.TERMINATED)
    for attempt in opened.select_related("task").order_by("assigned_at"):
        attempts[attempt.task.job_id].append(attempt)
    holds = SlotHold.objects.filter(
        released_at=None, member__allocation__in=[a for each in attempts.values() for a in each]
    )
    held: dict[uuid.UUID, int] = defaultdict(int)
    idle: dict[uuid.UUID, list[str]] = defaultdict(list)
    task = "member__allocation__task"
    for job_id, task_id, trial_id, since, started in holds.values_list(
        f"{task}__job_id", f"{task}_id", f"{task}__trial__id", "slot__idle_since", "member__started_at"
    ):
        held[job_id] += 1
        if idle_slots.is_idle(since, started):
            idle[job_id].append(f"/trials/{trial_id}/profiler" if trial_id else f"/commands/{task_id}")
    hosts = _hosts(attempts)
    whom = _labels(attempt.stop_for_task for each in attempts.values() for attempt in each)
    for job_id, found in attempts.items():
        row = rows[job_id]
        if row.alike == 1:
            row.held, row.idle = held[job_id], len(idle[job_id])
            row.idle_at = next(iter(idle[job_id]), "")
        row.hosts = hosts[job_id]
        _note_state(row, found, whom)
    return set(attempts)


def _note_state(row: Row, attempts: list[Allocation], whom: dict[str, str]) -> None:
    row.state = run_words.of_runs(attempts)
    stopped = [attempt for attempt in attempts if attempt.stop_kind]
    row.stopping = bool(stopped)
    row.stops_for = next((whom[a.stop_for_task] for a in stopped if a.stop_for_task in whom), "")
    row.backfilled = all(attempt.on_sufferance for attempt in attempts)
    started = min(attempt.started_at or attempt.assigned_at for attempt in attempts)
    row.start, row.start_title = f"Started {queue_times.clock(started)}", queue_times.exact(started)
    row.why = _where(row.hosts, stopped, row.needed)


def _hosts(attempts: dict[uuid.UUID, list[Allocation]]) -> dict[uuid.UUID, list[str]]:
    """Job id -> names of the hosts it is on, in rank order, each once."""
    names: dict[uuid.UUID, list[str]] = defaultdict(list)
    found = Allocation.objects.filter(pk__in=[a.pk for each in attempts.values() for a in each])
    for job_id, host in found.order_by("members__index").values_list("task__job_id", "members__host__name"):
        if host and host not in names[job_id]:
            names[job_id].append(host)
    return names


def _labels(tasks: Iterable[str]) -> dict[str, str]:
    """Task id -> `exp 152`, for the tasks that others are stopped for."""
    found = Task.objects.filter(pk__in={task for task in tasks if task})
    return {
        task: f"{SHORT_KINDS[Job.Kind(kind)]} {entity[:8]}"
        for task, kind, entity in found.values_list("pk", "job__kind", "job__entity_id")
    }


def _where(hosts: list[str], stopped: list[Allocation], needed: int) -> str:
    """The hosts, and why it is being stopped if it is."""
    stops = {
        f"asked to stop: {attempt.get_stop_reason_display()}" for attempt in stopped if attempt.stop_reason
    }
    if len(hosts) > MOST_HOSTS:
        place = f"{', '.join(hosts[:MOST_HOSTS])} and {len(hosts) - MOST_HOSTS} more"
    else:
        place = ", ".join(hosts)
    if hosts and not needed:
        place += "; needs no slot"
    return "; ".join(filter(None, [place, *sorted(stops)]))


def _note_plan(
    plan: Plan, rows: dict[uuid.UUID, Row], waiting: dict[uuid.UUID, list[str]], started: set[uuid.UUID]
) -> None:
    """What the last pass said of each job: why it waits, when it starts, its share."""
    now = timezone.now()
    for job_id, row in rows.items():
        share = plan.shares.get(str(job_id))
        row.share = None if share is None else int(share)
        if job_id in started:
            continue
        tasks = waiting[job_id]
        wait = next((plan.waits[task] for task in tasks if task in plan.waits), None)
        spans = [plan.forecast[task] for task in tasks if task in plan.forecast]
        unknown = next((plan.unknown[task] for task in tasks if task in plan.unknown), "")
        _note_wait(row, wait, spans, unknown, now)


def _note_wait(
    row: Row, wait: dict[str, Any] | None, spans: list[list[float]], unknown: str, now: datetime
) -> None:
    row.why = str(wait["sentence"]) if wait else "looked at in the next pass"
    row.never = wait is not None and wait.get("code") in NEVER
    row.coming_free = _coming_free(wait)
    if row.never:
        row.start, row.start_title = "Never", row.why
        return
    row.start, row.start_title = queue_times.forecast(min(spans) if spans else None, now)
    if not row.start:
        row.start, row.start_title = "not known", unknown or row.start_title or row.why


def _coming_free(wait: dict[str, Any] | None) -> int:
    """Slots that runs which are being stopped will leave to it (`reasons.coming_free`)."""
    if wait is None or wait.get("code") != WaitCode.COMING_FREE:
        return 0
    return sum(int(coming) for _, _, coming in wait.get("data", {}).get("hosts", []))
