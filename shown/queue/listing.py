"""Which jobs a view of a queue lists, and how many there are of each kind.

Many jobs that stand next to each other and differ in nothing but their number fold into one line. Filtering, ordering,
counting and folding 10,000 jobs here takes a few milliseconds, and the page of another person needs none of it from
PostgreSQL again (`shown.queue.standing`).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress, count, islice
from typing import Any

from accounts.models import User
from hosts.models import ResourcePool
from jobs.models import Job
from shown.queue import standing
from shown.queue.standing import Queue

#: lines of a person's own jobs where the page opens
MINE_LINES = 20
#: lines of each other group there
OTHERS_LINES = 8
#: of those that wait next, the head: long enough for a few lines after folding
HEAD_JOBS = 1000

#: rows of one page of the list; the browser fetches further ones while a person scrolls
PER_PAGE = 40
#: the chips above the list, in their order
CHIPS = {
    "for-you": "for you",
    "all": "all",
    "mine": "mine",
    "mine-waiting": "mine, waiting",
    "never-fits": "never starts",
    "being-stopped": "being stopped",
}
MINE_FIRST, ALL, MINE, MINE_WAITING, NEVER, STOPPING = CHIPS
STATES = ("queued", "scheduled", "backfilled")
PLACE = "place"

#: what is counted of the whole queue
_COUNTED = (ALL, "queued", "scheduled", "backfilled", NEVER, STOPPING, MINE, MINE_WAITING)
#: whether the job at a place is wanted
Condition = Callable[[int], bool]
#: the key of the job at a place; equal jobs keep their order
SortKey = Callable[[Queue], Callable[[int], Any]]


@dataclass(frozen=True)
class QueueView:
    """One view of one queue. Values that are none of the allowed ones count as absent: links grow old.

    `wrong` has a sentence for each filter of that kind.
    """

    show: str = ""
    text: str = ""
    user: str = ""
    state: str = ""
    like: uuid.UUID | None = None
    #: a column by whose values lines are sorted
    sort: str = PLACE
    descending: bool = False
    pages: tuple[int, ...] = (1,)
    wrong: tuple[str, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Nothing is narrowed or sorted: the page may choose what to open on."""
        filtered = self.text or self.user or self.state or self.like
        return not (self.show or filtered or self.sort != PLACE or self.descending)


@dataclass(frozen=True)
class BoardLine:
    """One line of the list: a job, or `alike` of them of which it is the first. `group` numbers the part it is in."""

    number: int
    job_id: uuid.UUID
    place: int
    alike: int
    #: together, for a line that stands for several
    held: int
    needed: int
    group: int


@dataclass
class Listing:
    """The lines asked for, and the counts of the whole queue, which they are places of."""

    queue: Queue
    #: the viewer's user id
    me: int
    lines: list[BoardLine] = field(default_factory=list)
    #: lines of the view in all, and the jobs that they stand for
    length: int = 0
    jobs: int = 0

    @cached_property
    def counts(self) -> dict[str, int]:
        """Chip -> jobs; `scheduled`, `queued` and `backfilled` too. Who asks for rows alone needs none of it."""
        counts = dict.fromkeys(_COUNTED, 0)
        for (owner, state, never, stopping), jobs in self.queue.alike.items():
            waits, mine = state == "queued", owner == self.me
            is_counted = (
                True,
                waits,
                not waits,
                state == "backfilled",
                never,
                stopping,
                mine,
                mine and waits,
            )
            for name in compress(_COUNTED, is_counted):
                counts[name] += jobs
        return counts

    @cached_property
    def owners(self) -> Mapping[int, int]:
        """User id -> jobs."""
        return Counter(self.queue.owners)

    @property
    def pages(self) -> int:
        return max(1, -(-self.length // PER_PAGE))

    def chips(self, chosen: str) -> list[tuple[str, str, int | None]]:
        """(name, word, jobs) of each chip that is offered."""
        counts = self.counts
        offered = {ALL, chosen, *([MINE_FIRST] if 0 < counts[MINE] < counts[ALL] else [])}
        return [
            (name, word, counts.get(name))
            for name, word in CHIPS.items()
            if counts.get(name) or name in offered
        ]


def of(pool: ResourcePool, view: QueueView, me: int) -> Listing:
    """The lines of a view's pages."""
    queue = standing.of(pool)
    whole = range(len(queue.ids))
    chosen: Sequence[int] = whole
    if view.show in (MINE, MINE_WAITING):
        chosen = queue.places_of.get(me, ())
    for wanted in _conditions(queue, view):
        chosen = [*filter(wanted, chosen)]
    if sort_key := _sort_key(pool, view.sort):
        chosen = sorted(chosen, key=sort_key(queue), reverse=view.descending)
    elif view.descending:
        chosen = chosen[::-1]
    listing = Listing(queue, me)
    folded = queue.folded if chosen is whole else range(len(chosen)) if view.like else None
    lines = _Lines(queue, chosen, folded)
    listing.length, listing.jobs = len(lines), len(chosen)
    for page in view.pages:
        listing.lines += lines.between((page - 1) * PER_PAGE, page * PER_PAGE)
    return listing


def opening(queue: Queue, me: int, departures: list[uuid.UUID], blockers: list[uuid.UUID]) -> Listing:
    """The lines that the page opens on: one's own jobs (group 0), departures in the given order (1), blockers (2).

    Where too few departures are known, those that wait next in the queue follow them.
    """
    groups = _opening_groups(queue, me, [str(job) for job in departures], [str(job) for job in blockers])
    listing = Listing(queue, me)
    for group, chosen in enumerate(groups):
        lines = _Lines(queue, chosen, None, group, listing.length)
        listing.lines += lines.between(0, OTHERS_LINES if group else MINE_LINES)
        listing.length += len(lines)
        listing.jobs += len(chosen)
    return listing


def _opening_groups(queue: Queue, me: int, departures: list[str], blockers: list[str]) -> list[Sequence[int]]:
    """The places of each group's jobs."""
    places, owners = queue.places, queue.owners
    departing = [places[job_id] for job_id in departures if job_id in places and owners[places[job_id]] != me]
    if len(departures) < OTHERS_LINES:
        waits = zip(count(), queue.states, queue.never, queue.owners)
        heads = (
            place for place, state, never, owner in waits if state == "queued" and not never and owner != me
        )
        departing = [*dict.fromkeys([*departing, *islice(heads, HEAD_JOBS)])]
    blocking = {places[job_id] for job_id in blockers if job_id in places and owners[places[job_id]] != me}
    return [queue.places_of.get(me, ()), departing, sorted(blocking.difference(departing))]


def only(pool: ResourcePool, job_id: uuid.UUID) -> Listing:
    """The line of one job; none if it stands in no queue."""
    queue, wanted = standing.of(pool), str(job_id)
    places = [queue.places[wanted]] if wanted in queue.places else []
    return Listing(queue, 0, _Lines(queue, places).between(0, 1))


class _Lines:
    """The lines of the jobs at these places, in this order. `folded`: where each begins, if that is known."""

    def __init__(
        self,
        queue: Queue,
        places: Sequence[int],
        folded: Sequence[int] | None = None,
        group: int = 0,
        before: int = 0,
    ) -> None:
        self._queue = queue
        self._places = places
        self._group = group
        self._before = before
        self._begins = (
            standing.fold([queue.likeness[place] for place in places]) if folded is None else folded
        )

    def __len__(self) -> int:
        return len(self._begins)

    def between(self, first: int, end: int) -> list[BoardLine]:
        """Those from number `first` to before `end`, as far as there are so many."""
        ends = [*self._begins[first + 1 : end + 1], len(self._places)]
        return [
            self._line(first + number, self._places[begin : ends[number]])
            for number, begin in enumerate(self._begins[first:end])
        ]

    def _line(self, number: int, places: Sequence[int]) -> BoardLine:
        held, needed = (
            sum(column[place] for place in places) for column in (self._queue.held, self._queue.needed)
        )
        job_id = uuid.UUID(self._queue.ids[places[0]])
        return BoardLine(self._before + number, job_id, places[0], len(places), held, needed, self._group)


def _by(values: str) -> SortKey:
    return lambda queue: getattr(queue, values).__getitem__


def _by_name(queue: Queue) -> Callable[[int], str]:
    return queue.searched.__getitem__


def _by_owner(queue: Queue) -> Callable[[int], str]:
    names = dict(User.objects.filter(pk__in=set(queue.owners)).values_list("pk", "username"))
    return lambda place: names.get(queue.owners[place], "").lower()


SORTS: dict[str, SortKey] = {
    "state": _by("states"),
    "name": _by_name,
    "slots": _by("needed"),
    "priority": _by("priorities"),
    "weight": _by("weights"),
    "user": _by_owner,
    "submitted": _by("submitted"),
}
#: what a view may be sorted by; `priority` means the weight in a pool that has weights instead
SORTED = {PLACE, *SORTS} - {"weight"}


def _sort_key(pool: ResourcePool, name: str) -> SortKey | None:
    """None for the order of the queue, and for what the pool's policy does not have."""
    if name == "priority":
        name = next((knob for knob in pool.policy.knobs if knob in SORTS), "")
    return SORTS.get(name)


def _conditions(queue: Queue, view: QueueView) -> Iterator[Condition]:
    """What a view's filters ask of a job besides whose it is, each on its own."""
    owners, states, waits = queue.owners, queue.states, "queued"
    chips: dict[str, Condition] = {
        MINE_WAITING: lambda place: states[place] == waits,
        NEVER: queue.never.__getitem__,
        STOPPING: queue.stopping.__getitem__,
    }
    if view.show in chips:
        yield chips[view.show]
    if view.state:
        yield lambda place: states[place] == view.state
    if view.user:
        owner = User.objects.filter(username=view.user).values_list("pk", flat=True).first()
        yield lambda place: owners[place] == owner
    if view.like:
        alike = Job.objects.filter(pk=view.like).values_list("owner_id", "kind", "name", "priority").first()
        yield (
            lambda place: (
                alike
                == (
                    owners[place],
                    queue.kinds[place],
                    queue.names[place],
                    queue.priorities[place],
                )
            )
        )
    if view.text:
        yield _search(queue, view.text)


def _search(queue: Queue, text: str) -> Condition:
    """By part of the name or of its owner's, by the beginning of the job's id, by the experiment's number."""
    part = text.lower()
    owners = set(User.objects.filter(username__icontains=text).values_list("pk", flat=True))
    names = queue.searched
    return lambda place: (
        part in names[place]
        or queue.owners[place] in owners
        or queue.ids[place].startswith(part)
        or queue.entities[place] == text
    )
