"""What an edit of the queue would do, before anybody makes it.

The edit itself is made, the pool is surveyed, and both are rolled back; then one pass is decided on what was seen.
So what people are shown comes from the code that will do it, and nobody waits for it. One pass is foreseen, not
those after it: what waits for others to save has a forecast or a reason, never a promise. Without any edit, `blockers`
gives all reasons why the work of a job waits, of which the stored plan has one a task.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from accounts.models import User
from dispatch.engines import chosen
from dispatch.passes import deadline_look, forecast_outcomes, last_plan, recent_work, survey
from dispatch.passes.survey import no_garbage_collection
from experiments.models import Trial
from hosts.models import PoolChange, ResourcePool
from jobs import queue_edits
from jobs.models import Allocation, Job
from jobs.queue_order import places
from jobs.states import Reason
from scheduling import reasons
from scheduling.deadlines import Look
from scheduling.explain import explain
from scheduling.forecast import Forecast, forecast
from scheduling.plan import applied, decide, ended
from scheduling.world import Placement, Plan, Snapshot

#: places that are told beside those of the edited jobs
MOST_PLACES = 100


@dataclass(frozen=True)
class PlannedPlace:
    """A job's place in the new order, counted from 0; `was` is None where it stood in no place there."""

    job_id: str
    name: str
    place: int
    was: int | None


@dataclass(frozen=True)
class Stop:
    """A job that would be asked to save and leave some or all of its slots.

    Of several runs the oldest start, the oldest save and the one that is furthest (`progress`) are told.
    `never_saved`: a run of it has no checkpoint and has not asked whether it should stop either, so all since
    `started_at` would be lost. `steps_again`: steps since the last checkpoints of runs that have never asked so; the
    others save first. `group`: that of the owner, empty without one. `resumes`: once it has stopped; None if it leaves
    the pool.
    """

    job_id: str
    name: str
    username: str
    group: str
    slots: int
    runs: int
    started_at: datetime
    last_saved_at: datetime | None
    never_saved: bool
    mine: bool
    progress: float | None = None
    steps_again: int = 0
    resumes: Outlook | None = None


@dataclass(frozen=True)
class Outlook:
    """When a job that waits would start: with the next pass, in a range (epoch seconds), or why not known."""

    job_id: str
    now: bool
    forecast: tuple[float, float] | None = None
    #: another scheduler, whose word that is; empty: the queue's own
    by: str = ""
    reason: str | None = None
    #: why there is no forecast
    unknown: str | None = None
    #: what becomes of its deadline, and what it will go ahead of for that
    deadline: str | None = None


@dataclass(frozen=True)
class Preview:
    """`changes` are those that the edit itself makes. `moved`: how many jobs change place in all."""

    changes: list[queue_edits.Change]
    order: list[PlannedPlace]
    stops: list[Stop]
    starts: list[Outlook]
    moved: int = 0

    @property
    def stops_others(self) -> bool:
        """Is somebody else's work stopped?"""
        return any(not stop.mine for stop in self.stops)


@dataclass
class _Foreseen:
    """What was seen while the edit stood."""

    edited: list[Job]
    changes: list[queue_edits.Change] = field(default_factory=list)
    before: dict[int, list[uuid.UUID]] = field(default_factory=dict)
    after: dict[int, list[uuid.UUID]] = field(default_factory=dict)
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    #: stopped by the edit itself, because their job leaves the pool
    leaving: list[str] = field(default_factory=list)


@no_garbage_collection()
def of(updates: Sequence[queue_edits.Update], *, actor: str, role: str, now: datetime) -> Preview:
    """What these edits would do. Raises Refusal with the sentence of the edit itself."""
    ids = list(dict.fromkeys(queue_edits.find(update.job_id).pk for update in updates))
    pools = ResourcePool.objects.filter(name__in={update.pool for update in updates if update.pool})
    seen = _foresee(ids, pools, lambda: queue_edits.apply(updates, actor=actor, role=role), now)
    return _told(seen, actor, now)


@no_garbage_collection()
def of_undo(user: User, *, now: datetime) -> Preview:
    """What taking back the user's last edit would do. Raises Refusal as the undo itself would."""
    last = queue_edits.last_undoable(user)
    before = last.before if last else []
    pools = ResourcePool.objects.filter(pk__in=[state["pool"] for state in before])
    ids = [uuid.UUID(state["job"]) for state in before]
    return _told(_foresee(ids, pools, lambda: queue_edits.undo(user), now), f"user:{user.username}", now)


def _told(seen: _Foreseen, actor: str, now: datetime) -> Preview:
    plans = {pool_id: _decided(pool_id, snapshot) for pool_id, snapshot in seen.snapshots.items()}
    stops = dict.fromkeys(seen.leaving)
    for pool_id, plan in plans.items():
        new = [release.allocation_id for release in plan.releases if not release.window]
        due = _due_anyway(pool_id, now) if new else set()
        stops.update(dict.fromkeys(one for one in new if one not in due))
    order, moved = _order(seen)
    return Preview(
        changes=seen.changes,
        order=order,
        stops=_stops(list(stops), seen, _resuming(seen, plans), actor),
        starts=_outlooks(seen, plans),
        moved=moved,
    )


def _due_anyway(pool_id: int, now: datetime) -> set[str]:
    """Whom the next pass stops without the edit: nobody, unless something has changed since the last."""
    if not PoolChange.objects.filter(pool=pool_id).exists():
        return set()
    plan = decide(survey.take(ResourcePool.objects.get(pk=pool_id), now))
    return {release.allocation_id for release in plan.releases}


def _decided(pool_id: int, snapshot: Snapshot) -> Plan:
    pool = ResourcePool.objects.get(pk=pool_id)
    return chosen.of_pool(pool).foresee(pool, snapshot, decide(snapshot))


def _foresee(
    ids: Sequence[uuid.UUID],
    pools: QuerySet[ResourcePool],
    make: Callable[[], list[queue_edits.Change]],
    now: datetime,
) -> _Foreseen:
    """Make the edits of these jobs, which stand in these pools afterwards or stay in theirs; look; take them back."""
    begun = timezone.now()
    seen = _Foreseen([])
    with transaction.atomic():
        touched = Job.objects.filter(pk__in=ids).values("pool")
        known = ResourcePool.objects
        for pool in known.filter(Q(pk__in=touched) | Q(pk__in=pools.values("pk"))):
            seen.before[pool.pk] = _standing(pool)
        seen.changes = make()
        seen.edited = list(Job.objects.filter(pk__in=ids))
        for pool in known.filter(pk__in=seen.before):
            seen.after[pool.pk] = _standing(pool)
            seen.snapshots[pool.pk] = survey.take(pool, now)
        leaving = Allocation.objects.filter(
            task__job__in=ids, stop_reason=Reason.POOL_CHANGED, stop_requested_at__gte=begun
        )
        seen.leaving = list(leaving.values_list("pk", flat=True))
        transaction.set_rollback(True)
    return seen


def _standing(pool: ResourcePool) -> list[uuid.UUID]:
    """The order of the pool's queue; nothing where it keeps none."""
    return places(pool) if pool.policy.order else []


def _order(seen: _Foreseen) -> tuple[list[PlannedPlace], int]:
    """The edited jobs and, of those whose place changes, the first; and how many change place in all."""
    edited = {job.pk for job in seen.edited}
    rows: list[tuple[int, uuid.UUID, int | None]] = []
    for pool_id in dict.fromkeys(job.pool_id for job in seen.edited):
        was = {pk: place for place, pk in enumerate(seen.before[pool_id])}
        rows += [(place, pk, was.get(pk)) for place, pk in enumerate(seen.after[pool_id])]
    moved = [row for row in rows if row[0] != row[2]]
    told = [row for row in rows if row[1] in edited]
    told += [row for row in moved if row[1] not in edited][:MOST_PLACES]
    names = dict(Job.objects.filter(pk__in=[row[1] for row in told]).values_list("pk", "name"))
    places = [
        PlannedPlace(str(pk), names[pk], place, was)
        for place, pk, was in sorted(told, key=lambda row: row[0])
    ]
    return places, len(moved)


def _resuming(seen: _Foreseen, plans: Mapping[int, Plan]) -> dict[str, Outlook]:
    """Job id -> when work of it that the plans stop starts again: what the pass says that finds it stopped."""
    found: dict[str, Outlook] = {}
    for pool_id, plan in plans.items():
        stopped = [release.allocation_id for release in plan.releases]
        if not stopped:
            continue
        before, tasks = seen.snapshots[pool_id], {release.task_id for release in plan.releases}
        snapshot = ended(applied(before, plan), stopped, True, before.now)
        then = _decided(pool_id, snapshot)
        futures, _ = _forecast(pool_id, snapshot, then, tasks)
        started = {start.task_id for start in then.starts}
        of_job: dict[str, list[str]] = defaultdict(list)
        for request in before.requests:
            if request.task_id in tasks:
                of_job[request.job_id].append(request.task_id)
        for job, its in of_job.items():
            found[job] = Outlook(job, now=True) if started & set(its) else _later(job, its, then, futures)
    return found


def _stops(
    allocation_ids: list[str], seen: _Foreseen, resuming: Mapping[str, Outlook], actor: str
) -> list[Stop]:
    """One row for each job that would be stopped, in the order of the ids."""
    placed = _placed(seen)
    runs: dict[uuid.UUID, list[Allocation]] = defaultdict(list)
    related = ("task__job__owner__group", "task__trial__latest_checkpoint")
    rows = Allocation.objects.select_related(*related).in_bulk(allocation_ids)
    for allocation_id in allocation_ids:
        if allocation_id in rows:
            runs[rows[allocation_id].task.job_id].append(rows[allocation_id])
    return [_stop(attempts, placed, resuming, actor) for attempts in runs.values()]


def _placed(seen: _Foreseen) -> Mapping[str, Placement]:
    return {
        request.running.allocation_id: request.running
        for snapshot in seen.snapshots.values()
        for request in snapshot.requests
        if request.running is not None
    }


def _stop(
    attempts: list[Allocation],
    placed: Mapping[str, Placement],
    resuming: Mapping[str, Outlook],
    actor: str,
) -> Stop:
    job = attempts[0].task.job
    running = [placed[one.pk] for one in attempts if one.pk in placed]
    saved = [one.last_saved_at for one in running if one.last_saved_at is not None]
    trials = [one.task.trial for one in attempts if hasattr(one.task, "trial")]
    asked = {one.task_id for one in attempts if one.pk in placed and placed[one.pk].asked_preempt}
    return Stop(
        job_id=str(job.pk),
        name=job.name,
        username=job.owner.username,
        group=job.owner.group.name if job.owner.group else "",
        slots=sum(one.slots for one in attempts),
        runs=len(attempts),
        started_at=min(one.started_at or one.assigned_at for one in attempts),
        last_saved_at=datetime.fromtimestamp(min(saved), UTC) if saved else None,
        never_saved=any(one.last_saved_at is None and not one.asked_preempt for one in running),
        mine=actor == f"user:{job.owner.username}",
        progress=max((trial.progress for trial in trials if trial.progress is not None), default=None),
        steps_again=sum(_unsaved(trial) for trial in trials if trial.task_id not in asked),
        resumes=resuming.get(str(job.pk)),
    )


def _unsaved(trial: Trial) -> int:
    """Steps since its own newest checkpoint; one that it began with is at 0."""
    saved = trial.latest_checkpoint
    at = saved.steps_completed if saved is not None and saved.trial_id == trial.pk else 0
    return max(0, trial.steps_completed - at)


def _outlooks(seen: _Foreseen, plans: Mapping[int, Plan]) -> list[Outlook]:
    """Return outlooks for edited jobs that want more than they hold, in queue order; a pool is played forward once."""
    found = []
    for pool_id in dict.fromkeys(job.pool_id for job in seen.edited):
        snapshot, plan = seen.snapshots[pool_id], plans[pool_id]
        jobs = {str(job.pk) for job in seen.edited if job.pool_id == pool_id}
        waiting: dict[str, list[str]] = defaultdict(list)
        for request in snapshot.requests:
            if request.job_id in jobs and request.running is None:
                waiting[request.job_id].append(request.task_id)
        started = {start.task_id for start in plan.starts}
        later = {job: tasks for job, tasks in waiting.items() if not started & set(tasks)}
        asked = {task for tasks in later.values() for task in tasks}
        futures, deadlines = Forecast(), Look()
        if later:
            futures, deadlines = _forecast(pool_id, snapshot, plan, asked, jobs)
        outlooks = [
            _later(job, tasks, plan, futures) if job in later else Outlook(job, now=True)
            for job, tasks in waiting.items()
        ]
        found += [replace(one, deadline=deadlines.foreseen(one.job_id)) for one in outlooks]
    return found


def _forecast(
    pool_id: int, snapshot: Snapshot, plan: Plan, asked: set[str], due: Collection[str] = ()
) -> tuple[Forecast, Look]:
    """Return the forecast of these tasks as the pass after this plan would make it, and the deadlines of jobs `due`."""
    pool = ResourcePool.objects.get(pk=pool_id)
    theirs = chosen.of_pool(pool).expect(pool, plan, snapshot.now)
    if theirs is not None:
        return theirs, Look()
    promised, learned = last_plan.past(pool_id)
    started = forecast_outcomes.started(promised)
    late = forecast_outcomes.late(pool_id, promised, started, snapshot.now)
    recent = recent_work.of(pool_id, snapshot)
    found = forecast(snapshot, plan, recent, asked, learned.places, late)
    return found, deadline_look.of(snapshot, plan, found, recent, learned.places, late, due)


def _later(job_id: str, tasks: list[str], plan: Plan, futures: Forecast) -> Outlook:
    """Return the earliest start of a job that the next pass does not start, and why it waits."""
    spans = [futures.spans[task] for task in tasks if task in futures.spans]
    waits = [task for task in tasks if task in plan.waits]
    first = min(
        waits,
        key=lambda task: (plan.waits[task].code in reasons.NEVER, futures.spans.get(task, (inf, inf))),
        default=None,
    )
    unknown = [why for task in tasks if (why := futures.why_unknown(task))]
    return Outlook(
        job_id,
        now=False,
        forecast=min(spans) if spans else None,
        by=futures.by if spans else "",
        reason=plan.waits[first].sentence if first is not None else None,
        unknown=unknown[0] if unknown and not spans else None,
    )


def blockers(job: Job, now: datetime) -> dict[str, list[reasons.Reason]]:
    """Task id -> every reason why it does not run, for the job's tasks that wait in its pool.

    No reason at all: the next pass starts it. A task that runs, or rests with a paused job, is left out.
    """
    with no_garbage_collection():
        snapshot = survey.take(job.pool, now)
        engine = chosen.of_pool(job.pool)
        plan = engine.foresee(job.pool, snapshot, decide(snapshot))
    waiting = [
        request.task_id
        for request in snapshot.requests
        if request.job_id == str(job.pk) and request.running is None
    ]
    if engine.expect(job.pool, plan, snapshot.now) is not None:  # who holds what is not the queue's to say
        return {task_id: [plan.waits[task_id]] for task_id in waiting if task_id in plan.waits}
    return {task_id: explain(snapshot, task_id, plan) for task_id in waiting}
