"""A job trace run through `decide` in virtual time, as the dispatcher would: a pass at every arrival and every end."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random

from scheduling.calibration import Guess, place
from scheduling.durations import ends_of, lasts_of
from scheduling.forecast import forecast
from scheduling.past_runs import PastRuns, Work
from scheduling.plan import applied, decide, ended
from scheduling.reasons import NEVER
from scheduling.traces import TraceJob
from scheduling.world import HostView, Plan, PoolView, Request, SlotView, Snapshot

#: what was submitted within so many seconds is known to forecasts
RECENT = 86400.0
ARRIVES, ENDS, HAS_STOPPED = range(3)


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


@dataclass(frozen=True, slots=True)
class Promise:
    """A forecast that was given. `first`: the first one for this task. `guess`: see `calibration`."""

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
        self._snapshot = Snapshot(0.0, pool, views, ())
        self._habits = habits
        self._forecast_every = forecast_every
        self._events: list[tuple[float, int, str]] = []
        self._past = PastRuns()
        self._arrivals = 0
        self._recent: list[Request] = []
        self._promised: dict[str, Promise | None] = {}
        self._places: list[float] = []
        self._capacity = hosts * slots

    def live(self, trace: Iterable[TraceJob]) -> Outcome:
        """Run the whole trace."""
        jobs = {f"job {job.number}": self._job(job) for job in trace}
        self._out = out = Outcome(jobs, self._capacity)
        self._events = [(job.trace.submitted_at, ARRIVES, name) for name, job in jobs.items()]
        heapq.heapify(self._events)
        first = self._events[0][0] if self._events else 0.0
        last = max((job.trace.submitted_at for job in jobs.values()), default=0.0)
        out.seconds = last - first
        now = first
        while self._events:
            held, idle = self._held(), self._idle_while_fits()
            time = self._events[0][0]
            within = max(0.0, min(time, last) - now)
            out.busy += held * within
            out.idle_while_fits += idle * within
            now = time
            self._pass(now, self._happens(now))
        return out

    def _job(self, job: TraceJob) -> VirtualJob:
        random = Random(job.number)
        habits = self._habits
        return VirtualJob(
            job,
            preemptible=random.random() < habits.preemptible,
            saves=random.random() < habits.saving,
            reports=random.random() < habits.reporting,
            bend=random.uniform(0.8, 1.25),
        )

    def _happens(self, now: float) -> list[str]:
        """All events of this moment; the jobs that arrived."""
        arrived: list[str] = []
        gone: list[str] = []
        stopped: list[str] = []
        running = {r.running.allocation_id: r for r in self._snapshot.requests if r.running is not None}
        while self._events and self._events[0][0] <= now:
            _, kind, what = heapq.heappop(self._events)
            if kind == ARRIVES:
                arrived.append(what)
            elif what in running:
                request = running.pop(what)
                (gone if kind == ENDS else stopped).append(what)
                self._over(request, now, kind == ENDS)
        if gone:
            self._snapshot = ended(self._snapshot, gone, False, now)
        if stopped:
            self._snapshot = ended(self._snapshot, stopped, True, now)
        new = [self._request(name, now) for name in arrived]
        self._recent += new
        requests = (*self._snapshot.requests, *new)
        self._snapshot = replace(self._snapshot, now=now, requests=requests)
        return arrived

    def _over(self, request: Request, now: float, for_good: bool) -> None:
        job, running = self._out.jobs[request.task_id], request.running
        assert running is not None
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
        )

    def _pass(self, now: float, arrived: list[str]) -> None:
        self._out.passes += 1
        known = tuple(self._known(request, now) for request in self._snapshot.requests)
        self._snapshot = replace(self._snapshot, requests=known)
        plan = decide(self._snapshot)
        for name in arrived:
            reason = plan.waits.get(name)
            if reason is not None and reason.code in NEVER:
                self._out.jobs[name].never = True
        if any(name in plan.waits and not self._out.jobs[name].never for name in arrived):
            self._arrivals += 1
            if self._forecast_every and self._arrivals % self._forecast_every == 0:
                self._promise(plan, now)
        self._snapshot = applied(self._snapshot, plan)
        self._follow(plan, now)
        never = {name for name in arrived if self._out.jobs[name].never}
        if never:
            left = tuple(r for r in self._snapshot.requests if r.task_id not in never)
            self._snapshot = replace(self._snapshot, requests=left)

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

    def _promise(self, plan: Plan, now: float) -> None:
        self._recent = [request for request in self._recent if request.submitted_at > now - RECENT]
        recent = [replace(one, lasts=self._known(one, now).lasts) for one in self._recent]
        found = forecast(self._snapshot, plan, recent, places=self._places)
        for task, span in found.spans.items():
            if self._out.jobs[task].first_start is None:
                promise = Promise(task, now, span, found.guesses[task], task not in self._promised)
                self._out.promises.append(promise)
                self._promised.setdefault(task, promise)
        for task in found.unknown:
            self._out.unknown += task not in self._promised
            self._promised.setdefault(task, None)

    def _learn(self, promise: Promise | None, now: float) -> None:
        if promise is not None:
            self._places.append(place(promise.guess, now - promise.at))

    def _known(self, request: Request, now: float) -> Request:
        """The request with what the dispatcher could know of its duration now."""
        job = self._out.jobs[request.task_id]
        like = self._past.like(request.job_id, _work(job.trace))
        running = request.running
        if running is None:
            lasts = lasts_of(job.trace.asks_time, like)
            if lasts is not None and job.done:
                lasts = (max(1.0, lasts[0] - job.done), max(1.0, lasts[1] - job.done))
            return replace(request, lasts=lasts, max_time=job.trace.asks_time)
        began = running.started_at - job.done
        progress = ((now - began) / job.trace.runs) ** job.bend if job.reports else None
        ends = ends_of(began, now, progress, job.trace.asks_time, like)
        return replace(request, running=replace(running, ends=ends))

    def _held(self) -> int:
        return sum(slot.held_by is not None for host in self._snapshot.hosts for slot in host.slots)

    def _idle_while_fits(self) -> int:
        """Free slots that waiting work could take at this moment, in the order of the queue."""
        free = {host.id: sum(slot.held_by is None for slot in host.slots) for host in self._snapshot.hosts}
        idle = 0
        if not any(free.values()):
            return 0
        size = len(self._snapshot.hosts[0].slots)
        for request in self._snapshot.requests:
            if request.running is None:
                whole, rest = divmod(request.slots, size)
                fits = [(h, request.slots) for h, count in free.items() if count >= request.slots][:1]
                if not fits and rest == 0 and whole > 1:
                    fits = [(h, size) for h, count in free.items() if count == size][:whole]
                    fits = fits if len(fits) == whole else []
                for host, count in fits:
                    free[host] -= count
                    idle += count
        return idle


def _work(job: TraceJob) -> Work:
    return Work(job.user, "", job.program, job.slots)
