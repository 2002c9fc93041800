"""Many futures of one pool, drawn from what is known of how long work lasts; the same snapshot gives the same ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import exp, inf, log
from random import Random
from statistics import NormalDist

from scheduling.durations import Z80, Span
from scheduling.timeline import Ask, Limit, Parts, Timeline
from scheduling.world import HostView, Plan, Request, Snapshot

#: futures that are drawn, and the slots and requests in all of them together that bound their number
MOST_FUTURES, FEWEST_FUTURES = 39, 9
MOST_WORK = 160_000
#: how long a run takes to save and stop, in seconds
STOPPING: Span = (5.0, 120.0)
#: shortest time that is drawn, in seconds
LEAST = 1.0
#: newcomers of one future, and for how many seconds ahead
MOST_NEWCOMERS = 200
HORIZON = 7 * 86400.0
#: in a pool with more runs than these, only what waits now stops them, not what may come
MOST_GIVING_WAY = 1000
#: what has been here for a shorter time does not say how often its like comes
LEAST_STAY = 60.0
#: the limit that all work shares which may not be stopped
UNPREEMPTIBLE = ""


#: where something stands in the order of turns
Key = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Running:
    """A run, or one that starts now. `left`: seconds until it ends by itself, None when unknown.

    `again`: it is being stopped and will wait again. `gives_way`: a higher priority may stop it. `on_sufferance`:
    whatever stands before it may.
    """

    request: Request
    parts: Parts
    left: Span | None
    stopping: bool = False
    again: bool = False
    gives_way: bool = False
    on_sufferance: bool = False


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Work that may be submitted later and goes before some of what waits now."""

    key: Key
    ask: Ask
    at: float
    lasts: float


Turn = tuple[Key, Request | Running | Newcomer]


class Play:
    """What is the same in all futures: the hosts, what runs on them, and `waiting` in the order of its turns.

    `waiting` is slot work or zero-slot work; the two have nothing in common.
    """

    def __init__(self, snapshot: Snapshot, plan: Plan, waiting: list[Request]) -> None:
        self.waiting = waiting
        self.stops_others = snapshot.pool.preemption or snapshot.pool.scheduler == "fair_share"
        self._snapshot = snapshot
        self._aux = waiting[0].slots == 0
        self._hosts = {view.id: index for index, view in enumerate(snapshot.hosts)}
        self._usable = {
            slot.id for view in snapshot.hosts if view.off is None for slot in view.slots if slot.usable
        }
        self._apart = frozenset(
            frozenset(self._hosts[host] for host in pair)
            for pair in snapshot.pool.bad_pairs
            if all(host in self._hosts for host in pair)
        )
        self.caps = [self._cap(view) for view in snapshot.hosts]
        self.runs = list(self._runs(plan))
        self.free = list(self.caps)
        for run in self.runs:
            for index, count in run.parts.items():
                self.free[index] = max(0, self.free[index] - count)
        self.turns = sorted(self._turns(plan), key=lambda turn: turn[0])
        self.asks = {
            request.task_id: self._ask(request) for request in [*waiting, *(r.request for r in self.runs)]
        }

    @property
    def disturbed(self) -> bool:
        """May something that is not here yet stop what runs by then?"""
        here = {one.priority for one in (*self.waiting, *(run.request for run in self.runs))}
        return self.stops_others and (self._snapshot.pool.scheduler == "fair_share" or len(here) > 1)

    def _cap(self, view: HostView) -> int:
        if self._aux:
            return view.aux_capacity if view.off is None else 0
        return sum(slot.id in self._usable for slot in view.slots)

    def _runs(self, plan: Plan) -> Iterator[Running]:
        now = self._snapshot.now
        starts = {start.task_id: start for start in plan.starts}
        released = {release.allocation_id for release in plan.releases}
        for request in self._snapshot.requests:
            if (request.slots == 0) is not self._aux:
                continue
            start, placement = starts.get(request.task_id), request.running
            if start is not None:
                yield Running(
                    request,
                    self._parts(dict(start.hosts)),
                    request.lasts,
                    gives_way=self._may_be_stopped(request),
                    on_sufferance=start.on_sufferance,
                )
            elif placement is not None:
                left = None if placement.ends is None else (placement.ends[0] - now, placement.ends[1] - now)
                again = placement.allocation_id in released or placement.stopping_for is not None
                stopping = again or placement.stopping
                yield Running(
                    request,
                    self._parts(placement.slots),
                    left,
                    stopping,
                    again,
                    gives_way=not stopping and self._may_be_stopped(request),
                    on_sufferance=not stopping and placement.on_sufferance,
                )

    def _may_be_stopped(self, request: Request) -> bool:
        pool = self._snapshot.pool
        return request.preemptible and pool.preemption and pool.scheduler == "priority" and not self._aux

    def _parts(self, slots: Mapping[str, tuple[int, ...]]) -> Parts:
        parts = {}
        for host_id, ids in slots.items():
            index = self._hosts.get(host_id)
            if index is not None and self.caps[index]:
                parts[index] = 1 if self._aux else sum(slot in self._usable for slot in ids)
        return {index: count for index, count in parts.items() if count}

    def _turns(self, plan: Plan) -> Iterator[Turn]:
        """What is placed in turn: what waits, what will wait again, and runs that give way to what is before them."""
        fair = self._snapshot.pool.scheduler == "fair_share"
        runs = {run.request.task_id: run for run in self.runs}
        requests = {request.task_id: request for request in self._snapshot.requests}
        asked = {request.task_id for request in self.waiting}
        highest = min(request.priority for request in self.waiting)
        if len(self.runs) <= MOST_GIVING_WAY:
            highest = min([highest, *(run.request.priority for run in self.runs)])
        held: dict[str, float] = {}
        for place, task in enumerate(plan.order):
            run, request = runs.get(task), requests[task]
            if run is None and task not in asked:
                continue
            before = held.get(request.job_id, 0)
            held[request.job_id] = before + max(1, request.slots)
            firm = run is not None and not run.again and not run.on_sufferance
            if fair:
                key: Key = (before / request.weight, place)
            else:  # what is firm is never stopped for its equals
                key = (request.priority, not firm, place)
            if run is None:
                yield key, request
            elif run.again or run.on_sufferance or (run.gives_way and request.priority > highest):
                yield key, run

    def key_of_next(self, request: Request) -> Key:
        """Where another like it would stand if it were submitted later."""
        if self._snapshot.pool.scheduler == "fair_share":
            return (0, inf)
        return (request.priority, True, inf)

    def _ask(self, request: Request) -> Ask:
        pool = self._snapshot.pool
        limit = None
        if request.max_slots is not None:
            limit = request.job_id
        elif pool.unpreemptible_slots is not None and not request.preemptible:
            limit = UNPREEMPTIBLE
        avoided = request.avoid_hosts
        return Ask(
            slots=max(1, request.slots),
            single_host=request.single_host,
            borrows=request.preemptible and (pool.preemption or pool.scheduler == "fair_share"),
            banned=frozenset(
                index
                for index, view in enumerate(self._snapshot.hosts if avoided else ())
                if view.id in avoided or view.name in avoided
            ),
            apart=self._apart,
            mixed=pool.allow_heterogeneous_fits,
            limit=limit,
        )

    def limits(self) -> dict[str, Limit]:
        """A fresh book of who may hold how much."""
        limits = {
            request.job_id: Limit(request.max_slots)
            for request in self.waiting
            if request.max_slots is not None
        }
        if self._snapshot.pool.unpreemptible_slots is not None:
            limits[UNPREEMPTIBLE] = Limit(self._snapshot.pool.unpreemptible_slots)
        return limits


def futures(play: Play, now: float) -> dict[str, list[float]]:
    """Task id -> its start in each future, infinite where it never starts."""
    work = sum(play.caps) + len(play.turns)
    count = max(
        FEWEST_FUTURES, min(MOST_FUTURES, (MOST_WORK // work + 1) // 10 * 10 - 1)
    )  # tenths without a rest
    draws = _Draws(count)
    stops = draws.left(STOPPING)
    ends = [draws.left(STOPPING if run.stopping else run.left) for run in play.runs]
    lasts = {request.task_id: draws.lasts(request.lasts) for request in play.waiting}
    starts: dict[str, list[float]] = {request.task_id: [] for request in play.waiting}
    newcomers = _Newcomers(play, now)
    for number in range(count):
        runs = {task: times[number] for task, times in lasts.items()}
        _play(
            play, newcomers.drawn(now), now, now + stops[number], [end[number] for end in ends], runs, starts
        )
    return starts


def _play(
    play: Play,
    newcomers: list[Newcomer],
    now: float,
    soon: float,
    ends: list[float],
    lasts: dict[str, float],
    starts: dict[str, list[float]],
) -> None:
    """One future. `soon`: when what is stopped now is gone. `ends`: seconds until each run ends by itself, or has
    stopped if it is stopping already."""
    turns: list[Turn] = list(play.turns)
    in_turn = {id(turn) for _, turn in turns}
    free = [[now] * count for count in play.free]
    limits = play.limits()
    until = {}
    for run, left in zip(play.runs, ends, strict=True):
        until[id(run)] = now + left
        gives_way = id(run) in in_turn and not run.stopping
        for host, count in run.parts.items():
            free[host] += [soon if gives_way else now + left] * count
        limit = limits.get(play.asks[run.request.task_id].limit or "-")
        if limit is not None:
            limit.held.append((now + left, run.request.slots))
    timeline = Timeline(now, soon, free, limits)
    come = newcomers
    if play.stops_others:  # a newcomer is placed before those of lower standing, and stops them when it comes
        turns = sorted([*turns, *((one.key, one) for one in newcomers)], key=lambda turn: turn[0])
        come = []
    for key, turn in turns:
        if isinstance(turn, Newcomer):
            timeline.arrive(turn.ask, turn.at, turn.lasts)
        elif isinstance(turn, Request):
            ask = play.asks[turn.task_id]
            _let_in(timeline, come, key, ask)
            starts[turn.task_id].append(timeline.place(ask, lasts[turn.task_id]))
        elif turn.stopping:
            timeline.place(play.asks[turn.request.task_id], _rest(turn))
        else:
            stopped = timeline.occupy(turn.parts, until[id(turn)])
            if stopped < until[id(turn)]:
                timeline.place(play.asks[turn.request.task_id], until[id(turn)] - stopped)


def _let_in(timeline: Timeline, come: list[Newcomer], key: Key, ask: Ask) -> None:
    """Where nothing is stopped, a newcomer goes before those of lower standing that have not started when it comes."""
    first: int | None = 0
    while come and first is not None:
        start = timeline.when(ask)
        first = next((n for n, one in enumerate(come) if one.key < key and one.at < start), None)
        if first is not None:
            newcomer = come.pop(first)
            timeline.place(newcomer.ask, newcomer.lasts, newcomer.at)


def _rest(run: Running) -> float:
    """How long a run that is stopped still takes when it goes on."""
    return inf if run.left is None else sum(run.left) / 2


def drawn(span: Span, place: float) -> float:
    """Seconds; `place` 0 is the start of the range and 1 its end, on a logarithmic scale."""
    first, last = log(max(LEAST, span[0])), log(max(LEAST, *span))
    return exp(first + (last - first) * place)


class _Newcomers:
    """Work that goes before what waits now is submitted as often as its like must have been.

    Something that is in the queue for a time d, and is seen there at any moment, is submitted once in d on average
    (Little's law): so each request that is here now stands for a stream of its like.
    """

    def __init__(self, play: Play, now: float) -> None:
        self._random = Random(0)
        self._sources: list[tuple[Key, Ask, Span]] = []
        self._rates: list[float] = []
        here = [(run.request, run.left) for run in play.runs] + [(one, one.lasts) for one in play.waiting]
        for request, left in here:
            key = play.key_of_next(request)
            if left is not None and key < play.turns[-1][0]:
                lasts = request.lasts or left
                self._sources.append((key, play.asks[request.task_id], lasts))
                self._rates.append(1 / max(LEAST_STAY, now - request.submitted_at + sum(left) / 2))
        self._rates = list(accumulate(self._rates))
        self._rate = self._rates[-1] if self._rates else 0.0

    def drawn(self, now: float) -> list[Newcomer]:
        """Those of one more future, the next first."""
        random, at, new = self._random, now, []
        for number in range(MOST_NEWCOMERS if self._sources else 0):
            at += random.expovariate(self._rate)
            if at > now + HORIZON:
                break
            [(key, ask, lasts)] = random.choices(self._sources, cum_weights=self._rates)
            place = (random.gauss(0, 1) / Z80 + 1) / 2
            new.append(Newcomer((*key, number), ask, at, drawn(lasts, place)))
        return new


class _Draws:
    """Draws from ranges that hold 80 %, spread evenly over the futures and shuffled for each range."""

    def __init__(self, count: int) -> None:
        self._random = Random(count)
        parts = [(number + 0.5) / count for number in range(count)]
        #: where a draw lies between the ends of its range (0 and 1), on a logarithmic scale
        self._whole = [(NormalDist().inv_cdf(part) / Z80 + 1) / 2 for part in parts]
        low, high = log(-log(0.9)), log(-log(0.1))
        self._rest = [(log(-log(1 - part)) - low) / (high - low) for part in parts]

    def lasts(self, span: Span | None) -> list[float]:
        """Run times in seconds, one for each future: lognormal."""
        return self._drawn(span, self._whole)

    def left(self, span: Span | None) -> list[float]:
        """What is left of a run: Weibull, since it may be over at once, which no lognormal time is."""
        return self._drawn(span, self._rest)

    def _drawn(self, span: Span | None, places: list[float]) -> list[float]:
        if span is None:
            return [inf] * len(places)
        self._random.shuffle(places)
        return [drawn(span, place) for place in places]
