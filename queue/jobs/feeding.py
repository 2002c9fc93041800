"""The one writer of `FedJob`: what is handed to Slurm, what Slurm says of it, and when it becomes an attempt.

Each function is a guarded step, like those of `jobs.transitions`: losing a race changes nothing and is not an error.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet
from django.db.models.functions import Now

from accounts.models import Cluster
from events.announce import announce, wake
from hosts.models import ResourcePool
from hosts.pools import mark_dirty
from jobs import assigning
from jobs.assigning import Assignment
from jobs.fed_jobs import FedJob
from jobs.models import Task

#: carries out what is noted here, and looks how it is
TEND = "dispatch.tasks.tend_cluster"
#: A submission whose answer was lost is looked for this long before it is sent again.
DOUBT_SECONDS = 30.0
#: longer than a submission takes that gets no answer
CLAIM_SECONDS = 120.0


def open_jobs(pool_id: int) -> QuerySet[FedJob]:
    """Those that are in Slurm, may be, or are about to be."""
    return FedJob.objects.filter(pool_id=pool_id, ended_at=None)


@transaction.atomic
def keep(
    pool: ResourcePool,
    wanted: Sequence[str],
    most: int,
    nodes_of: Callable[[Sequence[str]], Mapping[str, int]],
) -> dict[str, FedJob]:
    """Hand over the tasks that are wanted and were not, take back those that are not any more: the open ones by task.

    At most `most` wait in Slurm: what is being taken back counts until it is gone. `nodes_of`: nodes by task.
    """
    rows = list(open_jobs(pool.pk).filter(allocation=None))
    fed = {row.task_id: row for row in rows}
    back = [row.pk for row in rows if row.task_id not in wanted and row.back_at is None]
    FedJob.objects.filter(pk__in=back, allocation=None).update(back_at=Now())
    new = [task_id for task_id in wanted if task_id not in fed][: max(0, most - len(rows))]
    made = _made(pool, nodes_of(new)) if new else []
    if back or made:
        wake(TEND, pool.pk)
    return fed | {row.task_id: row for row in made}


def _made(pool: ResourcePool, nodes: Mapping[str, int]) -> list[FedJob]:
    above = Cluster.get().attempts_above
    tasks = Task.objects.filter(pk__in=nodes)
    # one that was moved here from another Slurm pool is taken back there first
    elsewhere = FedJob.objects.filter(task=OuterRef("pk"), ended_at=None)
    counts = dict(tasks.exclude(Exists(elsewhere)).values_list("pk", "run_count"))
    rows = [
        FedJob(
            pool=pool,
            task_id=task_id,
            attempt=f"{task_id}.{max(counts[task_id], above) + 1}",
            nodes=count,
        )
        for task_id, count in nodes.items()
        if task_id in counts
    ]
    return FedJob.objects.bulk_create(rows)


def claim_submission(row: FedJob) -> bool:
    """Take the submission of a job: from now on it may be in Slurm."""
    due = FedJob.objects.filter(pk=row.pk, job_id="", back_at=None, ended_at=None, sends=row.sends)
    return bool(
        due.update(sent_at=Now(), send_after=Now() + timedelta(seconds=CLAIM_SECONDS), sends=F("sends") + 1)
    )


def submitted(row: FedJob, job_id: str) -> bool:
    """Slurm has it under this id."""
    done = FedJob.objects.filter(pk=row.pk, job_id="", ended_at=None).update(job_id=job_id, error="")
    if done:
        mark_dirty(row.pool_id)
    return bool(done)


def not_submitted(row: FedJob, sentence: str, again_seconds: float, *, refused: bool) -> None:
    """It was refused, so that it is not in Slurm; or nobody knows, and it is looked for first."""
    fields = {"error": sentence, "send_after": Now() + timedelta(seconds=again_seconds)}
    changed = FedJob.objects.filter(pk=row.pk, job_id="", ended_at=None)
    changed.update(**fields, **({"sent_at": None} if refused else {}))
    mark_dirty(row.pool_id)


def seen(row: FedJob, *, state: str, reason: str = "", starts_at: datetime | None = None) -> None:
    """As squeue said a moment ago. The pool is looked at again if it is otherwise than before."""
    changed = (row.state, row.reason, row.starts_at) != (state, reason, starts_at)
    FedJob.objects.filter(pk=row.pk).update(
        state=state, reason=reason[:255], starts_at=starts_at, seen_at=Now(), over_at=None
    )
    if changed and row.allocation_id is None:
        mark_dirty(row.pool_id)


def over(row: FedJob, state: str) -> None:
    """Slurm does not run it any more. `state`: the last one that it told; empty if it does not know the job."""
    FedJob.objects.filter(pk=row.pk, over_at=None).update(over_at=Now())
    if state:
        FedJob.objects.filter(pk=row.pk).update(state=state)


@transaction.atomic
def ended(row: FedJob) -> bool:
    """Nothing is left to do for it: its task may be handed over again."""
    done = bool(FedJob.objects.filter(pk=row.pk, ended_at=None).update(ended_at=Now()))
    if done:
        mark_dirty(row.pool_id)
    return done


def take_back(row: FedJob) -> None:
    """It is to leave Slurm."""
    FedJob.objects.filter(pk=row.pk, back_at=None, ended_at=None).update(back_at=Now())


@transaction.atomic
def put_off(row: FedJob, seconds: float) -> None:
    """Its job ended in Slurm before it had nodes: its task is not handed over again for some seconds."""
    if ended(row):
        Task.objects.filter(pk=row.task_id).update(not_before=Now() + timedelta(seconds=seconds))


class _Refused(Exception):
    """Rolls back an assignment that is not the one that was claimed."""


def begin(row: FedJob, placement: Sequence[tuple[uuid.UUID, Sequence[int]]]) -> assigning.Assigned | None:
    """Slurm has given it nodes: the attempt begins there, in the caller's transaction. None: not any more.

    Its task may have been paused, ended or moved to another pool; then nothing was changed and nothing has run.
    """
    try:
        with transaction.atomic():
            if (
                not FedJob.objects.select_for_update()
                .filter(pk=row.pk, allocation=None, ended_at=None)
                .exists()
            ):
                return None
            made = assigning.assign_all([Assignment(row.task_id, placement)], actor="scheduler")
            if not made or made[0].id != row.attempt:
                raise _Refused
            FedJob.objects.filter(pk=row.pk).update(allocation_id=made[0].id, back_at=None)
    except (_Refused, assigning.Stale):
        return None
    announce(f"pool:{row.pool_id}")
    mark_dirty(row.pool_id)
    return made[0]


def strays(pool_id: int, ids: Mapping[str, str]) -> list[str]:
    """Those of living jobs (id -> comment) that were submitted for the pool and that no open row has: a submission came
    late, after another had been sent or its task was no longer wanted.
    """
    ours = set(
        FedJob.objects.filter(pool_id=pool_id, attempt__in=ids.values()).values_list("attempt", flat=True)
    )
    known = set(open_jobs(pool_id).values_list("job_id", flat=True))
    doubted = set(open_jobs(pool_id).filter(job_id="").values_list("attempt", flat=True))
    return [id_ for id_, attempt in ids.items() if attempt in ours - doubted and id_ not in known]


def of_allocations(pool_id: int) -> dict[str, FedJob]:
    """The open jobs that have become attempts, by attempt."""
    return {str(row.allocation_id): row for row in open_jobs(pool_id).exclude(allocation=None)}
