"""Deadlines: when a job must start to end in time, what the forecast says of that, and ahead of what it goes.

A pass orders requests by `runs.standing` alone, for starts as for stops. So a deadline acts by giving its job another
position, once its forecast is too late; the job keeps that until it ends, or a user moves it or edits the deadline. It
goes ahead only of work of its own priority and, where a pool has shares, of its own group. It does not pass what a
user has moved, what has the same or an earlier deadline, nor what has waited for `LONGEST_PASSED`: so jobs never pass
each other in turn, and none is passed forever. No job moves to a place before the queue was played with it there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from scheduling import policies
from scheduling.durations import Span
from scheduling.forecast import UNKNOWABLE, Forecast
from scheduling.group_shares import Path, path_of
from scheduling.reasons import NEVER, clock, listed, part_of_job
from scheduling.runs import standing
from scheduling.world import Plan, Request, Snapshot
from trainmaster.quantities import duration

#: so many requests are placed to play the queue with jobs at other places; the next forecast does the rest
MOST_PLAYED = 10_000
#: a play of the queue costs as much as so many requests, however few are placed
LEAST_PLAYED = 100
#: seconds by which a job must start sooner to be worth passing others
LEAST_GAIN = 60.0
#: a waiting task is not passed any more once so many seconds have gone by since its submission
LONGEST_PASSED = 3 * 86400.0

#: (order, tasks): when these start if the queue is served in this order
Play = Callable[[Sequence[str], Sequence[str]], Forecast]


class Outcome(StrEnum):
    """Whether a job will have ended by its deadline."""

    MET = "met"
    AT_RISK = "at_risk"  # it ends too late in part of the futures
    LATE = "late"  # it ends too late in nearly all futures, wherever it may go
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
    snapshot: Snapshot,
    plan: Plan,
    found: Forecast,
    play: Play,
    asked: Collection[str] | None = None,
    late: Collection[str] = (),
) -> Look:
    """What becomes of the deadlines of jobs (`asked`: of these alone) by this plan and its forecast.

    Jobs of which `found` says nothing are left out. `late`: jobs that cannot meet theirs by the last forecast. They
    come last, so that they do not use up the plays of others.
    """
    due: dict[str, list[Request]] = {}
    for request in snapshot.requests:
        if request.deadline is not None and request.slots and (asked is None or request.job_id in asked):
            due.setdefault(request.job_id, []).append(request)
    if not due:
        return Look()
    starts = {start.task_id for start in plan.starts}
    jobs = [_Due(tasks, starts, snapshot.now, tasks[0].job_id in late) for tasks in due.values()]
    judge = _Judge(snapshot, plan, found, play)
    # a later deadline does not pass an earlier one, so those that are judged first keep the places that they get
    for job in sorted(jobs, key=lambda job: (job.was_late, job.deadline, job.latest_start, job.id)):
        judge.judge(job)
    return Look(judge.verdicts, judge.moves)


@dataclass(frozen=True, slots=True)
class _Times:
    """When the last waiting task of a job starts, and when the last of them ends."""

    starts: Span
    ends: Span


class _Due:
    """A job with a deadline. `waiting`: its tasks that neither run nor start with this pass; `ends`: of its others."""

    def __init__(self, tasks: Sequence[Request], starts: set[str], now: float, was_late: bool) -> None:
        one = tasks[0]
        assert one.deadline is not None
        self.id, self.deadline, self.was_late = one.job_id, one.deadline, was_late
        self.was_moved_by_user = one.moved_at is not None
        self.went_ahead = one.usual_position is not None
        self.waiting = [each for each in tasks if each.running is None and each.task_id not in starts]
        self.ends = [each.running.ends for each in tasks if each.running is not None]
        begin = [each.lasts for each in tasks if each.running is None and each.task_id in starts]
        self.ends += [span and (now + span[0], now + span[1]) for span in begin]
        spans = [each.lasts or (inf, inf) for each in self.waiting]
        #: seconds that its longest waiting task runs, at least and at most; infinite if nobody knows
        self.shortest = max((span[0] for span in spans), default=0.0)
        self.longest = max((span[1] for span in spans), default=0.0)
        self.latest_start = -inf if self.longest == inf else self.deadline - self.longest

    def times(self, found: Forecast) -> _Times | None:
        """None if it is not known of each waiting task when it starts."""
        known = [
            (found.spans[one.task_id], one.lasts or (inf, inf))
            for one in self.waiting
            if one.task_id in found.spans
        ]
        if len(known) < len(self.waiting):
            return None
        return _Times(
            (max(start[0] for start, _ in known), max(start[1] for start, _ in known)),
            (
                max(start[0] + runs[0] for start, runs in known),
                max(start[1] + runs[1] for start, runs in known),
            ),
        )

    def meets(self, times: _Times | None) -> bool:
        return times is not None and times.ends[1] <= self.deadline

    def should_meet(self, times: _Times) -> bool:
        """Is it as likely as not?"""
        return (times.ends[0] + times.ends[1]) / 2 <= self.deadline

    def may_meet(self, times: _Times) -> bool:
        return times.ends[0] <= self.deadline


class _Judge:
    def __init__(self, snapshot: Snapshot, plan: Plan, found: Forecast, play: Play) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self.moves: dict[str, Move] = {}
        self._now, self._plan, self._found, self._play = snapshot.now, plan, found, play
        self._snapshot = snapshot
        self._played = 0
        self._has_order = bool(policies.of(snapshot.pool.scheduler).order)
        #: the order of the queue, and in each line the tasks in theirs: with the moves of this look
        self._order = plan.order
        self._lines: dict[tuple[int, Path | None], list[Request]] = {}
        for request in sorted((each for each in snapshot.requests if each.slots), key=standing):
            self._lines.setdefault(self._line_of(request), []).append(request)

    def judge(self, job: _Due) -> None:
        if not job.waiting:
            self._judge_run(job)
        elif lost := [each for each in job.waiting if self._plan.waits[each.task_id].code in NEVER]:
            is_all = len(lost) == len(job.waiting) and not job.ends
            which = "it" if is_all else f"one {part_of_job(lost[0].is_element)}"
            self._say(job, Outcome.LATE, "cannot meet", f"{which} can never start here")
        elif job.longest == inf:
            why = "it has no time limit, and nothing similar has run here yet; max_time would tell"
            self._say(job, Outcome.UNKNOWN, "", why)
        elif self._now + job.shortest > job.deadline:
            self._say(job, Outcome.LATE, "cannot meet", "it has not started", runs=job.shortest)
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
        times = job.times(self._found)
        if times is None:
            self._judge_unknown(job)
        elif job.meets(times):
            self._say(job, Outcome.MET, "meets", "")
        elif self._go_ahead(job, times):
            start, runs = clock(times.starts[1], self._now), duration(round(job.longest))
            self._say(job, Outcome.AT_RISK, "may miss", f"it may start as late as {start} and run for {runs}")
        else:
            start = clock(times.starts[0], self._now)
            why = f"it starts at {start} at the earliest"
            self._say(job, Outcome.LATE, "cannot meet", why, runs=job.shortest)

    def _judge_unknown(self, job: _Due) -> None:
        """Nobody knows when it starts. As long before its latest start as it runs, it no longer waits to see."""
        whys = [why for one in job.waiting if (why := self._found.why_unknown(one.task_id))]
        if not whys:
            return
        self._say(job, Outcome.UNKNOWN, "", whys[0].rstrip("."))
        gains = not any(self._plan.waits[one.task_id].code in UNKNOWABLE for one in job.waiting)
        if (
            gains
            and self._now > job.latest_start - job.longest
            and self._may_play
            and (passed := self._passed(job))
        ):
            there = self._at(job, passed[0])
            if there is None or job.should_meet(there):
                self._go(job, passed, 0)

    def _go_ahead(self, job: _Due, here: _Times) -> bool:
        """Let the job go ahead as far as it needs; whether it can end in time, there or where it is."""
        passed = self._passed(job)
        if not passed:
            return job.may_meet(here)
        if not self._may_play:  # nobody has looked whether it could go ahead: what was said of it stays
            return job.may_meet(here) or not job.was_late
        number, there = self._place(job, passed)
        if there is None:
            return job.may_meet(here)
        sooner = max(old - new for old, new in zip(here.starts, there.starts, strict=True))
        if job.meets(there) or (job.should_meet(there) and sooner >= LEAST_GAIN):
            self._go(job, passed, number)
        return job.may_meet(there) or job.may_meet(here)

    def _place(self, job: _Due, passed: Sequence[Request]) -> tuple[int, _Times | None]:
        """The last place where it ends in time, by its number in `passed`; without any, the first.

        The first try is the place of the last one that starts in time, then the front, then halves.
        """
        spans = self._found.spans
        too_late = len(passed)
        in_time = [
            n for n, one in enumerate(passed) if spans.get(one.task_id, (0, inf))[1] <= job.latest_start
        ]
        if in_time and in_time[-1] > 0:
            too_late = in_time[-1]
            if job.meets(there := self._at(job, passed[too_late])):
                return too_late, there
        best, at_best = 0, self._at(job, passed[0])
        while job.meets(at_best) and too_late - best > 1:
            middle = (best + too_late) // 2
            if job.meets(there := self._at(job, passed[middle])):
                best, at_best = middle, there
            else:
                too_late = middle
        return best, at_best

    @property
    def _may_play(self) -> bool:
        return self._played < MOST_PLAYED

    def _at(self, job: _Due, anchor: Request) -> _Times | None:
        """When it starts and ends right ahead of the anchor."""
        order, tasks = self._ahead(job, anchor), [each.task_id for each in job.waiting]
        self._played += LEAST_PLAYED + order.index(tasks[-1])
        return job.times(self._play(order, tasks))

    def _ahead(self, job: _Due, anchor: Request) -> tuple[str, ...]:
        """The order with the job right ahead of the anchor. Among groups each keeps its turns, and runs come first."""
        has_turns = bool(self._snapshot.pool.shares)
        line = [
            each.task_id
            for each in self._moved(job, anchor)
            if not has_turns or each.task_id in self._plan.waits
        ]
        own, among = iter(line), set(line)
        return tuple(next(own) if task in among else task for task in self._order)

    def _moved(self, job: _Due, anchor: Request) -> list[Request]:
        """The line of the job with all its tasks right ahead of the first task of the anchor's job."""
        line = self._lines[self._line_of(anchor)]
        own = [each for each in line if each.job_id == job.id]
        rest = [each for each in line if each.job_id != job.id]
        place = next(number for number, each in enumerate(rest) if each.job_id == anchor.job_id)
        return [*rest[:place], *own, *rest[place:]]

    def _passed(self, job: _Due) -> list[Request]:
        """The first waiting request of each job that this one may pass, in their order.

        It goes no further than to a job, waiting or running, that it may not pass: that one keeps standing before it.
        """
        if not self._has_order or job.was_moved_by_user:
            return []
        line = self._lines[self._line_of(job.waiting[0])]
        place = next(number for number, each in enumerate(line) if each.job_id == job.id)
        found: dict[str, Request] = {}
        for request in reversed(line[:place]):
            is_due = request.deadline is not None and request.deadline <= job.deadline
            waits = request.task_id in self._plan.waits
            is_old = waits and self._now - request.submitted_at >= LONGEST_PASSED
            if is_due or is_old or request.moved_at is not None:
                break
            if waits:
                found[request.job_id] = request
        return list(found.values())[::-1]

    def _line_of(self, request: Request) -> tuple[int, Path | None]:
        """Among whom it may go ahead: slot work of its priority, and among groups of its path."""
        return request.priority, path_of(request) if self._snapshot.pool.shares else None

    def _go(self, job: _Due, passed: Sequence[Request], number: int) -> None:
        anchor = passed[number]
        labels = tuple(request.label for request in passed[number:])
        self.moves[job.id] = Move(job.id, anchor.job_id, labels)
        self._order, line = self._ahead(job, anchor), self._moved(job, anchor)
        self._lines[self._line_of(anchor)] = line

    def _say(self, job: _Due, outcome: Outcome, verb: str, why: str, runs: float | None = None) -> None:
        """`runs`: seconds; it is late even if it runs for no longer."""
        by = clock(job.deadline, self._now)
        if outcome is Outcome.UNKNOWN:
            text = f"whether it meets its deadline, {by}, is not known: {why}"
        else:
            even = "" if runs is None else f", even if it runs for only {duration(round(runs))}"
            text = f"{verb} its deadline, {by}{even}" + (f": {why}" if why else "")
        if job.went_ahead and job.waiting:
            text += "; it was moved ahead for that"
        latest = None if job.latest_start == -inf or not job.waiting else job.latest_start
        tells = outcome is not Outcome.MET or job.went_ahead
        self.verdicts[job.id] = Verdict(outcome, text, latest, tells)
