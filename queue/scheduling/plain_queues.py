"""Two queues to compare with, over the same hosts: first come, first served, and the same with EASY backfilling.

EASY (D. Lifka, 1995): the first that does not fit gets a reservation at the earliest time that it can start; those
behind it start only if they do not delay it. Here it knows every run time in advance where the trace has no
estimates, which no real queue does. Nothing is ever stopped.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduling.slot_use import Run
from scheduling.traces import TraceJob

#: waiting jobs that are looked at for backfilling (Slurm's `bf_max_job_test`)
DEEPEST = 500


@dataclass(slots=True)
class PlainQueue:
    """`live` runs a trace. `backfills`: with EASY backfilling."""

    hosts: int
    slots: int
    backfills: bool = False
    _free: list[int] = field(default_factory=list)
    _running: dict[int, tuple[Run, TraceJob]] = field(default_factory=dict)
    _ends: list[tuple[float, int]] = field(default_factory=list)

    def live(self, jobs: Sequence[TraceJob]) -> list[Run]:
        """The runs of all jobs that fit on the hosts at all; `jobs`: the oldest first."""
        self._free = [self.slots] * self.hosts
        empty = tuple(self._free)
        come = [job for job in jobs if self._places(job.slots, empty)]
        come.reverse()
        waiting: list[TraceJob] = []
        runs: list[Run] = []
        while come or self._ends:
            now = min([*(job.submitted_at for job in come[-1:]), *(end for end, _ in self._ends[:1])])
            while self._ends and self._ends[0][0] <= now:
                run, _ = self._running.pop(heapq.heappop(self._ends)[1])
                runs.append(run)
                for host, count in run.hosts.items():
                    self._free[host] += count
            while come and come[-1].submitted_at <= now:
                waiting.append(come.pop())
            self._start_what_may(waiting, now)
        return runs

    def _start_what_may(self, waiting: list[TraceJob], now: float) -> None:
        while waiting and (places := self._places(waiting[0].slots, self._free)):
            self._start(waiting.pop(0), places, now)
        if not (self.backfills and len(waiting) > 1 and any(self._free)):
            return
        at, beside = self._reserved(waiting[0], now)
        for job in waiting[1:DEEPEST]:
            if not any(self._free):
                break
            places = self._places(job.slots, self._free)
            if places and now + _expected(job) > at:
                places = self._places(
                    job.slots, [min(now, later) for now, later in zip(self._free, beside, strict=True)]
                )
                for host, count in (places or {}).items():
                    beside[host] -= count
            if places:
                waiting.remove(job)
                self._start(job, places, now)

    def _reserved(self, job: TraceJob, now: float) -> tuple[float, list[int]]:
        """When the job can start, and the slots that are free beside it on each host from then on."""
        free = list(self._free)
        ends = sorted(
            (max(now, run.start + _expected(of)), number) for number, (run, of) in self._running.items()
        )
        for end, number in ends:
            for host, count in self._running[number][0].hosts.items():
                free[host] += count
            if places := self._places(job.slots, free):
                for host, count in places.items():
                    free[host] -= count
                return end, free
        raise AssertionError("a job that fits on empty hosts starts when all others have ended")

    def _start(self, job: TraceJob, places: dict[int, int], now: float) -> None:
        for host, count in places.items():
            self._free[host] -= count
        self._running[job.number] = Run(job.number, now, now + job.runs, places), job
        heapq.heappush(self._ends, (now + job.runs, job.number))

    def _places(self, slots: int, free: Sequence[int]) -> dict[int, int] | None:
        """The fullest host with space, or whole hosts."""
        if slots <= self.slots:
            best = min((count for count in free if count >= slots), default=None)
            return None if best is None else {free.index(best): slots}
        whole, rest = divmod(slots, self.slots)
        found = [host for host, count in enumerate(free) if count == self.slots][:whole]
        return dict.fromkeys(found, self.slots) if rest == 0 and len(found) == whole else None


def _expected(job: TraceJob) -> float:
    return job.runs if job.asks_time is None else job.asks_time
