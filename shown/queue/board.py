"""The departures board: what it lists, and the rows of the jobs listed, read for these jobs alone.

For what it opens on, tasks and jobs are asked for in turn and never joined: a planner that has not yet counted a burst
of submissions looks through all waiting tasks for each job of a join.
"""

from __future__ import annotations

import uuid
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Any

from django.db.models.functions import Lower
from django.utils import timezone

from dispatch.passes import last_plan
from hosts.models import ResourcePool
from jobs import held_slots, phases
from jobs.labels import called, label_of
from jobs.models import Allocation, Job, SlotHold, Task
from jobs.states import JobState, Reason, StopKind, TaskState
from scheduling.reasons import NEVER, WaitCode
from shown import arrays
from shown.queue import listing as queue_listing
from shown.queue import rows, standing, times
from shown.queue.listing import ALL, MINE_FIRST, PER_PAGE, BoardLine, Listing, QueueView
from shown.queue.standing import Queue
from shown.tasks import elements_at

#: above this many, one bar stands for the lamps, and a number for the names of hosts
MOST_LAMPS = 8
MOST_HOSTS = 4
#: names under the table; more are a number
MOST_PAUSED = 50
#: candidates; those alike fold into one line, and a few lines are shown (`listing.OTHERS_LINES`)
MOST_DEPARTURES = 100
MOST_BLOCKERS = 20
#: so many of a person's waiting tasks, of so many of their jobs, are asked what they wait for; slots do not tell which
#: job has one: another of its tasks may hold as many while it ends
MOST_JOBS = 1000
MOST_ASKED = 200
#: the soonest forecasts may be of a person's own tasks, and several of one job
FORECASTS_READ = 5 * MOST_DEPARTURES
GROUPS = ("Yours", "Starting next", "What yours wait for")


@dataclass
class BoardRow:
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
    stops_for: str = ""
    tasks: int = 0
    tasks_running: int = 0
    #: of an array
    elements: int = 0
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
        if self.kind == Job.Kind.ARRAY:
            return elements_at(self.id)
        room = "experiments" if self.kind == Job.Kind.EXPERIMENT else "commands"
        return f"/{room}/{self.entity_id}"

    @property
    def label(self) -> str:
        """How sentences call it: `exp 152`."""
        return label_of(self.kind, self.entity_id)

    @property
    def start_alone(self) -> str:
        """The start where no heading says what it is: `start not known`."""
        return f"start {times.NOT_KNOWN}" if self.start == times.NOT_KNOWN else self.start

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


@dataclass
class BoardPart:
    """A body of the table: a page of the list, or one of the groups that the page opens on."""

    key: str
    rows: list[BoardRow]
    title: str = ""
    #: lines of the group that are not shown
    more: int = 0


def of(pool: ResourcePool, view: QueueView, me: int) -> tuple[Listing, list[BoardPart], QueueView]:
    """What is listed, and the view that it is of: with nothing asked, own jobs first if there are others' too."""
    opens = view.show == MINE_FIRST or (view.is_plain and view.pages == (1,))
    queue = standing.of(pool) if opens else Queue()
    if view.show == MINE_FIRST or me in queue.places_of:
        departures, blockers = next_departures(pool, me), blocking_jobs(pool, queue, me)
        listing = queue_listing.opening(queue, me, departures, blockers)
        if 0 < listing.counts["mine"] < listing.counts["all"] or view.show:
            return listing, _groups(pool, listing), replace(view, show=MINE_FIRST)
    listing = queue_listing.of(pool, view, me)
    last = listing.pages
    if not listing.lines and listing.length and min(view.pages) > last:  # it has grown shorter meanwhile
        view = replace(view, pages=(last,))
        listing = queue_listing.of(pool, view, me)
    page_of = {line.job_id: line.number // PER_PAGE + 1 for line in listing.lines}
    found = rows_of(pool, listing)
    parts = [
        BoardPart(str(number), [row for row in found if page_of[row.id] == number]) for number in view.pages
    ]
    return listing, parts, replace(view, show=view.show or ALL)


def next_departures(pool: ResourcePool, me: int) -> list[uuid.UUID]:
    """Others' jobs that start next, by their forecasts."""
    soonest = last_plan.of(pool).soonest[:FORECASTS_READ]
    jobs = dict(Task.objects.filter(pk__in=soonest, state=TaskState.WAITING).values_list("pk", "job_id"))
    others = Job.objects.filter(pk__in=set(jobs.values()), pool=pool, state=JobState.ACTIVE).exclude(
        owner_id=me
    )
    known = set(others.values_list("pk", flat=True))
    found = dict.fromkeys(jobs[task] for task in soonest if task in jobs)
    return [job for job in found if job in known][:MOST_DEPARTURES]


def blocking_jobs(pool: ResourcePool, queue: Queue, me: int) -> list[uuid.UUID]:
    """The jobs that the reasons of a person's waiting work name."""
    waits = last_plan.of(pool).waits
    labels = dict.fromkeys(
        label for task in _waiting_of(queue, me) if task in waits for label in _jobs_named(waits[task])
    )
    named = Job.objects.filter(called(list(labels)[:MOST_BLOCKERS]))
    return list(named.exclude(state=JobState.ENDED).values_list("pk", flat=True))


def _waiting_of(queue: Queue, me: int) -> list[str]:
    """A person's first waiting tasks, in the order of their jobs; most jobs that wait have one."""
    mine = [uuid.UUID(queue.ids[place]) for place in queue.places_of.get(me, ())[:MOST_JOBS]]
    found: list[str] = []
    for first in range(0, len(mine), MOST_ASKED):
        found += chain.from_iterable(rows.waiting_tasks(mine[first : first + MOST_ASKED]))
        if len(found) >= MOST_ASKED:
            break
    return found[:MOST_ASKED]


def _jobs_named(wait: dict[str, Any]) -> list[str]:
    """The labels of jobs in the numbers of a reason (scheduling.reasons): who holds, frees, or has it kept."""
    data = wait.get("data") or {}
    runs = [str(run[0]) for run in data.get("runs") or []]
    return [*(data.get("by") or []), *(data.get("for") or []), *runs]


def _groups(pool: ResourcePool, listing: Listing) -> list[BoardPart]:
    found = rows_of(pool, listing)
    group = {line.job_id: line.group for line in listing.lines}
    parts = [
        BoardPart(f"group-{number}", [row for row in found if group[row.id] == number], title)
        for number, title in enumerate(GROUPS)
    ]
    parts[0].more = listing.counts["mine"] - sum(row.alike for row in parts[0].rows)
    return [part for part in parts if part.rows]


def paused(pool: ResourcePool) -> tuple[list[Job], int]:
    """The first of the pool's paused jobs, and how many there are."""
    jobs = Job.objects.filter(pool=pool, state=JobState.PAUSED).select_related("owner")
    found = list(jobs.order_by("priority", "position", Lower("name"))[: MOST_PAUSED + 1])
    return found[:MOST_PAUSED], len(found) if len(found) <= MOST_PAUSED else jobs.count()


def row_of(job: Job) -> BoardRow | None:
    """One job as the board shows it; None when it is in no queue."""
    if job.state == JobState.ENDED:
        return None
    return next(iter(rows_of(job.pool, queue_listing.only(job.pool, job.pk))), None)


def rows_of(pool: ResourcePool, listing: Listing) -> list[BoardRow]:
    """The rows of its lines, in their order; jobs removed since it was read are left out."""
    lines = {line.place: line for line in listing.lines}
    shown = rows.of(pool, [listing.queue.line(place) for place in lines])
    found = {each.job.pk: _row(each, lines[each.place]) for each in shown}
    _note_slots(found, [each for each in shown if each.runs])
    now = timezone.now()
    for each in shown:
        row = found[each.job.pk]
        row.share = None if each.share is None else int(each.share)
        if not each.runs:
            _note_wait(row, each, now)
    _note_arrays(found)
    return list(found.values())


def _note_arrays(found: dict[uuid.UUID, BoardRow]) -> None:
    ids = [row.id for row in found.values() if row.kind == Job.Kind.ARRAY]
    for job_id, counts in arrays.counts_by_job(ids).items():
        row = found[job_id]
        row.elements, row.why = counts.total, "; ".join(filter(None, [counts.words, row.why]))


def _row(shown: rows.JobRow, line: BoardLine) -> BoardRow:
    job = shown.job
    return BoardRow(
        id=job.pk,
        kind=job.kind,
        entity_id=job.entity_id,
        name=job.name,
        owner_id=job.owner_id,
        owner=job.owner.username,
        priority=job.priority,
        weight=job.weight,
        submitted_at=job.submitted_at,
        progress=shown.progress,
        locked=not shown.preemptible,
        place=shown.ahead,
        alike=line.alike,
        tasks=shown.tasks,
        tasks_running=shown.tasks_running,
        held=line.held,
        needed=line.needed,
    )


def _note_slots(found: dict[uuid.UUID, BoardRow], holding: list[rows.JobRow]) -> None:
    """Slots, hosts, start and stops of the jobs that hold something."""
    if not holding:
        return
    runs = [run.id for shown in holding for run in shown.runs]
    holds = SlotHold.objects.filter(released_at=None, member__allocation__in=runs)
    held: dict[uuid.UUID, int] = defaultdict(int)
    idle: dict[uuid.UUID, list[str]] = defaultdict(list)
    task = "member__allocation__task"
    for job_id, task_id, trial_id, since, started in holds.values_list(
        f"{task}__job_id", f"{task}_id", f"{task}__trial__id", "slot__idle_since", "member__started_at"
    ):
        held[job_id] += 1
        if held_slots.is_idle(since, started):
            idle[job_id].append(f"/trials/{trial_id}/profiler" if trial_id else f"/commands/{task_id}")
    hosts = _hosts(runs)
    whom = _labels(run.stop_for_task for shown in holding for run in shown.runs)
    for shown in holding:
        job_id = shown.job.pk
        row = found[job_id]
        if row.alike == 1:
            row.held, row.idle = held[job_id], len(idle[job_id])
            row.idle_at = next(iter(idle[job_id]), "")
        row.hosts = hosts[job_id]
        _note_state(row, shown.runs, whom)


def _note_state(row: BoardRow, runs: Sequence[rows.LiveAttempt], whom: dict[str, str]) -> None:
    row.state = phases.of_runs(runs)
    stopped = [run for run in runs if run.stop_kind]
    row.stops_for = next((whom[run.stop_for_task] for run in stopped if run.stop_for_task in whom), "")
    row.backfilled = all(run.on_sufferance for run in runs)
    started = min(run.started_at or run.assigned_at for run in runs)
    row.start, row.start_title = f"Started {times.clock(started)}", times.exact(started)
    row.why = _where(row.hosts, stopped, row.needed)


def _hosts(runs: list[str]) -> dict[uuid.UUID, list[str]]:
    """Job id -> names of the hosts it is on, in rank order, each once."""
    names: dict[uuid.UUID, list[str]] = defaultdict(list)
    found = Allocation.objects.filter(pk__in=runs).order_by("members__index")
    for job_id, host in found.values_list("task__job_id", "members__host__name"):
        if host and host not in names[job_id]:
            names[job_id].append(host)
    return names


def _labels(tasks: Iterable[str]) -> dict[str, str]:
    """Task id -> `exp 152`, for the tasks that others are stopped for."""
    found = Task.objects.filter(pk__in={task for task in tasks if task})
    return {
        task: label_of(kind, entity)
        for task, kind, entity in found.values_list("pk", "job__kind", "job__entity_id")
    }


def _where(hosts: list[str], stopped: list[rows.LiveAttempt], needed: int) -> str:
    """The hosts, and why it is being stopped if it is, and by when."""
    stops = {f"asked to stop: {Reason(run.stop_reason).label}" for run in stopped if run.stop_reason}
    asked = [run.stop_deadline_at for run in stopped if run.stop_kind == StopKind.PREEMPT]
    if last := max(filter(None, asked), default=None):
        stops.add(f"forced at {times.clock(last)} if it has not saved by then")
    if len(hosts) > MOST_HOSTS:
        place = f"{', '.join(hosts[:MOST_HOSTS])} and {len(hosts) - MOST_HOSTS} more"
    else:
        place = ", ".join(hosts)
    if hosts and not needed:
        place += "; needs no slots"
    return "; ".join(filter(None, [place, *sorted(stops)]))


def _note_wait(row: BoardRow, shown: rows.JobRow, now: datetime) -> None:
    wait = shown.wait
    row.why = str(wait["sentence"]) if wait else "considered in the next scheduler pass"
    row.never = wait is not None and wait.get("code") in NEVER
    row.coming_free = _coming_free(wait)
    if row.never:
        row.start, row.start_title = "Never", row.why
        return
    row.start, row.start_title = times.forecast(shown.forecast, now)
    if row.start and shown.forecast and shown.said_at is not None:
        row.start, row.start_title = times.said(shown.forecast_by, shown.forecast, shown.said_at)
    if not row.start:
        row.start, row.start_title = times.NOT_KNOWN, shown.unknown or row.start_title or row.why


def _coming_free(wait: dict[str, Any] | None) -> int:
    """Slots that runs which are being stopped will leave to it (`reasons.coming_free`)."""
    if wait is None or wait.get("code") != WaitCode.COMING_FREE:
        return 0
    return sum(int(coming) for _, _, coming in wait.get("data", {}).get("hosts", []))
