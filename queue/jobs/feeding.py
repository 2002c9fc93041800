"""The one writer of `FedJob`: what is handed to Slurm, what Slurm says of it, and when it becomes an attempt.

Each function is a guarded step, like those of `jobs.transitions`: losing a race changes nothing and is not an error.
"""

from __future__ import annotations

import hashlib
import hmac
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from accounts.models import Cluster
from events.announce import announce, wake
from hosts.login_accounts import unix_user
from hosts.models import Host, ResourcePool
from hosts.pools import mark_dirty
from hosts.slurm import ends
from jobs import assigning
from jobs.assigning import Assignment
from jobs.fed_jobs import FedJob
from jobs.models import Allocation, Task
from jobs.states import JobState, TaskState

#: carries out what is noted here, and looks at the cluster
TEND = "dispatch.tasks.tend_cluster"
#: A submission whose answer was lost is looked for this long before it is sent again.
DOUBT_SECONDS = 30.0
#: between two answers of squeue that a job is over, until that is believed
CONFIRM_SECONDS = 4.0
#: longer than a submission takes that gets no answer
CLAIM_SECONDS = 120.0
#: for so long after its end a job may appear in Slurm whose submission came late
_LATE = timedelta(hours=1)
#: what Slurm said longer ago is not shown as what it expects
SAID_SECONDS = 60.0
#: why what waits there is taken back, if its task could start
OTHERS_AHEAD = "others are ahead of it now"
#: between that and why it is still there
_STILL_THERE = "; it is still there: "
OTHER_ACCOUNT = "its owner's jobs run under another account now"


def open_jobs(pool_id: int) -> QuerySet[FedJob]:
    """Those that are in Slurm, may be, or are about to be."""
    return FedJob.objects.filter(pool_id=pool_id, ended_at=None)


def not_over() -> QuerySet[FedJob]:
    """Those that Slurm may still run: one answer that says otherwise proves nothing."""
    confirmed = Now() - timedelta(seconds=CONFIRM_SECONDS)
    return FedJob.objects.filter(ended_at=None).exclude(over_at__lte=confirmed)


@transaction.atomic
def keep(
    pool: ResourcePool,
    wanted: Sequence[str],
    most: int,
    nodes_of: Callable[[Sequence[str]], Mapping[str, int]],
    why_back: Callable[[str], str] = lambda _: OTHERS_AHEAD,
) -> dict[str, FedJob]:
    """Hand over the tasks that are wanted and were not, take back those that are not any more: the open ones by task.

    At most `most` wait in Slurm: what is being taken back counts until it is gone, what Slurm refused does not.
    `nodes_of`: nodes by task. `why_back`: of a task, in words.
    """
    rows = list(open_jobs(pool.pk).filter(allocation=None))
    fed = {row.task_id: row for row in rows}
    moved = _of_other_accounts(pool, rows)
    back = [row for row in rows if (row.task_id not in wanted or row.pk in moved) and row.back_at is None]
    for row in back:
        take_back(row, OTHER_ACCOUNT if row.pk in moved else why_back(row.task_id))
    again = {row.task_id: row for row in rows if row.refused and row.task_id in wanted}
    for task_id, nodes in (nodes_of(list(again)) if again else {}).items():
        if again[task_id].nodes != nodes:  # the pool was edited since
            FedJob.objects.filter(pk=again[task_id].pk, job_id="").update(nodes=nodes)
    room = max(0, most - sum(not row.refused for row in rows))
    new = [task_id for task_id in wanted if task_id not in fed][:room]
    made = _made(pool, nodes_of(new)) if new else []
    if back or made:
        wake(TEND, pool.pk)
    return fed | {row.task_id: row for row in made}


def _of_other_accounts(pool: ResourcePool, rows: Sequence[FedJob]) -> set[int]:
    """Rows that were submitted under an account that is not their owner's any more."""
    sent = [row for row in rows if row.sends]
    linked = dict(
        Task.objects.filter(pk__in=[row.task_id for row in sent]).values_list("pk", "job__owner__unix_user")
    )
    return {row.pk for row in sent if row.unix_user != (unix_user(pool, linked.get(row.task_id, "")) or "")}


def refused_tasks(pool_id: int) -> frozenset[str]:
    """Tasks of those that Slurm has refused: tried again after a while, and meanwhile in nobody's way."""
    refused = open_jobs(pool_id).filter(refused=True, back_at=None, allocation=None)
    return frozenset(refused.values_list("task_id", flat=True))


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
            attempt=_attempt(task_id, counts[task_id], above),
            nodes=count,
        )
        for task_id, count in nodes.items()
        if task_id in counts
    ]
    return FedJob.objects.bulk_create(rows)


def _attempt(task_id: str, run_count: int, above: int) -> str:
    """The id of the task's next attempt."""
    return f"{task_id}.{max(run_count, above) + 1}"


def claim_submission(row: FedJob, account: str) -> bool:
    """Take the submission of a job: from now on it may be in Slurm, under this account; empty: that of the login node.

    Another account than the first takes it back: a job that may be there is looked for under the one that it has.
    """
    if row.sends and row.unix_user != account:
        take_back(row, OTHER_ACCOUNT)
        return False
    row.unix_user = account
    due = FedJob.objects.filter(pk=row.pk, job_id="", back_at=None, ended_at=None, sends=row.sends)
    return bool(
        due.update(
            unix_user=account,
            sent_at=Now(),
            send_after=Now() + timedelta(seconds=CLAIM_SECONDS),
            sends=F("sends") + 1,
            over_at=None,
        )
    )


def submitted(row: FedJob, job_id: str) -> bool:
    """Slurm has it under this id."""
    due = FedJob.objects.filter(pk=row.pk, job_id="", ended_at=None)
    done = due.update(job_id=job_id, error="", refused=False, seen_at=None, over_at=None)
    if done:
        mark_dirty(row.pool_id)
    return bool(done)


def not_submitted(row: FedJob, sentence: str, again_seconds: float, *, in_doubt: bool) -> None:
    """It was not sent; or nobody knows whether Slurm has it, and it is looked for first."""
    fields = {"error": sentence, "send_after": Now() + timedelta(seconds=again_seconds), "refused": False}
    changed = FedJob.objects.filter(pk=row.pk, job_id="", ended_at=None)
    changed.update(**fields, **({} if in_doubt else {"sent_at": None}))
    mark_dirty(row.pool_id)


def turned_down(row: FedJob, sentence: str, again_seconds: float) -> None:
    """Slurm has refused it, or its job ended there before it had nodes: it is handed over again after a while."""
    FedJob.objects.filter(pk=row.pk, job_id=row.job_id, allocation=None, ended_at=None).update(
        job_id="",
        sent_at=None,
        send_after=Now() + timedelta(seconds=again_seconds),
        error=sentence,
        refused=True,
        state="",
        reason="",
        starts_at=None,
        exit_code=None,
        nodes_at=None,
        over_at=None,
    )
    mark_dirty(row.pool_id)


def try_again(pool_id: int) -> None:
    """What Slurm has refused is handed over again now: the pool was corrected, or a person had it tried again.

    One that is being handed over keeps its claim, so that it is not sent twice.
    """
    refused = open_jobs(pool_id).filter(refused=True, job_id="", allocation=None, sent_at=None)
    if refused.update(send_after=None):
        wake(TEND, pool_id)


def start_token(attempt: str) -> str:
    """By which a job in Slurm shows that it was submitted for the attempt. It is good for no more than `told_begun`."""
    return hmac.new(
        settings.SECRET_KEY.encode(), f"slurm-start:{attempt}".encode(), hashlib.sha256
    ).hexdigest()


def told_begun(attempt: str) -> bool:
    """Its job says that it has nodes. That is a hint to ask Slurm now; whether there is nothing more to look for: its
    nodes may be known, and wait until they are free here (`freed`).
    """
    due = FedJob.objects.filter(attempt=attempt, ended_at=None, allocation=None, back_at=None, nodes_at=None)
    row = due.first()
    if row is not None:
        wake(TEND, row.pool_id, True)
    return row is None


def freed(host: Host) -> None:
    """A run there is over: what has its nodes in Slurm may begin now."""
    waiting = open_jobs(host.pool_id).filter(allocation=None, back_at=None, nodes_at__isnull=False)
    if host.transport == Host.Transport.SLURM and waiting.exists():
        wake(TEND, host.pool_id, True)


def seen(
    row: FedJob, *, state: str, has_nodes: bool, reason: str = "", starts_at: datetime | None = None
) -> None:
    """As squeue said a moment ago. The pool is looked at again if it is otherwise than before."""
    if row.nodes_at is not None and not has_nodes:  # an administrator has requeued it
        FedJob.objects.filter(pk=row.pk).update(nodes_at=None)
    changed = (row.state, row.reason, row.starts_at) != (state, reason[:255], starts_at)
    FedJob.objects.filter(pk=row.pk).update(
        state=state, reason=reason[:255], starts_at=starts_at, seen_at=Now(), over_at=None
    )
    if changed and row.allocation_id is None:
        mark_dirty(row.pool_id)


def expected(pool_id: int) -> tuple[dict[str, tuple[float, float]], dict[str, float]]:
    """(task -> when Slurm expects to start it, and when it said so; task -> since when it has said nothing of it), in
    epoch seconds, of what waits there. A word that is old or over is none. The database's clock tells, by which it was
    noted.
    """
    waiting = open_jobs(pool_id).filter(allocation=None, back_at=None, seen_at__isnull=False)
    words = waiting.annotate(now=Now()).values_list("task_id", "starts_at", "seen_at", "now")
    known: dict[str, tuple[float, float]] = {}
    silent: dict[str, float] = {}
    for task, start, said, now in words:
        if said and now - said > timedelta(seconds=SAID_SECONDS):
            silent[task] = said.timestamp()
        elif said and start and start > now:
            known[task] = (start.timestamp(), said.timestamp())
    return known, silent


def over(row: FedJob, state: str, asked: datetime) -> bool:
    """Whether Slurm surely does not run it: squeue says so now, as an answer did that had come some seconds before it
    was `asked`. One may be wrong, as that of a controller that has just begun, which lists no job.

    `state`: in which it has ended; empty if it is not listed. The first one counts: what is left of it may be canceled.
    """
    if row.over_at is None or not ends.says_how(row.state):
        row.state = state or row.state
    same = FedJob.objects.filter(pk=row.pk, job_id=row.job_id)
    if not same.update(state=row.state, over_at=Coalesce("over_at", Now())) or row.over_at is None:
        return False
    return asked - row.over_at >= timedelta(seconds=CONFIRM_SECONDS)


def told(row: FedJob, state: str, exit_code: int) -> None:
    """How it ended, of which squeue did not tell."""
    row.state, row.exit_code = state[:32], exit_code
    FedJob.objects.filter(pk=row.pk, job_id=row.job_id).update(state=row.state, exit_code=exit_code)


@transaction.atomic
def ended(row: FedJob) -> bool:
    """Nothing is left to do for it: its task may be handed over again."""
    done = bool(FedJob.objects.filter(pk=row.pk, ended_at=None).update(ended_at=Now()))
    if done:
        mark_dirty(row.pool_id)
    return done


def take_back(row: FedJob, why: str) -> None:
    """It is to leave Slurm. `why`: in words, for the reason why its task waits."""
    taken = FedJob.objects.filter(pk=row.pk, allocation=None, ended_at=None)
    if taken.update(back_at=Coalesce("back_at", Now()), back_why=why):
        row.back_at, row.back_why = row.back_at or timezone.now(), why


def not_taken_out(row: FedJob, error: str) -> None:
    """It was to leave Slurm, which the reason says why it has not."""
    why = row.back_why.partition(_STILL_THERE)[0] + _STILL_THERE + error
    FedJob.objects.filter(pk=row.pk, ended_at=None, back_at__isnull=False).update(back_why=why)
    mark_dirty(row.pool_id)


class _Refused(Exception):
    """Rolls back an assignment that is not the one that was claimed."""


class NotYet(Exception):
    """The task may start, but its nodes are not free in our rows: what ran there before is not settled yet."""


def begin(row: FedJob, placement: Sequence[tuple[uuid.UUID, Sequence[int]]]) -> assigning.Assigned | None:
    """Slurm has given it nodes: the attempt begins there, in the caller's transaction. None: not any more.

    Its task may have been paused, ended or moved to another pool; then nothing was changed and nothing has run.
    Raises NotYet, which changes nothing either.
    """
    try:
        with transaction.atomic():
            open_ones = FedJob.objects.select_for_update().filter(pk=row.pk, allocation=None, ended_at=None)
            if not open_ones.filter(back_at=None).exists() or _of_other_accounts(row.pool, [row]):
                return None
            made = assigning.assign_all([Assignment(row.task_id, placement)], actor="scheduler")
            if not made or made[0].id != row.attempt:
                raise _Refused
            FedJob.objects.filter(pk=row.pk).update(allocation_id=made[0].id, nodes_at=None)
            Allocation.objects.filter(pk=made[0].id).update(unix_user=row.unix_user)
    except (_Refused, assigning.Stale) as error:
        if _may_start(row):
            raise NotYet from error
        return None
    announce(f"pool:{row.pool_id}")
    mark_dirty(row.pool_id)
    return made[0]


def _may_start(row: FedJob) -> bool:
    """Whether its task still waits for this attempt. What a pass keeps back is taken back by that pass."""
    wanted = Task.objects.filter(
        pk=row.task_id,
        state=TaskState.WAITING,
        job__state=JobState.ACTIVE,
        job__pool=row.pool_id,
        blocked_by="",
    )
    counts = list(wanted.values_list("run_count", flat=True))
    return bool(counts) and row.attempt == _attempt(row.task_id, counts[0], Cluster.get().attempts_above)


def waits_for_nodes(row: FedJob, now: datetime) -> timedelta:
    """Note that it has nodes that are not free in our rows; for how long that has been so."""
    FedJob.objects.filter(pk=row.pk, nodes_at=None).update(nodes_at=now)
    if row.nodes_at is None:
        mark_dirty(row.pool_id)
    return now - (row.nodes_at or now)


def strays(pool_id: int, ids: Mapping[str, tuple[str, str]], login: str) -> list[str]:
    """Those of living jobs (id -> comment, account) that were submitted for the pool and that no open row has: a
    submission came late, after another had been sent or its task was no longer wanted.

    Anybody may give a job of theirs any comment, so one under another account is nobody's. Rows of all pools count: a
    task that was moved to another pool of the cluster is fed there as the same attempt. `login`: the login's account.
    """
    rows = FedJob.objects.filter(attempt__in={attempt for attempt, _ in ids.values()})
    submitted = rows.filter(pool_id=pool_id).values_list("attempt", "unix_user")
    ours = {(attempt, account or login) for attempt, account in submitted}
    known = set(rows.filter(ended_at=None).values_list("attempt", "job_id"))
    return [
        id_
        for id_, (attempt, account) in ids.items()
        if (attempt, account) in ours and not known & {(attempt, id_), (attempt, "")}
    ]


def accounts_of(pool_id: int, now: datetime) -> set[str]:
    """The accounts under which jobs of the pool may be in Slurm; those that are over may have a late submission."""
    lately = Q(ended_at=None) | Q(ended_at__gt=now - _LATE)
    return set(FedJob.objects.filter(lately, pool_id=pool_id).values_list("unix_user", flat=True))


def of_allocations(pool_id: int) -> dict[str, FedJob]:
    """The open jobs that have become attempts, by attempt."""
    return {str(row.allocation_id): row for row in open_jobs(pool_id).exclude(allocation=None)}
