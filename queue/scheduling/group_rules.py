"""Who is served and stopped among groups of people that share a pool.

On each level, the runs of a group that fit into its guarantee are protected, the oldest first; all others are borrowed.
A request within the guarantee of its group may stop what other groups of that level have borrowed. Requests of one path
are served as the pool's policy says.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate

from scheduling.group_shares import Path, Room, by_name, guarantees, path_of
from scheduling.runs import (
    EVERYBODY,
    NO_RIGHTS,
    NOBODY,
    HeldRun,
    Rights,
    Rules,
    Standing,
    standing,
    yielding_last,
)
from scheduling.spares import Spares
from scheduling.world import GroupShare, Placement, Request, Snapshot

#: a place in the order of the policy (no two are equal), slots that count for the load of the group, and the request
Turn = tuple[int, int, Request]
Loaded = tuple[float, Turn]

#: grades of borrowed runs begin here, above those of every policy
BORROWED = 1000.0


class Groups:
    """Which runs are protected on which level, and which waiting requests lie within a guarantee."""

    def __init__(
        self, snapshot: Snapshot, inner: Rules, able: Sequence[Request], spares: Spares | None
    ) -> None:
        """`inner`: the rules of the policy. `able`: the slot work that runs, and what waits and could start."""
        self.shares = snapshot.pool.shares
        self.room = Room(snapshot, spares)
        self._guaranteed = {name: slots for name, slots in guarantees(self.shares).items() if slots}
        self._split = {share.parent for share in self.shares.values() if share.guarantee}
        self._able = {request.task_id for request in able if request.running is None}
        runs = [each for each in able if each.running is not None and not each.running.stopping]
        of_path = Counter[Path]()
        for request in runs:
            of_path[path_of(request)] += request.slots
        held = by_name(of_path)
        over = {path: [held[name] - self._guaranteed.get(name, 0) for name in path] for path in of_path}
        self._rank = {
            path: rank for rank, path in enumerate(sorted(over, key=lambda path: (over[path], path)), 1)
        }
        self.protected: tuple[set[str], set[str]] = set(), set()
        self.within: tuple[set[str], set[str]] = set(), set()
        if self._guaranteed:
            firm = [each for each in runs if each.running is not None and not each.running.on_sufferance]
            self._protect(firm, inner)
            self._within(snapshot, firm, inner)

    def _has_guarantee(self, request: Request) -> bool:
        return not self._guaranteed.keys().isdisjoint(path_of(request))

    def _protect(self, firm: Iterable[Request], inner: Rules) -> None:
        """Mark the runs that keep their slots, on each level."""
        firm = sorted(filter(self._has_guarantee, firm), key=lambda request: _kept_first(request, inner))
        kept = Counter[str]()
        for level in (1, 0):  # what a team is guaranteed, its department is
            for request in firm:
                name = path_of(request)[level]
                if kept[name] + request.slots <= self._guaranteed.get(name, 0):
                    kept[name] += request.slots
                    self.protected[level].add(request.task_id)
            firm = _first_in(self.protected[1], firm)

    def _within(self, snapshot: Snapshot, firm: Iterable[Request], inner: Rules) -> None:
        """Mark the requests that wait and are within a guarantee, first of teams.

        Each path uses its guarantee in the order of the policy: what is behind a request that does not fit into it
        waits for that one, unless a limit keeps that one from starting.
        """
        of_path, of_jobs, room = Counter[Path](), Counter[str](), self.room.copy()
        for request in firm:
            of_path[path_of(request)] += request.slots
        for request in snapshot.requests:
            if request.running is not None:
                of_jobs[request.job_id] += request.slots
        taken = by_name(of_path)
        waiting = [each for each in inner.waiting() if each.task_id in self._able]
        paths = set(map(path_of, waiting))
        for level in (1, 0):
            using = {path for path in paths if path[level] in self._guaranteed}
            for request in waiting if using else ():
                path = path_of(request)
                if path not in using:
                    continue
                known = request.task_id in self.within[1]
                most = request.max_slots
                if not known and (
                    (most is not None and of_jobs[request.job_id] + request.slots > most)
                    or room.lacking(request)
                ):
                    continue
                if taken[path[level]] + request.slots > self._guaranteed[path[level]]:
                    using.discard(path)
                    if not using:
                        break
                    continue
                taken[path[level]] += request.slots
                self.within[level].add(request.task_id)
                if not known:
                    room.take(request)
                    of_jobs[request.job_id] += request.slots
            if level == 1:
                waiting = _first_in(self.within[1], waiting)

    def is_within(self, request: Request) -> bool:
        return request.task_id in self.within[0] or request.task_id in self.within[1]

    def is_borrowed(self, run: Request) -> bool:
        """May another group take its slots back?"""
        if run.task_id not in self.protected[0]:
            return True
        return path_of(run)[0] in self._split and run.task_id not in self.protected[1]

    def rank(self, run: Request) -> int:
        """Of borrowed runs, those of the group that is furthest above its guarantee are stopped first."""
        return self._rank.get(path_of(run), 0)

    def in_turn(self, queue: Iterable[Request]) -> list[Request]:
        """What waits: first what is within a guarantee, then always one of the group that has the least for its weight.

        `queue`: all requests in the order of the policy, which orders what is within guarantees, and each group. What
        runs takes its turn like what waits: so the order depends on what is wanted alone, a plan that is carried out
        does not change it, and what one job is stopped for no other gets. Of groups that have equally much, the one
        whose next request comes first in the order of the policy is next.
        """
        of_path = Counter[Path]()
        first: list[Request] = []
        lines: defaultdict[Path, list[Turn]] = defaultdict(list)
        served, able = self.protected[0].union(*self.within), self._able
        for place, request in enumerate(queue):
            slots, task_id = request.slots, request.task_id
            if slots == 0 or task_id in served:
                of_path[path_of(request)] += slots
                if request.running is None:
                    first.append(request)
            else:
                counts = slots if task_id in able or request.running is not None else 0
                lines[path_of(request)].append((place, counts, request))
        has = by_name(of_path)
        of_tops: dict[str, list[Loaded]] = {}
        for (top, team), line in lines.items():
            of_tops.setdefault(top, []).extend(self._loaded(team, has[team], line))
        found: list[Loaded] = []
        for top, teams in of_tops.items():
            found += self._loaded(top, has[top], [turn for _, turn in sorted(teams)])
        later = [request for _, (_, _, request) in sorted(found) if request.running is None]
        return yielding_last([*_first_in(self.within[1], first), *later])

    def _loaded(self, name: str, slots: int, line: list[Turn]) -> Iterator[Loaded]:
        """Each with the load that the group has when its turn comes."""
        share = self.shares.get(name, _NO_SHARE)
        usage, weight = share.usage, share.weight
        has = accumulate((counts for _, counts, _ in line), initial=slots)
        # the last load is that after all turns, which is no turn
        return zip([(held + usage) / weight for held in has], line, strict=False)


_NO_SHARE = GroupShare()


def _first_in(tasks: Collection[str], requests: Sequence[Request]) -> list[Request]:
    """The requests with those of these tasks first."""
    if not tasks:
        return list(requests)
    return [each for each in requests if each.task_id in tasks] + [
        each for each in requests if each.task_id not in tasks
    ]


def _kept_first(request: Request, inner: Rules) -> tuple[bool, float, bool, float, str]:
    """Runs in the order in which they keep their slots: the reverse of that in which a policy stops them."""
    running = request.running
    assert running is not None
    saved = running.last_saved_at is not None or running.asked_preempt
    return (request.preemptible, inner.grade(request), saved, running.started_at, request.task_id)


def in_order_of_turns(requests: Iterable[Request]) -> list[Request]:
    """All requests by `standing`; but what its deadline moved ahead goes only before others of its own path.

    Each path keeps the places that it has without deadlines: so the turns of the groups stay what they are.
    """
    queue = sorted(requests, key=standing)
    if all(request.usual_position is None for request in queue):
        return queue
    lines = {
        path: iter([each for each in queue if path_of(each) == path]) for path in set(map(path_of, queue))
    }
    return [next(lines[path_of(each)]) for each in sorted(queue, key=_usually)]


def _usually(request: Request) -> Standing:
    if request.usual_position is None:
        return standing(request)
    return standing(replace(request, position=request.usual_position))


class OfGroup(Rights):
    """Those of requests of one path. Within the path the policy's own count; from others they take what is borrowed."""

    def __init__(
        self,
        path: Path,
        levels: tuple[bool, bool],
        inner: Rights,
        groups: Groups,
        is_gang: bool,
        some_yield: bool,
    ) -> None:
        """`levels`: within the guarantee of its department, and of its team. `is_gang`: hosts may be kept for it.

        `some_yield`: there are runs that yield to all, of whatever path.
        """
        self.path = path
        self._levels = levels
        self._inner = inner
        self._groups = groups
        self._is_gang = is_gang
        self.takes = any(levels) or is_gang or some_yield
        #: of all runs of a board that these requests may stop, once `look_at` has seen them
        self.lines: dict[HeldRun, Standing] = {}
        self._lending = OfGroup(path, levels, inner, groups, False, some_yield) if is_gang else None

    def lending(self) -> Rights:
        """Only who has hosts kept for it takes back what others were lent there."""
        return self._lending or self

    def reserving(self) -> Rights:
        """The same for all: otherwise every group would look at every host."""
        return LENT

    def line(self, run: HeldRun) -> Standing:
        if path_of(run.request) == self.path or run.request.yields:
            return self._inner.line(run)
        return super().line(run)

    def line_once_old(self, run: HeldRun) -> Standing:
        if path_of(run.request) == self.path or run.request.yields:
            return self._inner.line_once_old(run)
        return EVERYBODY if run.request.preemptible and self._may_take(run) else NOBODY

    def look_at(self, runs: Iterable[HeldRun]) -> Counter[int]:
        """Note the lines of the runs that may be stopped; host index -> slots that they hold there."""
        found = Counter[int]()
        for run in runs:
            line = self.line(run)
            if line is not NOBODY:
                self.lines[run] = line
                for index, slots in run.parts.items():
                    found[index] += slots
        return found

    def _may_take(self, run: HeldRun) -> bool:
        if self._is_gang and run.placement.on_sufferance:
            return True
        level = 1 if path_of(run.request)[0] == self.path[0] else 0
        return self._levels[level] and run.request.task_id not in self._groups.protected[level]

    def reaches(self, asker: Standing, grade: float) -> bool:
        return grade >= BORROWED or self._inner.reaches(asker, grade)


class TakesLent(Rights):
    """Takes back what was lent, and nothing else."""

    def line_once_old(self, run: HeldRun) -> Standing:
        return EVERYBODY if run.placement.on_sufferance else NOBODY


LENT = TakesLent()


class GroupRules(Rules):
    """The rules of a policy, among groups."""

    def __init__(self, inner: Rules, groups: Groups) -> None:
        super().__init__(inner.queue)
        self.inner = inner
        self.groups = groups
        self.room = groups.room
        self._known: dict[tuple[Path, tuple[bool, bool], Rights, bool], Rights] = {}
        self._within = groups.within[0] | groups.within[1]
        self._stoppable: set[Path] = set()
        self._has_lent = self._some_yield = False
        for request in inner.queue:
            if request.running is not None and request.slots:
                self._has_lent = self._has_lent or request.running.on_sufferance
                self._some_yield = self._some_yield or request.yields
                path = path_of(request)
                if path not in self._stoppable and inner.line(request, request.running) is not NOBODY:
                    self._stoppable.add(path)

    def waiting(self) -> list[Request]:
        return self._in_turn

    @cached_property
    def _in_turn(self) -> list[Request]:
        return self.groups.in_turn(self.inner.queue)

    def in_order(self) -> Sequence[Request]:
        """First what runs."""
        return [*(request for request in self.queue if request.running is not None), *self._in_turn]

    def grade(self, run: Request) -> float:
        inner = self.inner.grade(run)
        return inner + BORROWED * self.groups.rank(run) if self.groups.is_borrowed(run) else inner

    def line(self, run: Request, placement: Placement) -> Standing:
        return self.inner.line(run, placement)

    def protects(self, request: Request, placement: Placement) -> bool:
        return self.inner.protects(request, placement)

    def rights(self, request: Request) -> Rights:
        if request.yields:
            return NO_RIGHTS
        task_id, path = request.task_id, path_of(request)
        is_gang = self._has_lent and request.slots > 1
        is_within = task_id in self._within
        if not (is_within or is_gang or self._some_yield or path in self._stoppable):
            return NO_RIGHTS
        tops, teams = self.groups.within
        levels = (task_id in tops, task_id in teams) if is_within else (False, False)
        inner = self.inner.rights(request)
        key = (path, levels, inner, is_gang)
        known = self._known.get(key)
        if known is None:
            self._known[key] = known = OfGroup(path, levels, inner, self.groups, is_gang, self._some_yield)
        return known

    def borrows(self, request: Request) -> bool:
        """What is within a guarantee keeps what it gets."""
        return self.inner.borrows(request) and not self.groups.is_within(request)

    def reserves(self, request: Request) -> bool:
        return self.inner.reserves(request)

    def why_not(self, request: Request, run: HeldRun) -> str:
        if path_of(run.request) == path_of(request):
            return self.inner.why_not(request, run)
        name = next((name for name in reversed(run.request.groups)), "users without a group")
        if not self.groups.is_borrowed(run.request):
            return f"guaranteed to {name}"
        if self.groups.is_within(request):
            return f"borrowed by {name}, but stopping it is not enough here"
        return f"borrowed by {name}; only work within a guarantee takes it back"
