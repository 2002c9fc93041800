"""Deadlines: when a job must start to end in time, what the forecast says of that, and ahead of what it goes.

A pass orders requests by `runs.standing` alone, for starts as for stops. So a deadline acts by giving its job another
position, once its forecast is too late; the job keeps that until it ends, or a user moves it or edits the deadline. It
goes ahead only of work of its own priority and, where a pool has shares, of its own group. It does not pass what a
user has moved, nor what has the same or an earlier deadline: so jobs never pass each other in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from math import inf

from scheduling import policies
from scheduling.forecast import Forecast
from scheduling.group_shares import Path, path_of
from scheduling.reasons import NEVER, clock, listed
from scheduling.runs import standing
from scheduling.world import Plan, Request, Snapshot
from trainmaster.quantities import duration

#: so often the queue is played with a job at the front, to see whether it could start in time at all
MOST_PLAYS = 4
#: for so many jobs, those that must start first, it is looked ahead of what they could go
MOST_LOOKS = 100
#: seconds by which a job must start sooner to be worth passing others
LEAST_GAIN = 60.0

#: (order, tasks): when these start if the queue is served in this order
Play = Callable[[Sequence[str], Sequence[str]], Forecast]


class Outcome(StrEnum):
    """Whether a job will have ended by its deadline."""

    MET = "met"
    AT_RISK = "at_risk"  # it starts too late in part of the futures
    LATE = "late"  # it starts too late in nearly all futures, wherever it may go
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of a job's deadline. `latest_start`: when it must start to end in time, None if nobody knows.

    `tells`: whether the sentence is worth adding to the reason why it waits.
    """

    outcome: Outcome
    sentence: str
    latest_start: float | None = None
    tells: bool = True


@dataclass(frozen=True, slots=True)
class Move:
    """A job that goes right ahead of another one. `passes`: labels of those that it passes, the first first."""

    job_id: str
    ahead_of: str
    passes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """By job id."""

    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    moves: Mapping[str, Move] = field(default_factory=dict)

    def foreseen(self, job_id: str) -> str | None:
        """What is said of the deadline of a job before the next pass."""
        verdict, move = self.verdicts.get(job_id), self.moves.get(job_id)
        if verdict is None:
            return None
        return f"{verdict.sentence}; it will go ahead of {listed(move.passes)}" if move else verdict.sentence


def look(
    snapshot: Snapshot, plan: Plan, found: Forecast, play: Play, asked: Collection[str] | None = None
) -> Look:
    """What becomes of the deadlines of jobs (`asked`: of these alone) by this plan and its forecast.

    Jobs of which `found` says nothing are left out.
    """
    due: dict[str, list[Request]] = {}
    for request in snapshot.requests:
        if request.deadline is not None and request.slots and (asked is None or request.job_id in asked):
            due.setdefault(request.job_id, []).append(request)
    if not due:
        return Look()
    starts = {start.task_id for start in plan.starts}
    eyes = _Eyes(snapshot, plan, found, play)
    jobs = [_Due(tasks, starts) for tasks in due.values()]
    for job in sorted(jobs, key=lambda job: (job.latest_start, job.deadline, job.id)):
        eyes.judge(job)
    return Look(eyes.verdicts, eyes.moves)


class _Due:
    """A job with a deadline. `waiting`: its tasks that neither run nor start with this pass."""

    def __init__(self, tasks: Sequence[Request], starts: set[str]) -> None:
        one = tasks[0]
        assert one.deadline is not None
        self.id, self.deadline = one.job_id, one.deadline
        self.was_moved_by_user = one.moved_at is not None
        self.went_ahead = one.usual_position is not None
        self.waiting = [each for each in tasks if each.running is None and each.task_id not in starts]
        self.ends = [each.running.ends for each in tasks if each.running is not None]
        spans = [each.lasts for each in self.waiting]
        #: seconds that its longest waiting task runs; infinite if nobody knows
        self.lasts = max((inf if span is None else span[1] for span in spans), default=0.0)
        self.latest_start = -inf if self.lasts == inf else self.deadline - self.lasts


class _Eyes:
    def __init__(self, snapshot: Snapshot, plan: Plan, found: Forecast, play: Play) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self.moves: dict[str, Move] = {}
        self._now, self._plan, self._found, self._play = snapshot.now, plan, found, play
        self._snapshot = snapshot
        self._looks = self._plays = 0
        self._has_order = bool(policies.of(snapshot.pool.scheduler).order)

    def judge(self, job: _Due) -> None:
        if not job.waiting:
            self._judge_run(job)
        elif any(self._plan.waits[each.task_id].code in NEVER for each in job.waiting):
            self._say(job, Outcome.LATE, "cannot meet", "it can never start here")
        elif job.lasts == inf:
            why = "it has no time limit, and nothing similar has run here yet; max_time would tell"
            self._say(job, Outcome.UNKNOWN, "", why)
        elif self._now > job.latest_start:
            self._say(job, Outcome.LATE, "cannot meet", "it has not started", if_it_runs=True)
        else:
            self._judge_start(job)

    def _judge_run(self, job: _Due) -> None:
        """Only work that runs, or starts now, is left of the job."""
        ends = [span for span in job.ends if span is not None]
        if self._now > job.deadline:
            self._say(job, Outcome.LATE, "missed", "")
        elif not ends or len(ends) < len(job.ends):
            self._say(job, Outcome.UNKNOWN, "", "it runs, and nobody knows how long")
        elif max(span[0] for span in ends) > job.deadline:
            end = clock(max(span[0] for span in ends), self._now)
            self._say(job, Outcome.LATE, "cannot meet", f"it should end at {end} at the earliest")
        elif max(span[1] for span in ends) > job.deadline:
            end = clock(max(span[1] for span in ends), self._now)
            self._say(job, Outcome.AT_RISK, "may miss", f"it may end as late as {end}")
        else:
            self._say(job, Outcome.MET, "meets", "")

    def _judge_start(self, job: _Due) -> None:
        span = _last(self._found, job.waiting)
        if span is None:
            whys = [
                self._found.unknown[one.task_id] for one in job.waiting if one.task_id in self._found.unknown
            ]
            if not whys:
                return
            self._say(job, Outcome.UNKNOWN, "", whys[0].rstrip("."))
            # as long before its latest start as it runs, it no longer waits for somebody to know
            is_short = self._now > job.latest_start - job.lasts
            self._looks += is_short
            if is_short and self._looks <= MOST_LOOKS and (passed := self._passed(job)):
                self._go(job, passed, 0)
            return
        if span[1] <= job.latest_start:
            self._say(job, Outcome.MET, "meets", "")
            return
        if self._go_ahead(job, span):
            start, runs = clock(span[1], self._now), duration(round(job.lasts))
            self._say(job, Outcome.AT_RISK, "may miss", f"it may start as late as {start} and run for {runs}")
        else:
            start = clock(span[0], self._now)
            self._say(
                job, Outcome.LATE, "cannot meet", f"it starts at {start} at the earliest", if_it_runs=True
            )

    def _go_ahead(self, job: _Due, span: tuple[float, float]) -> bool:
        """Let the job go ahead as far as it needs; whether it can start in time, there or where it is."""
        can_wait = span[0] <= job.latest_start
        self._looks += 1
        if self._looks > MOST_LOOKS:
            return True  # nobody has looked whether it could go ahead
        passed = self._passed(job)
        for number in range(len(passed) - 1, -1, -1):
            turn = self._found.spans.get(passed[number].task_id)
            if turn is not None and turn[1] <= job.latest_start:
                self._go(job, passed, number)
                return True
        if not passed or self._plays >= MOST_PLAYS:
            return can_wait or bool(passed)
        self._plays += 1
        tasks = [each.task_id for each in job.waiting]
        front = _last(self._play(_ahead(self._plan.order, tasks, passed[0].task_id), tasks), job.waiting)
        if front is None or front[0] > job.latest_start or front[1] > span[1] - LEAST_GAIN:
            return can_wait
        self._go(job, passed, 0)
        return True

    def _passed(self, job: _Due) -> list[Request]:
        """The first waiting request of each job that this one may pass, in their order.

        It goes no further than to a job, waiting or running, that it may not pass: that one keeps standing before it.
        """
        if not self._has_order or job.was_moved_by_user:
            return []
        own = job.waiting[0]
        line = self._lines[self._line_of(own)]
        found: dict[str, Request] = {}
        for number in range(self._places[own.task_id] - 1, -1, -1):
            request = line[number]
            if request.job_id == job.id:
                continue
            is_due = request.deadline is not None and request.deadline <= job.deadline
            if is_due or request.moved_at is not None or request.job_id in self.moves:
                break
            if request.task_id in self._plan.waits:
                found[request.job_id] = request
        return list(found.values())[::-1]

    def _line_of(self, request: Request) -> tuple[int, Path | None]:
        return request.priority, path_of(request) if self._snapshot.pool.shares else None

    @cached_property
    def _lines(self) -> dict[tuple[int, Path | None], list[Request]]:
        """Slot work of one priority, and among groups of one path, in the order of the one key."""
        lines: dict[tuple[int, Path | None], list[Request]] = {}
        for request in sorted((each for each in self._snapshot.requests if each.slots), key=standing):
            lines.setdefault(self._line_of(request), []).append(request)
        return lines

    @cached_property
    def _places(self) -> dict[str, int]:
        """Task id -> its number in its line."""
        return {each.task_id: number for line in self._lines.values() for number, each in enumerate(line)}

    def _go(self, job: _Due, passed: Sequence[Request], number: int) -> None:
        labels = tuple(request.label for request in passed[number:])
        self.moves[job.id] = Move(job.id, passed[number].job_id, labels)

    def _say(self, job: _Due, outcome: Outcome, verb: str, why: str, if_it_runs: bool = False) -> None:
        """`if_it_runs`: it is late if it runs for its longest time."""
        by = clock(job.deadline, self._now)
        if outcome is Outcome.UNKNOWN:
            text = f"whether it meets its deadline, {by}, is not known: {why}"
        else:
            runs = f", if it runs for {duration(round(job.lasts))}" if if_it_runs else ""
            text = f"{verb} its deadline, {by}{runs}" + (f": {why}" if why else "")
        if job.went_ahead and job.waiting:
            text += "; it was moved ahead for that"
        latest = None if job.latest_start == -inf or not job.waiting else job.latest_start
        tells = outcome is not Outcome.MET or job.went_ahead
        self.verdicts[job.id] = Verdict(outcome, text, latest, tells)


def _last(found: Forecast, waiting: Sequence[Request]) -> tuple[float, float] | None:
    """When the last of these starts; None if that is not known of each."""
    spans = [found.spans[one.task_id] for one in waiting if one.task_id in found.spans]
    return max(spans, key=lambda span: span[1]) if len(spans) == len(waiting) else None


def _ahead(order: Sequence[str], tasks: Sequence[str], first: str) -> tuple[str, ...]:
    """The order with `tasks` right ahead of `first`."""
    moving = set(tasks)
    rest = [task for task in order if task not in moving]
    place = rest.index(first)
    return (*rest[:place], *tasks, *rest[place:])
