"""When waiting work will start: a range that holds its start with 80 % probability, or a sentence why nobody knows.

The queue is played forward some dozens of times: in each future, what runs ends at some moment of its range, what
starts lasts some time of its range, and requests are placed in the order of the queue (`timeline`). The
range is what most of these futures agree on, moved by what became of earlier promises (`calibration`). The work is
bounded by counts, never by a clock; the same snapshot gives the same futures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from random import Random

from scheduling import calibration
from scheduling.calibration import TAIL, Guess
from scheduling.draws import Draws, drawn
from scheduling.durations import Z80, Span
from scheduling.far_queue import FarQueue
from scheduling.policy import Key
from scheduling.reasons import NEVER, WaitCode, listed
from scheduling.runs import yielding_last
from scheduling.spares import Spares
from scheduling.timeline import Ask, Timeline
from scheduling.turns import Newcomer, Play, Running
from scheduling.windows import Closings
from scheduling.world import Plan, Request, Snapshot

#: waiting requests that get a forecast, the first in the queue
MOST_FORECASTS = 2000
#: of these, the first are placed one by one; those behind them by the slot-seconds that are ahead of them
NEAREST = 200
#: futures that are drawn, and the slots and requests in all of them together that bound their number
MOST_FUTURES, FEWEST_FUTURES = 39, 9
MOST_WORK = 160_000
#: how long a run takes to save and stop, in seconds
STOPPING: Span = (5.0, 120.0)
#: newcomers of one future, and for how many seconds ahead
MOST_NEWCOMERS = 200
HORIZON = 7 * 86400.0
#: what came within a shorter time does not say how often its like comes
LEAST_WINDOW = 3600.0
#: a range that ends later says nothing, in seconds
FURTHEST_AHEAD = 366 * 86400.0
#: what is waited for then has no time that anybody knows
UNKNOWABLE = (
    WaitCode.BLOCKED, WaitCode.DEPENDS, WaitCode.HOSTS_OFF, WaitCode.NO_HOSTS, WaitCode.UNRESERVED, WaitCode.SPARE,
)  # fmt: skip
#: nor does what came fewer times: a run that was submitted once is not expected again
LEAST_SEEN = 3


@dataclass(frozen=True, slots=True)
class Forecast:
    """`spans`: task id -> (earliest, latest) start, epoch seconds. `unknown`: task id -> why there is none.

    `behind`: task id -> how many requests are ahead of it, for those behind the ones that get a forecast, in their
    order. Every request of the plan that waits is in one of the three, but for those that never start here, and those
    that were not asked for. `guesses`: task id -> what the model says of the spans, before they were moved.

    `by`: another scheduler, whose words the spans are, each one moment; empty: they are the queue's own. `said_at`:
    when it said so. `rest`: why nobody knows of those that are in none of the three.
    """

    spans: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    guesses: Mapping[str, Guess] = field(default_factory=dict)
    behind: Mapping[str, int] = field(default_factory=dict)
    by: str = ""
    said_at: Mapping[str, float] = field(default_factory=dict)
    rest: str = ""

    def why_unknown(self, task_id: str) -> str | None:
        """Why nobody knows when it starts; None if somebody does, or nothing was asked about it."""
        if task_id in self.spans:
            return None
        return self.unknown.get(task_id) or too_far(self.behind.get(task_id)) or self.rest or None


def places_of(behind: Sequence[str]) -> dict[str, int]:
    """How many requests are ahead of each of the tasks behind those that get a forecast, given in their order."""
    return {task: place for place, task in enumerate(behind, MOST_FORECASTS)}


def too_far(place: int | None) -> str | None:
    """The sentence for a task with so many requests ahead of it; None for None. It is for what is shown: there may be
    thousands of such tasks."""
    if place is None:
        return None
    return f"{place:,} requests are ahead of it; only the first {MOST_FORECASTS:,} get a forecast"


def forecast(
    snapshot: Snapshot,
    plan: Plan,
    recent: Sequence[Request] = (),
    asked: Collection[str] | None = None,
    places: Sequence[float] = (),
    late: Sequence[float] = (),
) -> Forecast:
    """`plan` is what `decide(snapshot)` answered. Pure: the same input gives the same ranges.

    `recent`: what was submitted to this pool in, say, the last day, ended or not; it tells what may still come and go
    first. `asked`: tasks that must be answered; the queue is played no further than the last of these, since later
    requests do not change its start. None: all. `places`, `late`: of the pool's last promises, and of those that still
    wait (`calibration`).
    """
    requests = {request.task_id: request for request in snapshot.requests}
    waiting = yielding_last(
        [requests[task] for task in plan.order if task in plan.waits and plan.waits[task].code not in NEVER]
    )
    spans: dict[str, Span] = {}
    behind = places_of([request.task_id for request in waiting[MOST_FORECASTS:]])
    unknown: dict[str, str] = {}
    guesses: dict[str, Guess] = {}
    played = []
    for request in waiting[:MOST_FORECASTS]:
        reason = plan.waits[request.task_id]
        if reason.code in UNKNOWABLE:
            unknown[request.task_id] = reason.sentence
        else:
            played.append(request)
    if asked is not None:
        found = [number for number, request in enumerate(played) if request.task_id in asked]
        played = played[: found[-1] + 1] if found else []
    tails, closings = calibration.tails(places, late), Closings.of(snapshot) if played else None
    spares = Spares.of(snapshot, closings) if played else None
    for work in ([r for r in played if r.slots > 0], [r for r in played if r.slots == 0]):
        if work:
            play = Play(snapshot, plan, work[:NEAREST], closings, spares)
            whys = _Whys(play)
            coming = {r.task_id for r in work if plan.waits[r.task_id].code == WaitCode.COMING_FREE}
            for task, starts in futures(play, snapshot.now, recent, coming, work[NEAREST:]).items():
                guess = _guess(starts, snapshot.now)
                if guess is None:
                    unknown[task] = whys.of(task)
                    continue
                first, last = calibration.between(guess, tails)
                if last > FURTHEST_AHEAD:
                    unknown[task] = "it may take longer than can be predicted"
                    continue
                guesses[task] = guess
                spans[task] = snapshot.now + first, snapshot.now + last
    return Forecast(spans, unknown, guesses, behind)


def _guess(starts: list[float], now: float) -> Guess | None:
    """The middle of the futures; None when too many of them never start it."""
    starts = sorted(starts)
    skip = max(0, ceil(TAIL * (len(starts) + 1)) - 1)
    first, middle, last = (
        start - now for start in (starts[skip], starts[len(starts) // 2], starts[-1 - skip])
    )
    return None if last == inf else (first, middle, last)


class _Whys:
    """Sentences on whose end nobody knows."""

    def __init__(self, play: Play) -> None:
        endless = (run for run in play.runs if run.left is None and not run.stopping)
        runs = dict.fromkeys(run.request.label for run in endless if not (run.request.yields and run.yields))
        reports, has = ("reports", "has") if len(runs) == 1 else ("report", "have")
        self._runs = f"{listed(runs)} {reports} no progress and {has} no time limit" if runs else ""
        #: task -> how many of these are ahead of it; what is not played is behind all of them
        self._ahead: dict[str, int] = {}
        self._endless: dict[str, None] = {}
        for request in play.waiting:
            self._ahead[request.task_id] = len(self._endless)
            if request.lasts is None:
                self._endless[request.label] = None

    def of(self, task_id: str) -> str:
        """Why nobody knows when this one starts."""
        if self._runs:
            return self._runs
        before = list(self._endless)[: self._ahead.get(task_id)]
        if before:
            has = "has" if len(before) == 1 else "have"
            return f"{listed(before)} ahead of it {has} no time limit, and nothing similar has run here yet"
        return "running work leaves no space for it within the time that can be predicted"


@dataclass(frozen=True, slots=True)
class Future:
    """What one future draws. `soon`: when what is stopped now is gone. `ends`: seconds until each run ends by itself,
    or has stopped if it is stopping. `lasts`: task id -> seconds that it runs once started."""

    now: float
    soon: float
    ends: list[float]
    lasts: dict[str, float]
    newcomers: list[Newcomer]


def futures(
    play: Play,
    now: float,
    recent: Sequence[Request],
    coming: Collection[str],
    far: Sequence[Request] = (),
) -> dict[str, list[float]]:
    """Task id -> its start in each future, infinite where it never starts. `recent`: see `forecast`.

    `far`: what is behind all of these; `coming`: tasks that the plan stops others for. Nothing else starts before
    something happens that the plan did not know of, or the plan would have started it or stopped others for it.
    """
    most = MOST_WORK // (sum(play.caps) + len(play.ordinary) or 1)
    tenths = (most + 1) // 10  # so that a tenth of the futures lies below a whole one
    count = max(FEWEST_FUTURES, min(MOST_FUTURES, 10 * tenths - 1))
    draws = Draws(count)
    draws_of = {False: draws, True: Draws(count)}  # what yields changes no draw of other work
    stops = draws.left(STOPPING)
    ends = [draws_of[run.request.yields].left(STOPPING if run.stopping else run.left) for run in play.runs]
    lasts = {request.task_id: draws_of[request.yields].lasts(request) for request in play.waiting}
    newcomers = _Newcomers(play, now, recent)
    behind = FarQueue(play, far, draws)
    starts: dict[str, list[float]] = {request.task_id: [] for request in play.waiting}
    starts_behind = []
    in_turn = {turn.request.task_id for _, turn in play.turns if isinstance(turn, Running) and turn.yields}
    for number in range(count):
        future = Future(
            now,
            soon=now + stops[number],
            ends=[drawn[number] for drawn in ends],
            lasts={task: drawn[number] for task, drawn in lasts.items()},
            newcomers=newcomers.drawn(now),
        )
        near = dict(_played(play, future, coming, in_turn))
        for task, start in near.items():
            starts[task].append(start)
        starts_behind.append(behind.starts(number, near))
    for request, of_one in zip(far, zip(*starts_behind, strict=True), strict=True):
        starts[request.task_id] = list(of_one)
    return starts


def _played(
    play: Play, future: Future, coming: Collection[str], in_turn: Collection[str]
) -> Iterator[tuple[str, float]]:
    """(task id, its start) of all that waits. `coming`: see `futures`. `in_turn`: the runs that take turns."""
    come = list(future.newcomers)
    timeline, until = _begun(play, future, in_turn)
    old = [run.young_until for run in play.runs if run.gives_way and run.young_until > future.now]
    first_event = min([*until.values(), *old, *play.opens, *(one.at for one in come[:1])], default=inf)
    for key, turn in play.turns:
        if isinstance(turn, Request):
            ask = play.asks[turn.task_id]
            ready, lasts = future.now if turn.task_id in coming else first_event, future.lasts[turn.task_id]
            _let_in(timeline, come, key, ask, ready)
            start = timeline.place(ask, lasts, ready)
            if turn.task_id in coming:  # its end is an event, too
                first_event = min(first_event, start + lasts)
            yield turn.task_id, start
        elif turn.stopping:
            timeline.place(play.asks[turn.request.task_id], _rest(turn))
        elif turn.cut < inf and turn.cut <= until[turn.request.task_id]:
            timeline.place(play.asks[turn.request.task_id], _rest(turn), turn.cut)
        elif turn.yields:
            task = turn.request.task_id
            stopped = timeline.occupy(turn.parts, until[task], _gives_way_at(turn, future.soon, until[task]))
            if stopped < until[task]:
                timeline.place(play.asks[task], until[task] - stopped)


def _begun(play: Play, future: Future, in_turn: Collection[str]) -> tuple[Timeline, dict[str, float]]:
    """The timeline as it is now, and task id -> when a run ends by itself."""
    free = [[future.now] * count for count in play.free]
    limits = play.limits()
    until = {}
    for run, left in zip(play.runs, future.ends, strict=True):
        task, end = run.request.task_id, future.now + left
        is_cut = run.cut < inf and run.cut <= end
        if is_cut:
            end = max(run.cut, future.soon)
        until[task] = end
        gives_way = task in in_turn and not run.stopping and not is_cut
        for host, count in run.parts.items():
            free[host] += [_gives_way_at(run, future.soon, end) if gives_way else end] * count
        if limits and (limit := play.asks[task].limit) is not None and limit in limits:
            limits[limit].held.append((end, run.request.slots))
    return Timeline(future.now, future.soon, free, limits), until


def _gives_way_at(run: Running, soon: float, end: float) -> float:
    """When others may have its slots: at `soon`, or when it is not young any more, or has ended."""
    return max(soon, min(run.young_until, end))


def _let_in(timeline: Timeline, come: list[Newcomer], key: Key, ask: Ask, ready: float) -> None:
    """A newcomer goes before those of lower standing that have not started when it comes.

    `ready`: when what is asked for may start at the earliest.

    It may stop one that runs instead; but that one then waits again, and goes before them all the same.
    """
    first: int | None = 0
    while come and first is not None:
        start = max(timeline.when(ask), ready)
        first = next((n for n, one in enumerate(come) if one.key < key and one.at <= start), None)
        if first is not None:
            newcomer = come.pop(first)
            timeline.place(newcomer.ask, newcomer.lasts, newcomer.at)


def _rest(run: Running) -> float:
    """How long a stopped run still takes once it continues."""
    return inf if run.left is None else sum(run.left) / 2


class _Newcomers:
    """Work that goes before what waits now is submitted as often as work of its kind was lately."""

    def __init__(self, play: Play, now: float, recent: Sequence[Request]) -> None:
        self._random = Random(0)
        self._sources: list[tuple[Key, Ask, Span]] = []
        recent = [request for request in recent if not request.yields]
        window = max(LEAST_WINDOW, now - min((one.submitted_at for one in recent), default=now))
        seen = Counter(_kind(request) for request in recent)
        last: Key = max(play.ordinary, default=())  # nothing is before ()
        for request in recent:
            key = play.key_of_next(request)
            is_ahead = key < last and play.is_of_its_kind(request)
            if request.lasts is not None and is_ahead and seen[_kind(request)] >= LEAST_SEEN:
                self._sources.append((key, play.ask_of(request), request.lasts))
        self._rate = len(self._sources) / window

    def drawn(self, now: float) -> list[Newcomer]:
        """Those of one more future, the next first."""
        random, at, new = self._random, now, []
        for number in range(MOST_NEWCOMERS if self._sources else 0):
            at += random.expovariate(self._rate)
            if at > now + HORIZON:
                break
            key, ask, lasts = random.choice(self._sources)
            place = (random.gauss(0, 1) / Z80 + 1) / 2
            new.append(Newcomer((*key, number), ask, at, drawn(lasts, place)))
        return new


def _kind(request: Request) -> tuple[object, ...]:
    """Requests of one kind are taken for each other's like."""
    return request.priority, request.weight, request.slots, request.preemptible
