"""A job trace run through `decide` in virtual time, as the dispatcher would: a pass at every arrival and every end."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random

from scheduling import policies
from scheduling.calibration import Guess, Learned, still_waiting
from scheduling.durations import ends_of, lasts_of, tenths_of
from scheduling.forecast import forecast
from scheduling.past_runs import PastRuns, Work
from scheduling.plan import applied, decide, ended
from scheduling.reasons import NEVER
from scheduling.slot_use import Run, used
from scheduling.traces import TraceJob
from scheduling.world import HostView, Plan, PoolView, Request, SlotView, Snapshot

#: what was submitted within so many seconds is known to forecasts
RECENT = 86400.0
ARRIVES, ENDS, HAS_STOPPED = range(3)
_MOST_RESERVATIONS = PoolView().max_reservations


@dataclass(frozen=True, slots=True)
class Habits:
    """What a trace does not say about its jobs. Shares are of all jobs, drawn by the job's number; times in seconds.

    `preemptible`: may be stopped. `saving`: of these, save when asked to stop; the others go back to what they saved
    every `save_every`. `reporting`: say how far they are. `stopping`: from the request until the slots are free.
    """

    preemptible: float = 0.9
    saving: float = 0.7
    save_every: float = 1800.0
    reporting: float = 0.5
    stopping: float = 30.0


@dataclass(slots=True)
class VirtualJob:
    """A job of the trace and how it fared. Times are seconds of the trace."""

    trace: TraceJob
    preemptible: bool
    saves: bool
    reports: bool
    #: how the reported progress runs ahead of the true one (below 1) or behind it
    bend: float
    first_start: float | None = None
    ended_at: float | None = None
    never: bool = False
    done: float = 0.0
    stops: int = 0
    redone: float = 0.0


def habits_of(job: TraceJob, habits: Habits) -> VirtualJob:
    """The job with what is drawn for it."""
    random = Random(job.number)
    return VirtualJob(
        job,
        preemptible=random.random() < habits.preemptible,
        saves=random.random() < habits.saving,
        reports=random.random() < habits.reporting,
        bend=random.uniform(0.8, 1.25),
    )


@dataclass(frozen=True, slots=True)
class Promise:
    """A forecast that was given. `first`: when the task arrived. `guess`: see `calibration`."""

    task_id: str
    at: float
    span: tuple[float, float]
    guess: Guess
    first: bool


@dataclass(slots=True)
class Outcome:
    """What became of the trace. Slot time in slot-seconds, up to the last submission: the draining tail says little."""

    jobs: dict[str, VirtualJob]
    capacity: int
    promises: list[Promise] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    #: first forecasts that were asked for and could not be given
    unknown: int = 0
    passes: int = 0
    seconds: float = 0.0
    busy: float = 0.0
    #: slots that stood idle although waiting work would have fitted on them
    idle_while_fits: float = 0.0


class VirtualPool:
    """A pool of equal hosts that lives through a trace."""

    def __init__(
        self, hosts: int, slots: int, pool: PoolView, habits: Habits, forecast_every: int = 1
    ) -> None:
        """`forecast_every`: forecasts are made at every so manieth arrival that waits; 0: never."""
        views = tuple(
            HostView(f"h{n}", f"host-{n}", tuple(SlotView(n * slots + i, i) for i in range(slots)))
            for n in range(hosts)
        )
        self._snapshot = Snapshot(0.0, pool, views, ())  # its requests are what runs
        self._waiting = _Waiting(hosts * slots if pool.scheduler == policies.DEFAULT else None)
        self._habits = habits
        self._forecast_every = forecast_every
        self._events: list[tuple[float, int, str]] = []
        self._past = PastRuns()
        self._arrivals = 0
        self._recent: list[Request] = []
        self._promised: dict[str, Promise | None] = {}
        self._learned = Learned()
        self._capacity = hosts * slots

    def live(self, trace: Iterable[TraceJob]) -> Outcome:
        """Run the whole trace."""
        jobs = {f"job {job.number}": habits_of(job, self._habits) for job in trace}
        self._out = out = Outcome(jobs, self._capacity)
        self._events = [(job.trace.submitted_at, ARRIVES, name) for name, job in jobs.items()]
        heapq.heapify(self._events)
        while self._events:
            now = self._events[0][0]
            self._pass(now, self._happens(now))
        use = used([job.trace for job in jobs.values()], out.runs, *self._size())
        out.seconds, out.busy, out.idle_while_fits = use.seconds, use.busy, use.idle_while_fits
        return out

    def _size(self) -> tuple[int, int]:
        """Hosts, and slots of each."""
        return len(self._snapshot.hosts), len(self._snapshot.hosts[0].slots)

    def _happens(self, now: float) -> list[str]:
        """All events of this moment; the jobs that arrived."""
        arrived: list[str] = []
        over: list[str] = []
        running = {r.running.allocation_id: r for r in self._snapshot.requests if r.running is not None}
        while self._events and self._events[0][0] <= now:
            _, kind, what = heapq.heappop(self._events)
            if kind == ARRIVES:
                arrived.append(what)
            elif what in running:
                request = running.pop(what)
                over.append(what)
                self._over(request, now, kind == ENDS)
                if kind != ENDS:
                    self._waiting.add(replace(request, running=None))
        self._snapshot = ended(self._snapshot, over, False, now) if over else replace(self._snapshot, now=now)
        for name in arrived:
            request = self._request(name, now)
            self._recent.append(request)
            self._waiting.add(request)
        return arrived

    def _over(self, request: Request, now: float, for_good: bool) -> None:
        job, running = self._out.jobs[request.task_id], request.running
        assert running is not None
        hosts = {int(host[1:]): len(slots) for host, slots in running.slots.items()}
        self._out.runs.append(Run(job.trace.number, running.started_at, now, hosts))
        if for_good:
            job.ended_at = now
            self._past.add(request.job_id, _work(job.trace), job.trace.runs)
            return
        ran = now - running.started_at
        kept = ran if job.saves else ran // self._habits.save_every * self._habits.save_every
        job.done += kept
        job.redone += ran - kept
        job.stops += 1

    def _request(self, name: str, now: float) -> Request:
        job = self._out.jobs[name]
        return Request(
            name,
            name,
            name,
            job.trace.slots,
            priority=job.trace.priority,
            position=now + job.trace.number * 1e-6,
            submitted_at=now,
            preemptible=job.preemptible,
            max_time=job.trace.asks_time,
            groups=(job.trace.group,) if job.trace.group else (),
        )

    def _pass(self, now: float, arrived: list[str]) -> None:
        self._out.passes += 1
        first = self._waiting.first()
        if any(request.slots > 1 for request in first):  # only reservations go by the ends of runs
            self._look(now)
        runs = self._snapshot.requests
        snapshot = replace(self._snapshot, requests=(*runs, *first))
        plan = decide(snapshot)
        for name in arrived:
            reason = plan.waits.get(name)
            if reason is not None and reason.code in NEVER:
                self._out.jobs[name].never = True
                self._waiting.remove(self._request(name, now))
        starts = {start.task_id for start in plan.starts}
        waits = [name for name in arrived if name not in starts and not self._out.jobs[name].never]
        self._count(waits, now)
        if plan.starts or plan.releases:
            after = applied(snapshot, plan)
            running = tuple(request for request in after.requests if request.running is not None)
            self._snapshot = replace(after, requests=running)
        for request in first:
            if request.task_id in starts:
                self._waiting.remove(request)
        self._follow(plan, now)

    def _count(self, waits: list[str], now: float) -> None:
        """Forecast at every so manieth arrival that waits."""
        self._arrivals += bool(waits)
        if waits and self._forecast_every and self._arrivals % self._forecast_every == 0:
            self._look(now)
            waiting = [self._known(request, now) for request in self._waiting.all()]
            snapshot = replace(self._snapshot, requests=(*self._snapshot.requests, *waiting))
            self._promise(snapshot, decide(snapshot), set(waits))

    def _look(self, now: float) -> None:
        """Bring up to date when runs are expected to end."""
        known = tuple(self._known(request, now) for request in self._snapshot.requests)
        self._snapshot = replace(self._snapshot, requests=known)

    def _follow(self, plan: Plan, now: float) -> None:
        placed = {r.task_id: r.running for r in self._snapshot.requests if r.running is not None}
        for start in plan.starts:
            job, running = self._out.jobs[start.task_id], placed[start.task_id]
            if job.first_start is None:
                job.first_start = now
                self._learn(self._promised.get(start.task_id), now)
            heapq.heappush(self._events, (now + job.trace.runs - job.done, ENDS, running.allocation_id))
        for release in plan.releases:
            heapq.heappush(self._events, (now + self._habits.stopping, HAS_STOPPED, release.allocation_id))

    def _promise(self, snapshot: Snapshot, plan: Plan, arrived: set[str]) -> None:
        """`arrived`: those that came just now; what came before and has no forecast yet gets one late."""
        now = snapshot.now
        self._recent = [request for request in self._recent if request.submitted_at > now - RECENT]
        recent = [replace(one, lasts=self._known(one, now).lasts) for one in self._recent]
        live = [
            one for one in self._promised.values() if one and self._out.jobs[one.task_id].first_start is None
        ]
        late = still_waiting([(one.at, one.guess) for one in live], now)
        found = forecast(snapshot, plan, recent, places=self._learned.places, late=late)
        for task, span in found.spans.items():
            if self._out.jobs[task].first_start is None:
                first = task in arrived and task not in self._promised
                promise = Promise(task, now, span, found.guesses[task], first)
                self._out.promises.append(promise)
                self._promised.setdefault(task, promise)
        for task in (*found.unknown, *found.behind):
            self._out.unknown += task in arrived and task not in self._promised
            self._promised.setdefault(task, None)

    def _learn(self, promise: Promise | None, now: float) -> None:
        if promise is not None:
            self._learned = self._learned.started(promise.at, promise.guess, now - promise.at)

    def _known(self, request: Request, now: float) -> Request:
        """The request with what the dispatcher could know of its duration now."""
        job = self._out.jobs[request.task_id]
        like = self._past.like(request.job_id, _work(job.trace))
        running = request.running
        if running is None:
            lasts, tenths = lasts_of(job.trace.asks_time, like), tenths_of(job.trace.asks_time, like)
            if lasts is not None and job.done:
                lasts = (max(1.0, lasts[0] - job.done), max(1.0, lasts[1] - job.done))
                tenths = tuple(max(1.0, each - job.done) for each in tenths)
            return replace(request, lasts=lasts, tenths=tenths)
        began = running.started_at - job.done
        progress = ((now - began) / job.trace.runs) ** job.bend if job.reports else None
        ends = ends_of(began, now, progress, job.trace.asks_time, like)
        return replace(request, running=replace(running, ends=ends))


class _Waiting:
    """Requests that wait, by shape and priority: of equal ones no pass starts more than the pool has room for."""

    def __init__(self, capacity: int | None) -> None:
        """`capacity`: slots of the pool; None where the order of the queue follows from all that waits."""
        self._capacity = capacity
        self._kinds: dict[tuple[int, int, bool], list[tuple[float, str, Request]]] = {}

    def add(self, request: Request) -> None:
        insort(self._kinds.setdefault(_kind(request), []), (request.position, request.task_id, request))

    def remove(self, request: Request) -> None:
        kind = self._kinds[_kind(request)]
        del kind[bisect_left(kind, (request.position, request.task_id))]

    def first(self) -> list[Request]:
        """Those that may start in a pass, or for which hosts may be kept."""
        if self._capacity is None:
            return self.all()
        found = []
        for (_, slots, _), kind in self._kinds.items():
            most = self._capacity // slots + 1 + (_MOST_RESERVATIONS if slots > 1 else 0)
            found += [request for _, _, request in kind[:most]]
        return found

    def all(self) -> list[Request]:
        return [request for kind in self._kinds.values() for _, _, request in kind]


def _kind(request: Request) -> tuple[int, int, bool]:
    return request.priority, request.slots, request.preemptible


def _work(job: TraceJob) -> Work:
    return Work(job.user, "", job.program, job.slots)
