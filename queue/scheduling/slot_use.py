"""How slots were used while a trace was replayed, whoever scheduled it: from what ran where and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduling.traces import TraceJob


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt of a job. `hosts`: number of the host -> slots held there. Times are seconds of the trace."""

    job: int
    start: float
    end: float
    hosts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Use:
    """Slot-seconds until the last submission, as the draining tail says little. `seconds`: how long that is.

    `idle_while_fits`: slots that were idle although waiting work would have fitted on them.
    """

    seconds: float
    busy: float
    idle_while_fits: float


def used(jobs: Sequence[TraceJob], runs: Iterable[Run], hosts: int, slots: int) -> Use:
    """What so many equal hosts did. Jobs that never ran do not count as waiting."""
    of = {job.number: job for job in jobs}
    first = min((job.submitted_at for job in jobs), default=0.0)
    last = max((job.submitted_at for job in jobs), default=0.0)
    changes: list[tuple[float, int, Run | TraceJob]] = []
    ran: dict[int, float] = {}
    for run in runs:
        changes += [(run.end, 0, run), (run.start, 2, run)]
        ran[run.job] = max(run.end, ran.get(run.job, run.end))
    changes += [(of[number].submitted_at, 1, of[number]) for number in ran]
    changes.sort(key=lambda change: change[:2])
    free = [slots] * hosts
    waiting: Counter[int] = Counter()
    busy = idle = 0.0
    now = first
    for at, kind, what in changes:
        if (within := min(at, last) - now) > 0:
            busy += (hosts * slots - sum(free)) * within
            idle += _fits(free, waiting, slots) * within
            now = at
        if isinstance(what, TraceJob):
            waiting[what.slots] += 1
            continue
        over = kind == 0
        for host, count in what.hosts.items():
            free[host] += count if over else -count
        waits_again = over and what.end < ran[what.job]
        size = of[what.job].slots
        waiting[size] += (1 if waits_again else 0) if over else -1
    return Use(last - first, busy, idle)


def _fits(free: Sequence[int], waiting: Mapping[int, int], size: int) -> int:
    """Free slots that waiting work could take at this moment, the largest first."""
    left = sorted(count for count in free if count)
    idle = 0
    for slots in sorted((slots for slots, count in waiting.items() if count > 0), reverse=True):
        for _ in range(waiting[slots]):
            taken = _take(left, slots, size)
            if not taken:
                break
            idle += taken
    return idle


def _take(left: list[int], slots: int, size: int) -> int:
    """Take the slots from the hosts' free ones (sorted): of the fullest host with space, or of whole hosts."""
    whole, rest = divmod(slots, size)
    if rest == 0 and whole > 1:
        if left.count(size) < whole:
            return 0
        del left[-whole:]
        return slots
    for index, count in enumerate(left):
        if count >= slots:
            del left[index]
            if count > slots:
                left.append(count - slots)
                left.sort()
            return slots
    return 0
