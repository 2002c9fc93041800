"""Reads one pool into plain values for the planner: the first third of a pass (law 1)."""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from operator import itemgetter

from django.conf import settings
from django.db.models import F
from django.db.models.functions import Least
from django.utils import timezone

from dispatch.passes import group_views, host_views, kept_plan, kept_rows, notices
from dispatch.passes.kept_rows import Kept
from dispatch.passes.pool_rows import OF_TASK, PoolRows, Row
from hosts import pool_windows
from hosts.login_accounts import is_shared
from hosts.models import ResourcePool
from jobs import failed_starts
from jobs.labels import label_of
from jobs.models import Allocation, Job
from jobs.states import AllocationState, Reason
from jobs.time_limits import time_used
from scheduling import reasons
from scheduling.durations import Span, ends_of, lasts_of, tenths_of
from scheduling.past_runs import Like, PastRuns, Work
from scheduling.prospects import elsewhere_first
from scheduling.runs import standing
from scheduling.world import (
    GroupShare,
    HostView,
    Placement,
    PoolView,
    Request,
    Snapshot,
    WindowView,
    all_but,
)

_NOWHERE: frozenset[str] = frozenset()
_UNKNOWN: tuple[Span | None, tuple[float, ...]] = (None, ())
#: columns of a task's row
_JOB, _RUN_COUNT, _BLOCKED_BY, _NOT_BEFORE, _OF_JOB = 1, 7, 8, 9, 13
#: of an attempt's
_PROGRESS = 9
_member = itemgetter(3)
#: past attempts that forecasts go by, the newest
MOST_ATTEMPTS = 5000
#: news of an end that took longer is of a server or host that was away, which is not expected again
NEWS_AT_MOST = timedelta(minutes=1)


def yields(preemptible: bool, kind: str) -> bool:
    """Whether a job gets only what nobody else wants: a burn-in does, and no other command may be stopped."""
    return preemptible and kind == Job.Kind.COMMAND


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Surveys, plans and previews make so many values at once, all kept, that collecting garbage is half the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def take(pool: ResourcePool, now: datetime, *, keep: bool = False) -> Snapshot:
    """The pool, its hosts with what is held on them, and every task that waits or runs, at one moment.

    `keep`: what this process kept of the last such survey is used where it still holds (`dispatch.passes.kept_rows`).
    """
    rows, kept = kept_rows.read(pool.pk) if keep else (kept_rows.read_all(pool.pk), None)
    hosts = host_views.of(rows, pool, kept)
    windows = pool_windows.views(pool, now.timestamp())
    groups = group_views.paths() if pool.group_shares or any(one.group for one in windows) else {}
    requests = _Requests(pool, rows, hosts, now.timestamp(), past_runs(), groups).all(kept)
    if kept is not None:
        kept_rows.keep(kept)
    return elsewhere_first(
        Snapshot(
            now=now.timestamp(),
            pool=_pool(pool, rows, group_views.shares(pool, groups, now.timestamp()), windows),
            hosts=hosts,
            requests=requests,
        )
    )


def _pool(
    pool: ResourcePool, rows: PoolRows, shares: Mapping[str, GroupShare], windows: tuple[WindowView, ...]
) -> PoolView:
    return PoolView(
        name=pool.name,
        scheduler=pool.scheduler,
        fitting="worst" if pool.fitting == ResourcePool.Fitting.WORST else "best",
        preemption=pool.preemption and not pool.slurm,  # Slurm gives away what a stopped run held
        allow_heterogeneous_fits=pool.allow_heterogeneous_fits,
        bad_pairs=frozenset(frozenset(pair) for pair in rows.bad_pairs),
        unpreemptible_slots=pool.unpreemptible_slots,
        longest_max_time=pool.longest_max_time_seconds,
        shared_account=is_shared(pool),
        min_runtime=tuple(
            sorted((int(first), seconds) for first, seconds in pool.min_runtime_seconds.items())
        ),
        unready=frozenset(rows.unready),
        shares=shares,
        windows=windows,
        overrun=notices.after_limit() if windows else 0.0,
        window_ahead=settings.WINDOW_AHEAD_SECONDS,
        patience=pool.patience_seconds,
        reserved=frozenset() if pool.patience_seconds is None else kept_plan.reserved(pool.pk),
        spare_hosts=pool.spare_hosts,
        promised=kept_plan.promised(pool.pk) if pool.spare_hosts else {},
    )


class _Requests:
    """Joins the rows of tasks, jobs and attempts. Equal values are shared: the planner compares them often."""

    def __init__(
        self,
        pool: ResourcePool,
        rows: PoolRows,
        hosts: Sequence[HostView],
        now: float,
        past: PastRuns,
        groups: Mapping[int, tuple[str, ...]],
    ) -> None:
        self._rows = rows
        self._hosts = hosts
        self._now = now
        self._past = past
        self._groups = groups
        self._attempts: dict[str, Row] = {row[0]: row for row in rows.attempts}
        self._used = time_used(
            [task[0] for task in rows.tasks if task[_RUN_COUNT] > (task[0] in self._attempts)]
        )
        self._held: dict[str, dict[str, tuple[int, ...]]] = {}
        self._eras: dict[str, int] = {row[1]: row[-2] for row in rows.hosts}
        self._unlinked = frozenset(rows.unlinked)
        self._depends: dict[str, list[reasons.Awaited]] = defaultdict(list)
        for waits, *on in rows.depends:
            self._depends[waits].append((on[0], on[1], on[2]))
        self._shared = is_shared(pool)
        may_become_root = [row[0] for row in rows.hosts if row[-1]]
        #: what work avoids that would run as the login
        self._powerful = _NOWHERE if pool.allow_login_account else frozenset(may_become_root)
        self._avoided: dict[tuple[tuple[str, ...], frozenset[str], bool], frozenset[str]] = {}
        self._notices = notices.of_pool(pool.pk) if pool.windows else {}
        self._usual_notice = notices.usual() if pool.windows else 0.0
        self._lasts: dict[tuple[str | Work, float | None], tuple[Span | None, tuple[float, ...]]] = {}

    def all(self, kept: Kept | None = None) -> tuple[Request, ...]:
        """A request for each task; those that are kept where their rows and all around them are the same."""
        if kept is None:
            self._held = _held(self._rows)
            return tuple([self._request(task) for task in self._rows.tasks])
        tasks, around = {task[0]: task for task in self._rows.tasks}, self._surroundings()
        stale: Collection[str]
        if kept.surroundings == around:
            stale = self._stale(kept)
            runs = {run[1] for task_id in stale if (run := self._attempts.get(task_id))}
            self._held = _held(self._rows, runs)
        else:
            kept.requests, kept.again, stale = {}, set(), tasks
            self._held = _held(self._rows)
        for task_id in stale:
            task = tasks.get(task_id)
            kept.again.discard(task_id)
            if task is None:
                kept.requests.pop(task_id, None)
                continue
            kept.requests[task_id] = request = self._request(task)
            if not self._may_keep(task, request):
                kept.again.add(task_id)
        if stale is tasks:  # the planner sorts them, which takes little time if most are in their order
            order = sorted(kept.requests.values(), key=standing)
            kept.requests = {request.task_id: request for request in order}
        kept.surroundings, kept.aux = around, self._rows.aux
        return tuple(kept.requests.values())

    def _stale(self, kept: Kept) -> set[str]:
        """The tasks whose requests are made again, and those that are gone."""
        waiting, runs, _, holds, _ = kept.tables
        stale = {*kept.again, *self._used, *waiting.news(0), *runs.news(OF_TASK)}
        held = set(holds.news(1))
        if kept.aux != self._rows.aux:
            held.update(row[1] for row in (*kept.aux, *self._rows.aux))
        stale.update(row[0] for row in self._rows.attempts if row[1] in held)
        if self._depends:
            stale.update(task[0] for task in self._rows.tasks if self._waits(task[0], task[_JOB]))
        return stale

    def _surroundings(self) -> tuple[object, ...]:
        """All that the request of a task that `_may_keep` is made of besides its rows."""
        hosts = [(row[0], row[1], row[-2], row[-1]) for row in self._rows.hosts]
        return (
            self._past,
            hosts,
            self._unlinked,
            self._shared,
            self._powerful,
            self._groups,
            self._usual_notice,
            self._notices,
        )

    def _may_keep(self, task: Row, request: Request) -> bool:
        """Its request depends neither on the time nor on rows of its own in other tables."""
        blocked = task[_BLOCKED_BY] or task[_NOT_BEFORE] or self._waits(task[0], task[_JOB])
        if blocked or task[0] in self._used:
            return False
        if request.running is None:
            return True
        # without a limit, a pace and past runs like it, nothing is known of its end at any time
        return request.running.ends is None and not self._attempts[task[0]][_PROGRESS]

    def _request(self, task: Row) -> Request:
        (
            task_id, job_id, slots, created, single_host, avoid_hosts, max_time, _, blocked_by, not_before, failed,
            only, recovers,
        ) = task[:_OF_JOB]  # fmt: skip
        (
            kind, entity_id, priority, position, moved_at, weight, max_slots, preemptible, owner_id, name, elements,
            at_once, deadline, usual_position,
        ) = task[_OF_JOB:OF_TASK]  # fmt: skip
        if at_once:
            most = at_once * max(1, slots)
            max_slots = most if max_slots is None else min(max_slots, most)
        attempt = self._attempts.get(task_id)
        left = None if max_time is None else max(0.0, max_time - self._used.get(task_id, 0.0))
        waits = self._waits(task_id, job_id)
        blocked = blocked_by or not_before or waits
        only_hosts = frozenset(only) if only else _NOWHERE
        work = self._past.known(Work(owner_id, kind, name, slots))
        lasts, tenths = _UNKNOWN if attempt else self._will_last(job_id, work, left)
        has_account = not self._shared and owner_id not in self._unlinked
        return Request(
            task_id=task_id,
            job_id=job_id,
            label=label_of(kind, entity_id),
            slots=slots,
            priority=priority,
            position=position,
            submitted_at=created,
            moved_at=moved_at,
            weight=weight,
            max_slots=max_slots,
            preemptible=preemptible,
            single_host=single_host,
            avoid_hosts=self._avoiding(avoid_hosts or (), only_hosts, has_account),
            has_account=has_account,
            only_hosts=only_hosts,
            failed_hosts=failed_starts.avoided(failed, self._eras) if failed else _NOWHERE,
            running=self._placement(attempt, max_time, self._past.like(job_id, work)) if attempt else None,
            blocked=self._blocked(waits, blocked_by, not_before) if blocked and not attempt else None,
            lasts=lasts,
            tenths=tenths,
            max_time=max_time,
            deadline=deadline,
            usual_position=usual_position,
            groups=self._groups.get(owner_id, ()),
            time_left=left,
            notice=self._notices.get(task_id, self._usual_notice),
            at_once=(at_once, elements) if at_once else None,
            is_element=elements is not None,
            yields=yields(preemptible, kind),
            recovers=recovers and kind != Job.Kind.COMMAND,
        )

    def _waits(self, task_id: str, job_id: str) -> Sequence[reasons.Awaited]:
        """What must end first: for all of its job, and for this element of an array alone."""
        for_all, own = self._depends.get(job_id, ()), self._depends.get(task_id, ())
        return [*for_all, *own] if own else for_all

    def _blocked(
        self, waits: Sequence[reasons.Awaited], blocked_by: str, not_before: float | None
    ) -> reasons.Reason | None:
        if waits:
            return reasons.depends(waits)
        if blocked_by == Reason.WAITS_FOR_UPLOAD:
            return reasons.blocked("its newest checkpoint is still being uploaded")
        if not_before and not_before > self._now:
            return reasons.blocked(
                f"could not be started; retrying in {max(1, round(not_before - self._now))} s"
            )
        return reasons.blocked(Reason(blocked_by).label) if blocked_by else None

    def _avoiding(self, names: Sequence[str], only: frozenset[str], has_account: bool) -> frozenset[str]:
        key = (tuple(names), only, has_account)
        if key not in self._avoided:
            powerful = _NOWHERE if has_account else self._powerful
            self._avoided[key] = frozenset(names).union(powerful, all_but(self._hosts, only))
        return self._avoided[key]

    def _will_last(
        self, job_id: str, work: Work, left: float | None
    ) -> tuple[Span | None, tuple[float, ...]]:
        alike = job_id if self._past.knows(job_id) else work
        if (alike, left) not in self._lasts:
            like = self._past.like(job_id, work)
            self._lasts[alike, left] = lasts_of(left, like), tenths_of(left, like)
        return self._lasts[alike, left]

    def _placement(self, attempt: Row, max_time: float | None, like: Like | None) -> Placement:
        (
            task_id, allocation_id, assigned, started, stopping, stopping_for, on_sufferance, asked, saved, progress,
            waits_again,
        ) = attempt  # fmt: skip
        # progress and limit are of all attempts: as if they had been one
        used = self._used.get(task_id, 0.0)
        return Placement(
            allocation_id=allocation_id,
            slots=self._held.get(allocation_id, {}),
            started_at=assigned,
            stopping=stopping,
            stopping_for=stopping_for or None,
            on_sufferance=on_sufferance,
            last_saved_at=saved,
            asked_preempt=asked,
            running_since=started,
            waits_again=stopping and waits_again,
            ends=ends_of(
                (started or assigned) - used, self._now, progress, max_time, like, held_since=assigned - used
            ),
        )


def _held(rows: PoolRows, of: Collection[str] | None = None) -> dict[str, dict[str, tuple[int, ...]]]:
    """Allocation -> host -> slots, wherever the hosts have gone meanwhile; no slots for zero-slot work.

    `of`: these allocations alone.
    """
    held: dict[str, dict[str, tuple[int, ...]]] = defaultdict(dict)
    holds = rows.holds if of is None else [row for row in rows.holds if row[1] in of]
    for host_id, allocation_id, slot_ids, _ in sorted(holds, key=_member):
        held[allocation_id][host_id] = (*held[allocation_id].get(host_id, ()), *slot_ids)
    for host_id, allocation_id, _ in rows.aux:
        held[allocation_id][host_id] = ()
    return held


#: what this process read last, and when by its monotonic clock
_kept_past: tuple[float, PastRuns] | None = None


def past_runs() -> PastRuns:
    """Read at most once in FORECAST_HISTORY_SECONDS: one more attempt changes no forecast much."""
    global _kept_past
    now = time.monotonic()
    if _kept_past is None or now - _kept_past[0] > settings.FORECAST_HISTORY_SECONDS:
        _kept_past = (now, _read_past())
    return _kept_past[1]


def _read_past() -> PastRuns:
    """How long attempts which ended by themselves held their slots.

    From the assignment until the server learned of the end, as the next in line waits for the launch and the news too.
    """
    since = timezone.now() - timedelta(days=settings.FORECAST_HISTORY_DAYS)
    rows = (
        Allocation.objects.filter(
            state=AllocationState.TERMINATED,
            exit_reason=Reason.COMPLETED,
            ended_at__gt=since,
            started_at__isnull=False,
        )
        .order_by("-ended_at")
        .annotate(held=Least("settled_at", F("ended_at") + NEWS_AT_MOST) - F("assigned_at"))
        .values_list(
            "task__job_id", "task__job__owner_id", "task__job__kind", "task__job__name", "task__slots", "held"
        )[:MOST_ATTEMPTS]
    )
    past = PastRuns()
    for job_id, owner_id, kind, name, slots, held in reversed(list(rows)):
        past.add(str(job_id), Work(owner_id, kind, name, slots), held.total_seconds())
    return past
