"""What the time of held slots went to: from the facts of one attempt to parts that add up to exactly that time. Pure.

Steps, times and seconds of checkpoints come from training code, so any of them may be wrong: whatever they say, the
parts of a member follow each other without a gap from the assignment of its slots to its end. All times are whole
microseconds since the epoch, so that no sum is rounded.

Steps count as new when no earlier attempt has reached them, and otherwise as done again because of the end of the
latest attempt that had. So a part of an ended attempt never changes because of what a later one does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from jobs.step_facts import SECOND, Fact, Steps

DAY = 86_400 * SECOND

PROGRESS = "progress"
GANG = "gang"
START = "start"
CHECKPOINT = "checkpoint"
#: followed by the reason of the end after which the steps were done again: `again:preempted`
AGAIN = "again:"
STALLED = "stalled"
SLOW = "slow"
IDLE = "idle"
END = "end"
NOT_TOLD = "not_told"

#: Work that stands idle or waits for a slow rank would otherwise count as one of these.
_STEPS = (PROGRESS, AGAIN)
_KEPT_WHEN_IDLE = (START, GANG, STALLED)


class Span(NamedTuple):
    begin: int
    end: int


class Part(NamedTuple):
    begin: int
    end: int
    what: str


class Reached(NamedTuple):
    """An earlier attempt had come to `step` when it ended, for the reason `stop`."""

    step: int
    stop: str


class Held(NamedTuple):
    """The slots of a member. `started_at`: its entrypoint began, None: it did not. `idle`: each of one idle slot."""

    begin: int
    end: int
    started_at: int | None
    slots: int
    idle: Sequence[Sequence[Span]] = ()


@dataclass(frozen=True)
class Attempt:
    """The facts of one attempt.

    `gang_started_at`: when the last of its members began, None: one of them never did. `end` is now while it runs.
    `reached`: by earlier attempts, in their order. `slow_share`: what part of the time of steps a slow rank has cost.
    """

    gang_started_at: int | None
    end: int
    begun_step: int = 0
    steps: Steps = field(default_factory=Steps)
    saves: Sequence[Span] = ()
    reached: Sequence[Reached] = ()
    runs: bool = False
    stop_at: int | None = None
    slow_share: float = 0.0


def seconds_by_day(attempt: Attempt, members: Iterable[Held]) -> list[dict[int, Counter[str]]]:
    """Slot-microseconds of each member, by day since the epoch (UTC) and by what they went to."""
    work = _work(attempt)
    return [_by_day(attempt, _parts(attempt, work, member), member) for member in members]


def not_told(member: Held) -> dict[int, Counter[str]]:
    """The same of a member of whose attempt nothing is known any more."""
    return _by_day(Attempt(None, member.end), [Part(member.begin, member.end, NOT_TOLD)], member)


def _parts(attempt: Attempt, work: Sequence[Part], member: Held) -> list[Part]:
    """Of one slot of the member, all of its time."""
    line = _Line(member.begin, max(member.begin, member.end))
    line.until(line.end if member.started_at is None else member.started_at, START)
    line.until(line.end if attempt.gang_started_at is None else attempt.gang_started_at, GANG)
    for part in work:
        line.until(part.end, part.what)
    line.until(line.end, END)
    return line.parts


def _work(attempt: Attempt) -> list[Part]:
    """What the attempt did from the start of its gang on, the same for all its slots."""
    if attempt.gang_started_at is None:
        return []
    line = _Line(attempt.gang_started_at, max(attempt.gang_started_at, attempt.end))
    steps, again = attempt.steps, _Again(attempt.reached)
    if not steps.facts:
        line.until(line.end, START if attempt.reached else NOT_TOLD)
        return line.parts
    _until_first_report(line, attempt.begun_step, steps, again)
    for before, after in pairwise(steps.facts):
        _between_reports(line, steps, before, after, again)
    _after_last_report(line, attempt, steps, again)
    return _with_saves(line, attempt.saves)


class _Line:
    """Parts that follow each other. A time before the last one, or behind the end, is taken for that."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.at, self.end = begin, begin, end
        self.parts: list[Part] = []

    def clamped(self, at: int) -> int:
        return min(max(at, self.begin), self.end)

    def until(self, at: int, what: str) -> None:
        at = min(at, self.end)
        if at > self.at:
            self.parts.append(Part(self.at, at, what))
            self.at = at


class _Again:
    """Which steps were done before, and after which stop they are done again."""

    def __init__(self, reached: Sequence[Reached]) -> None:
        #: rising: steps up to `step` were last reached by the attempt that ended for `stop`
        self._borders: list[Reached] = []
        for one in reversed(reached):
            if not self._borders or one.step > self._borders[-1].step:
                self._borders.append(one)

    def of(self, step: int) -> str:
        for border in self._borders:
            if step <= border.step:
                return AGAIN + border.stop
        return PROGRESS

    def advance(self, line: _Line, before: Fact, after: Fact) -> None:
        """The time from one fact to the next; steps in between are taken to last equally long."""
        time, steps = after.at - before.at, after.step - before.step
        for border in self._borders:
            if before.step < border.step < after.step:
                line.until(before.at + time * (border.step - before.step) // steps, AGAIN + border.stop)
        line.until(after.at, self.of(after.step))


def _until_first_report(line: _Line, begun_step: int, steps: Steps, again: _Again) -> None:
    """The first report comes after the steps that it is about: they are taken to last as long as the later ones."""
    first = steps.facts[0]
    if first.step <= begun_step:
        line.until(first.at, START)
    elif steps.pace is None:
        line.until(first.at, NOT_TOLD)
    else:
        _worked(line, START, steps.pace, Fact(line.begin, begun_step), first, again)


def _between_reports(line: _Line, steps: Steps, before: Fact, after: Fact, again: _Again) -> None:
    """A stall stays one when it is over; it ends when the steps after it began."""
    if steps.gap is None or steps.pace is None or not steps.is_long(after.at - before.at):
        again.advance(line, before, after)
    else:
        _worked(line, STALLED, steps.pace, before, after, again)


def _worked(line: _Line, before_it: str, pace: float, before: Fact, after: Fact, again: _Again) -> None:
    """The last steps before a report, at the usual pace, and what was before them."""
    worked = int(min(float(after.at - before.at), (after.step - before.step) * pace))
    line.until(after.at - worked, before_it)
    again.advance(line, Fact(after.at - worked, before.step), after)


def _after_last_report(line: _Line, attempt: Attempt, steps: Steps, again: _Again) -> None:
    last = steps.facts[-1]
    told = line.clamped(attempt.stop_at) if attempt.stop_at is not None else line.end
    if steps.is_long(told - last.at) and (attempt.runs or attempt.stop_at is not None):
        line.until(told, STALLED if steps.gap is not None else NOT_TOLD)
    elif attempt.runs and attempt.stop_at is None:
        line.until(line.end, again.of(last.step + 1))
    line.until(line.end, END)


def _with_saves(line: _Line, saves: Iterable[Span]) -> list[Part]:
    """The same parts, with the time in which the attempt saved as one of its own."""
    spans = _joined(Span(line.clamped(begin), line.clamped(end)) for begin, end in saves)
    found = _Line(line.begin, line.end)
    rest = iter(spans)
    span = next(rest, None)
    for part in line.parts:
        while span is not None and span.begin < part.end:
            found.until(span.begin, part.what)
            found.until(min(span.end, part.end), CHECKPOINT)
            if span.end > part.end:
                break
            span = next(rest, None)
        found.until(part.end, part.what)
    return found.parts


def _joined(spans: Iterable[Span]) -> list[Span]:
    """In their order, without those that are empty; spans that overlap are one."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1].end:
            found[-1] = Span(found[-1].begin, max(found[-1].end, end))
        elif end > begin:
            found.append(Span(begin, end))
    return found


def _by_day(attempt: Attempt, parts: Sequence[Part], member: Held) -> dict[int, Counter[str]]:
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for day, what, microseconds in _days(parts):
        found[day][what] += microseconds * member.slots
    for slot in member.idle[: member.slots]:
        _take_idle(found, parts, _joined(slot))
    for sums in found.values():
        _take_slow(sums, attempt.slow_share)
    return {day: +sums for day, sums in found.items()}


def _days(parts: Iterable[Part]) -> Iterable[tuple[int, str, int]]:
    for begin, end, what in parts:
        while begin < end:
            until = min(end, (begin // DAY + 1) * DAY)
            yield begin // DAY, what, until - begin
            begin = until


def _take_idle(found: Mapping[int, Counter[str]], parts: Sequence[Part], idle: Sequence[Span]) -> None:
    for span in idle:
        of_span = (
            Part(max(part.begin, span.begin), min(part.end, span.end), part.what)
            for part in parts
            if part.what not in _KEPT_WHEN_IDLE and part.begin < span.end and part.end > span.begin
        )
        for day, what, microseconds in _days(of_span):
            found[day][what] -= microseconds
            found[day][IDLE] += microseconds


def _take_slow(sums: Counter[str], share: float) -> None:
    if not 0 < share <= 1:
        return
    for what in [what for what in sums if what.startswith(_STEPS)]:
        lost = int(sums[what] * share)
        sums[what] -= lost
        sums[SLOW] += lost
