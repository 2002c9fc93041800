"""The start of the console for one person: what of theirs runs, waits and failed; the pools; what ends soon."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import OperationalError
from django.db.models import QuerySet

from accounts.models import User
from commands.models import Command
from commands.states import CommandState
from dispatch.keeping import figures
from dispatch.keeping.figures import PoolFigures
from dispatch.passes import last_plan
from experiments.continuing import can_continue
from experiments.models import Experiment
from experiments.states import ExperimentState
from hosts.models import ResourcePool
from jobs.labels import label_of
from jobs.models import Job, Task
from jobs.states import JobState
from shown import stories
from shown.hosts import holders
from shown.hosts.holders import IdleGpus
from shown.queue import board, times
from shown.queue import listing as queue_listing
from shown.queue.board import BoardRow
from shown.queue.listing import MINE, MINE_WAITING, QueueView

#: of each list
MOST_LINES = 10
#: each costs several queries
MOST_FAILURES = 6
#: a failure that nobody looked at is shown for so long
FAILED_DAYS = 14


@dataclass(frozen=True)
class Failure:
    """What failed, why in a sentence, where its log begins to tell, and a page on which it can be tried again."""

    name: str
    label: str
    href: str
    ended_at: datetime
    sentence: str
    log_at: str
    again: tuple[str, str]


@dataclass(frozen=True)
class Ending:
    """A run whose slots come free soon. `span`: "Ends 12:44 to 12:50"; `title`: the same to the second."""

    name: str
    label: str
    href: str
    owner: str
    pool: str
    slots: int
    span: str
    title: str


@dataclass(frozen=True)
class Overview:
    """Lists have at most MOST_LINES rows; the numbers beside them count all."""

    running: list[tuple[str, BoardRow]]
    waiting: list[tuple[str, BoardRow]]
    running_jobs: int
    waiting_jobs: int
    paused_jobs: int
    failed: list[Failure]
    failed_jobs: int
    pools: list[PoolFigures]
    idle: list[IdleGpus]
    idle_gpus: int
    ending: list[Ending]
    #: of the pools in which something of theirs is, for live updates
    my_pools: list[int]


def of(user: User, now: datetime) -> Overview:
    """What the start page shows this person."""
    since = now - timedelta(days=FAILED_DAYS)
    since = max(user.failures_seen_at or since, since)
    mine = ResourcePool.objects.filter(jobs__owner=user, jobs__state=JobState.ACTIVE).distinct()
    pools = list(mine.order_by("name"))
    running: list[tuple[str, BoardRow]] = []
    waiting: list[tuple[str, BoardRow]] = []
    running_jobs = waiting_jobs = 0
    for pool in pools:
        for state in ("scheduled", "backfilled"):
            listing = queue_listing.of(pool, QueueView(show=MINE, state=state), user.pk)
            running += [(pool.name, row) for row in board.rows_of(pool, listing)]
        listing = queue_listing.of(pool, QueueView(show=MINE_WAITING), user.pk)
        waiting += [(pool.name, row) for row in board.rows_of(pool, listing)]
        waiting_jobs += listing.counts[MINE_WAITING]
        running_jobs += listing.counts[MINE] - listing.counts[MINE_WAITING]
    idle = sorted(holders.idle(), key=lambda each: each.holder.user != user.username)
    return Overview(
        running=running[:MOST_LINES],
        waiting=waiting[:MOST_LINES],
        running_jobs=running_jobs,
        waiting_jobs=waiting_jobs,
        paused_jobs=Job.objects.filter(owner=user, state=JobState.PAUSED).count(),
        failed=_failed(user, since),
        failed_jobs=sum(rows.count() for rows in _failures(user, since)),
        pools=_pools(),
        idle=idle[:MOST_LINES],
        idle_gpus=sum(len(each.slots) for each in idle),
        ending=_ending(now),
        my_pools=[pool.pk for pool in pools],
    )


def _pools() -> list[PoolFigures]:
    """Empty if the database takes too long to count: the rest of the page is worth more than its strip."""
    try:
        return figures.pools(with_runs=False)
    except OperationalError:
        return []


def _failures(user: User, since: datetime) -> tuple[QuerySet[Experiment], QuerySet[Command]]:
    mine = {"owner": user, "ended_at__gt": since}
    return (
        Experiment.objects.filter(state=ExperimentState.ERROR, archived=False, **mine).order_by("-ended_at"),
        Command.objects.filter(state=CommandState.ERROR, **mine).order_by("-ended_at"),
    )


def _failed(user: User, since: datetime) -> list[Failure]:
    """The newest first. Only of those that are shown it is asked why."""
    experiments, commands = _failures(user, since)
    rows: list[Experiment | Command] = [
        *experiments[:MOST_FAILURES], *commands.select_related("job")[:MOST_FAILURES]
    ]  # fmt: skip
    newest = sorted(rows, key=lambda each: each.ended_at or since, reverse=True)[:MOST_FAILURES]
    return [
        _failed_experiment(each) if isinstance(each, Experiment) else _failed_command(each) for each in newest
    ]


def _failed_experiment(experiment: Experiment) -> Failure:
    at, failure = f"/experiments/{experiment.pk}", stories.of_experiment(experiment)
    story = failure.story if failure else None
    log_at = ""
    if failure and story:
        rank = "" if story.rank is None else f"?rank={story.rank}"
        log_at = f"{failure.lines_at}{rank}{'' if story.line is None else f'#L{story.line}'}"
    continues = not experiment.unmanaged and can_continue(experiment)
    assert experiment.ended_at is not None
    return Failure(
        name=experiment.name,
        label=label_of(Job.Kind.EXPERIMENT, str(experiment.pk)),
        href=at,
        ended_at=experiment.ended_at,
        sentence=next(iter(story.sentences), "") if story else "",
        log_at=log_at,
        again=("Continue", f"{at}/continue") if continues else ("Fork", f"{at}/fork"),
    )


def _failed_command(command: Command) -> Failure:
    at = f"/commands/{command.pk}"
    assert command.ended_at is not None
    return Failure(
        name=command.description,
        label=label_of(command.kind, str(command.pk)),
        href=at,
        ended_at=command.ended_at,
        sentence=command.ending,
        log_at=f"{at}/log",
        again=("Config", f"{at}/config"),
    )


def _ending(now: datetime) -> list[Ending]:
    """What the last passes expect to end first, in any pool. What was to be over by now is left out: nobody knows."""
    ends = {
        task: span
        for pool in ResourcePool.objects.all()
        for task, span in last_plan.of(pool).ends.items()
        if span[1] > now.timestamp()
    }
    first = sorted(ends, key=lambda task: ends[task][1])[:MOST_LINES]
    tasks = Task.objects.filter(pk__in=first).select_related("job__owner", "job__pool", "trial")
    by_id = {task.pk: task for task in tasks}
    return [_ending_of(by_id[task], ends[task], now) for task in first if task in by_id]


def _ending_of(task: Task, span: list[float], now: datetime) -> Ending:
    job = task.job
    trial = getattr(task, "trial", None)
    text, title = times.forecast(span, now, "Ends")
    return Ending(
        name=job.name,
        label=label_of(job.kind, job.entity_id),
        href=f"/trials/{trial.pk}" if trial else f"/commands/{job.entity_id}",
        owner=job.owner.username,
        pool=job.pool.name,
        slots=task.slots,
        span=text,
        title=title,
    )
