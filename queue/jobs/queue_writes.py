"""The one writer of a job's priority, weight, max_slots, pool and position, with the event row of each change."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db import connection
from django.db.models import Q

from events.announce import announce
from events.models import Event
from events.record import record
from hosts import pool_access
from hosts.login_accounts import refuse_as_login
from hosts.models import ResourcePool
from hosts.pools import hold, mark_dirty
from jobs import transitions
from jobs.models import Allocation, Job, QueueEdit, Task
from jobs.queue_order import everyone
from jobs.queue_rules import refuse_lost_account, short
from jobs.states import AllocationState, Reason, StopKind, TaskState

State = dict[str, Any]
#: where a job stands, and where it stood before its deadline moved it ahead
_PLACES = ("position", "usual_position")

#: Edits of the queue are serialized by this advisory lock, so that two moves see each other's positions.
_LOCK_KEY = 0x7472_7175


@dataclass
class Edit:
    """One edit of the queue while it is made: who makes it, and how the jobs that it touches were before."""

    actor: str
    role: str
    before: dict[uuid.UUID, State] = field(default_factory=dict)
    dirty: set[int] = field(default_factory=set)
    #: positions of jobs that the edit does not name were written too
    renumbered: bool = False
    #: in the detail of each event row; an undo names the edit that it takes back
    detail: State = field(default_factory=dict)

    def touch(self, job: Job) -> None:
        """Keep how the job is, unless an earlier step of this edit has."""
        self.before.setdefault(job.pk, state_of(job))

    def announce(self) -> None:
        """Let the next passes and whoever looks see it."""
        for pool_id in sorted(self.dirty):
            mark_dirty(pool_id)
        if self.before:
            announce(*(f"job:{job_id}" for job_id in self.before))


class Change:
    """One change of a job in words. As text it names jobs by their ids, for programs and terminals."""

    def __init__(self, job: Job, *words: str | Job) -> None:
        self.job = job
        self._words = words

    def __str__(self) -> str:
        return f"Job {short(self.job.pk)}: {self._said(lambda job: f'job {short(job.pk)}')}."

    @property
    def by_name(self) -> str:
        return f"{self.job.name}: {self.words}."

    @property
    def words(self) -> str:
        """The change alone, on a page that is about the job."""
        return self._said(lambda job: job.name)

    def _said(self, name: Callable[[Job], str]) -> str:
        return "".join(word if isinstance(word, str) else name(word) for word in self._words)


def state_of(job: Job) -> State:
    """What an edit may change of a job, as it is kept for an undo."""
    return {
        "job": str(job.pk),
        "pool": job.pool_id,
        "priority": job.priority,
        "weight": job.weight,
        "max_slots": job.max_slots,
        "position": job.position,
        "moved_at": job.moved_at.isoformat() if job.moved_at else None,
        "deadline_at": job.deadline_at.isoformat() if job.deadline_at else None,
        "usual_position": job.usual_position,
    }


def put_back(job: Job) -> State:
    """The fields that take back how far its deadline has moved the job ahead; none if that has not happened."""
    if job.usual_position is None:
        return {}
    return {"position": job.usual_position, "usual_position": None}


def put_off(job: Job, deadline: datetime | None) -> State:
    """The fields that put the job back, if this deadline gives it more time than its own does."""
    is_later = deadline is None or job.deadline_at is None or deadline > job.deadline_at
    return put_back(job) if is_later else {}


def save(job: Job, edit: Edit, reason: Reason, **fields: Any) -> None:
    """Write the fields with their event row; the job's pool is dirty then."""
    edit.touch(job)
    left = job.pool_id
    changed = {
        name: (getattr(job, name), value) for name, value in fields.items() if getattr(job, name) != value
    }
    Job.objects.filter(pk=job.pk).update(**fields)
    for name, value in fields.items():
        setattr(job, name, value)
    record(
        Event.Kind.JOB,
        job.pk,
        from_state=job.state,
        to_state=job.state,
        reason=reason,
        actor=edit.actor,
        detail={**{name: [_plain(old), _plain(new)] for name, (old, new) in changed.items()}, **edit.detail},
        job_id=job.pk,
        experiment_id=int(job.entity_id) if job.entity_id.isdigit() else None,
        pools=dict.fromkeys([left, job.pool_id]),
    )
    edit.dirty.add(job.pool_id)


def _plain(value: Any) -> Any:
    if isinstance(value, ResourcePool):
        return value.name
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return value if isinstance(value, (int, float, str)) or value is None else str(value)


def one_edit_at_a_time() -> None:
    """Wait for the edit that is being made, if any; held until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_KEY])


def lock_jobs(job_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, Job]:
    """The jobs by id, locked, without those that were deleted."""
    rows = Job.objects.select_for_update(of=("self",), no_key=True).select_related("owner", "pool")
    return {job.pk: job for job in rows.filter(pk__in=job_ids).order_by("pk")}


def lock_attempts(job_ids: Collection[uuid.UUID]) -> None:
    """Before jobs are moved to another pool, and before the jobs themselves are locked.

    The tasks that wait come first: a pass that is placing one of them is then seen, or sees the move. An attempt that
    ends locks its allocation first and its job last.
    """
    waiting = Task.objects.filter(job__in=job_ids, state=TaskState.WAITING)
    transitions.lock_tasks(list(waiting.values_list("pk", flat=True)))
    running = Allocation.objects.filter(task__job__in=job_ids).exclude(state=AllocationState.TERMINATED)
    list(running.select_for_update(of=("self",), no_key=True).order_by("pk").values_list("pk"))


def change_pool(job: Job, pool: ResourcePool, edit: Edit, **fields: Any) -> None:
    """Put the job into another pool; what runs in the old one is asked to save and leave.

    The caller has called `lock_attempts` before it locked the job; the pool is locked last.
    Raises Refusal where the pool was removed meanwhile, is for others, or where its account there speaks against it.
    """
    pool_access.refuse_move(pool, job.owner, job.pk)
    refuse_as_login(pool, job.owner.unix_user)
    refuse_lost_account(job, pool, edit.actor, edit.role)
    hold(pool)
    edit.touch(job)
    edit.dirty.add(job.pool_id)
    save(job, edit, Reason.POOL_CHANGED, pool=pool, **fields)
    # the spares of the new pool are for what fails there
    Task.objects.filter(job=job, state=TaskState.WAITING, recovers=True).update(recovers=False)
    running = Allocation.objects.filter(task__job=job).exclude(state=AllocationState.TERMINATED)
    for allocation_id in running.exclude(pool=pool).order_by("pk").values_list("pk", flat=True):
        transitions.request_stop(
            allocation_id, StopKind.PREEMPT, reason=Reason.POOL_CHANGED, actor=edit.actor
        )


def renumber(pool: ResourcePool, priority: int, moving: uuid.UUID, edit: Edit) -> None:
    """Spread the places of one priority one second apart, in their order. Rare: floats leave no room between two.

    A place is where a job stands, or where a later deadline or an undo would put it back. That of the job that is
    `moving` keeps its number; if it comes from another priority, the last place keeps its own.
    """
    peers = list(everyone(pool).filter(priority=priority))
    for peer in peers:
        edit.touch(peer)
    here = {"pool": pool.pk, "priority": priority}
    edits = list(
        QueueEdit.objects.filter(Q(before__contains=[here]) | Q(after__contains=[here]), undone_at=None)
    )
    noted = [state for each in edits for state in (*each.before, *each.after)]
    rows = [*map(vars, peers), *(state for state in noted if here.items() <= state.items())]
    marks = sorted({mark for row in rows for mark in _places(row).values()})
    fixed = marks[-1]
    for own in (_places(vars(peer)) for peer in peers if peer.pk == moving):
        fixed = own.get("usual_position", own["position"])
    start = fixed[0] - marks.index(fixed)
    numbers = {mark: start + index for index, mark in enumerate(marks)}
    for row in rows:
        row.update({name: numbers[mark] for name, mark in _places(row).items()})
    Job.objects.bulk_update(peers, _PLACES)
    QueueEdit.objects.bulk_update(edits, ["before", "after"])
    edit.renumbered = True


def _places(row: State) -> dict[str, tuple[float, str]]:
    """Field -> its number and the job, by which equal numbers are ordered; of a job's row, or as an edit noted it."""
    job = str(row["id"] if "id" in row else row["job"])
    return {name: (row[name], job) for name in _PLACES if row.get(name) is not None}
