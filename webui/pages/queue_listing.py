"""Which jobs a view of a queue lists, and how many there are of each kind: one statement, however long the queue.

A job stands in its pool's queue while it wants or holds something there. Its place counts from 0 in the order
(priority, position, id) of a priority pool, and in the order of the last pass elsewhere. Jobs that stand next to each
other and differ in nothing but their number fold into one line once there are FOLD_FROM of them.

PostgreSQL joins, and gives a narrow row of every job; ordering, counting and folding those here takes a few
milliseconds for 10,000, a third of what sorts and window functions take for it.
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress, count, islice, pairwise
from operator import itemgetter
from typing import Any

from django.db import connection

from dispatch import last_plan
from hosts.models import ResourcePool
from webui.pages import queue_view
from webui.pages.queue_view import PER_PAGE, View

#: so many alike are one line
FOLD_FROM = 10
#: lines of a person's own jobs where the page opens
MINE_LINES = 20
#: lines of each other group there
OTHERS_LINES = 8
#: of those that wait next, the head: long enough for a few lines after folding
HEAD_JOBS = 1000
#: the column of the statement that a priority pool's order begins with
_PRIORITY = 8

#: what is counted of the whole queue
_COUNTED = (
    *("all", "queued", "scheduled", "backfilled"),
    *(queue_view.NEVER, queue_view.STOPPING, queue_view.MINE, queue_view.MINE_WAITING),
)
Condition = tuple[str, list[Any]]


@dataclass(frozen=True)
class Line:
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
    """The lines asked for, and the counts of the whole queue."""

    lines: list[Line] = field(default_factory=list)
    #: lines of the view in all, and the jobs that they stand for
    length: int = 0
    jobs: int = 0
    #: chip -> jobs; `scheduled`, `queued` and `backfilled` too
    counts: dict[str, int] = field(default_factory=dict)
    #: user id -> jobs
    owners: dict[int, int] = field(default_factory=dict)

    @property
    def pages(self) -> int:
        return max(1, -(-self.length // PER_PAGE))


@dataclass(frozen=True)
class _Queue:
    """The jobs of a queue in its order, so by place: a column of values each, which is quicker than as many objects."""

    ids: Sequence[str] = ()
    owners: Sequence[int] = ()
    states: Sequence[str] = ()
    never: Sequence[bool] = ()
    stopping: Sequence[bool] = ()
    held: Sequence[int] = ()
    needed: Sequence[int] = ()
    #: a hash of what folding compares
    likeness: Sequence[int] = ()
    priorities: Sequence[int] = ()
    #: of a view that narrows or sorts: whether it lists the job, and the place in its order
    wanted: Sequence[bool] = ()
    spots: Sequence[int] = ()


# One aggregate over the join, since grouping the tasks first and joining afterwards takes twice as long.
_QUEUE = """
WITH holding AS (
  SELECT t.job_id, sum(a.slots)::int AS held, bool_and(a.on_sufferance) AS backfilled,
         bool_or(a.stop_kind <> '') AS stopping
  FROM jobs_allocation a JOIN jobs_task t ON t.id = a.task_id WHERE a.state <> 'TERMINATED' GROUP BY t.job_id
), asked AS (
  SELECT j.id, j.owner_id, j.kind, j.name, j.entity_id, j.priority, j.weight, j.position, j.submitted_at, j.state,
         sum(t.slots)::int AS needed, count(t.id)::int AS tasks, max(t.slots) AS largest,
         coalesce(bool_or(t.id = ANY(%(never)s::text[])), false) AS never
  FROM jobs_job j LEFT JOIN jobs_task t ON t.job_id = j.id AND t.state IN ('WAITING', 'RUNNING')
  WHERE j.pool_id = %(pool)s AND j.state <> 'ENDED' GROUP BY j.id
), lined AS (
  SELECT j.id, j.owner_id, j.kind, j.name, j.entity_id, j.priority, j.weight, j.position, j.submitted_at,
         coalesce(holding.held, 0) AS held, greatest(j.needed, holding.held, 0) AS needed,
         CASE WHEN holding.job_id IS NULL THEN 'queued' WHEN holding.backfilled THEN 'backfilled' ELSE 'scheduled' END
           AS state,
         coalesce(holding.stopping, false) AS stopping, j.never AND holding.job_id IS NULL AS never,
         hash_record_extended((j.owner_id, j.kind, j.name, j.priority, j.weight, j.needed, j.tasks, j.largest,
                               holding.job_id IS NULL, holding.backfilled, j.never), 0) AS likeness
  FROM asked j LEFT JOIN holding ON holding.job_id = j.id
  WHERE holding.job_id IS NOT NULL OR j.state = 'ACTIVE' AND j.tasks > 0
)
SELECT l.id::text, owner_id, state, never, stopping, held, needed, likeness, priority {more}
FROM lined l {planned} ORDER BY {order}
"""
#: the order of the last pass, for a pool that keeps none of its own
_PLANNED = """LEFT JOIN (
    SELECT each.id, each.n FROM hosts_poolplan,
           jsonb_array_elements_text(coalesce(document->'order', '[]')) WITH ORDINALITY AS each(id, n)
    WHERE pool_id = %(pool)s
  ) AS planned ON planned.id = l.id::text"""
#: column -> the order that a click on its head asks for, before the place
_SORTS = {
    "state": "state",
    "name": "lower(name)",
    "slots": "needed",
    "priority": "priority",
    "weight": "weight",
    "user": "(SELECT lower(username) FROM accounts_user WHERE id = owner_id)",
    "submitted": "submitted_at",
}


def of(pool: ResourcePool, view: View, me: int) -> Listing:
    """The lines of a view's pages."""
    queue = _fetch(pool, view, _filter(view, me))
    chosen = [*compress(count(), queue.wanted)] if queue.wanted else [*range(len(queue.ids))]
    if view.sort != "place":
        chosen.sort(key=queue.spots.__getitem__)
    elif view.descending:
        chosen.reverse()
    listing = _counted(queue, me)
    lines = _Lines(queue, chosen, len(chosen) + 1 if view.like else FOLD_FROM)
    listing.length, listing.jobs = len(lines), len(chosen)
    for page in view.pages:
        listing.lines += lines.between((page - 1) * PER_PAGE, page * PER_PAGE)
    return listing


def opening(pool: ResourcePool, me: int, departures: list[uuid.UUID], blockers: list[uuid.UUID]) -> Listing:
    """The lines that the page opens on: one's own jobs (group 0), departures in the given order (1), blockers (2).

    Where too few departures are known, those that wait next in the queue follow them.
    """
    queue = _fetch(pool)
    groups = _opening_groups(queue, me, [str(job) for job in departures], [str(job) for job in blockers])
    listing = _counted(queue, me)
    for group, chosen in enumerate(groups):
        lines = _Lines(queue, chosen, FOLD_FROM, group, listing.length)
        listing.lines += lines.between(0, OTHERS_LINES if group else MINE_LINES)
        listing.length += len(lines)
        listing.jobs += len(chosen)
    return listing


def _opening_groups(queue: _Queue, me: int, departures: list[str], blockers: list[str]) -> list[list[int]]:
    """The places of each group's jobs."""
    mine = [place for place, owner in enumerate(queue.owners) if owner == me]
    places = {job_id: place for place, job_id in enumerate(queue.ids)}
    others = places.keys() - {queue.ids[place] for place in mine}
    departing = [places[job_id] for job_id in departures if job_id in others]
    if len(departures) < OTHERS_LINES:
        waits = zip(count(), queue.states, queue.never, queue.owners)
        heads = (
            place for place, state, never, owner in waits if state == "queued" and not never and owner != me
        )
        departing = [*dict.fromkeys([*departing, *islice(heads, HEAD_JOBS)])]
    blocking = {places[job_id] for job_id in blockers if job_id in others}.difference(departing)
    return [mine, departing, sorted(blocking)]


def line_of(pool: ResourcePool, job_id: uuid.UUID) -> Line | None:
    """The line of one job, None when it stands in no queue."""
    queue, wanted = _fetch(pool), str(job_id)
    chosen = [queue.ids.index(wanted)] if wanted in queue.ids else []
    return next(iter(_Lines(queue, chosen, FOLD_FROM).between(0, 1)), None)


def _fetch(pool: ResourcePool, view: View | None = None, wanted: Condition | None = None) -> _Queue:
    """Every job of the queue."""
    view = view or View()
    ordered = pool.scheduler == ResourcePool.Scheduler.PRIORITY
    values: dict[str, Any] = {"pool": pool.pk, "never": last_plan.of(pool).never}
    more = f", {_named(wanted, values)}, {_spot(view, ordered)}" if wanted or view.sort != "place" else ""
    statement = _QUEUE.format(
        more=more,
        planned="" if ordered else _PLANNED,
        order="l.position, l.id" if ordered else "planned.n NULLS LAST, l.position, l.id",
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        rows = cursor.fetchall()
    if ordered:  # of few values and in order within each: a tenth of what PostgreSQL takes to sort by both
        rows.sort(key=itemgetter(_PRIORITY))
    return _Queue(*zip(*rows, strict=True))


def _named(condition: Condition | None, values: dict[str, Any]) -> str:
    """The condition with its `%s` as named parameters, which are put into `values`."""
    text, parameters = condition or ("true", [])
    names = [f"wanted_{number}" for number, _ in enumerate(parameters)]
    values.update(zip(names, parameters, strict=True))
    return text % tuple(f"%({each})s" for each in names)


def _spot(view: View, ordered: bool) -> str:
    """The place in the order of a column; those that are equal there keep their order in the queue."""
    if view.sort == "place":
        return "0"
    column = "weight" if view.sort == "priority" and not ordered else view.sort
    return f"dense_rank() OVER (ORDER BY {_SORTS[column]} {'DESC' if view.descending else 'ASC'})"


def _counted(queue: _Queue, me: int) -> Listing:
    """A listing without lines: the counts of the whole queue."""
    owners: dict[int, int] = defaultdict(int)
    counts = dict.fromkeys(_COUNTED, 0)
    alike = Counter(zip(queue.owners, queue.states, queue.never, queue.stopping, strict=True))
    for (owner, state, never, stopping), jobs in alike.items():
        waits, mine = state == "queued", owner == me
        owners[owner] += jobs
        is_counted = (True, waits, not waits, state == "backfilled", never, stopping, mine, mine and waits)
        for name in compress(_COUNTED, is_counted):
            counts[name] += jobs
    return Listing(counts=counts, owners=dict(owners))


class _Lines:
    """The lines of the jobs at these places, in this order: many alike next to each other are one."""

    def __init__(
        self, queue: _Queue, places: Sequence[int], fold_from: int, group: int = 0, before: int = 0
    ) -> None:
        self._queue = queue
        self._places = places
        self._group = group
        self._before = before
        likeness = [queue.likeness[place] for place in places]
        begins = [spot for spot, like in enumerate(likeness) if not spot or like != likeness[spot - 1]]
        #: where each line begins in `places`
        self._begins: list[int] = []
        for begin, end in pairwise([*begins, len(places)]):
            self._begins += [begin] if end - begin >= fold_from else range(begin, end)

    def __len__(self) -> int:
        return len(self._begins)

    def between(self, first: int, end: int) -> list[Line]:
        """Those from number `first` to before `end`, as far as there are so many."""
        ends = [*self._begins[first + 1 : end + 1], len(self._places)]
        return [
            self._line(first + number, self._places[begin : ends[number]])
            for number, begin in enumerate(self._begins[first:end])
        ]

    def _line(self, number: int, places: Sequence[int]) -> Line:
        held, needed = (
            sum(column[place] for place in places) for column in (self._queue.held, self._queue.needed)
        )
        job_id = uuid.UUID(self._queue.ids[places[0]])
        return Line(self._before + number, job_id, places[0], len(places), held, needed, self._group)


def _filter(view: View, me: int) -> Condition | None:
    """The SQL condition of a view's filters, over lines `l`."""
    parts: list[Condition] = []
    chips: dict[str, Condition] = {
        queue_view.MINE: ("l.owner_id = %s", [me]),
        queue_view.MINE_WAITING: ("l.owner_id = %s AND l.state = 'queued'", [me]),
        queue_view.NEVER: ("l.never", []),
        queue_view.STOPPING: ("l.stopping", []),
    }
    if view.show in chips:
        parts.append(chips[view.show])
    if view.state:
        parts.append(("l.state = %s", [view.state]))
    if view.user:
        parts.append(("l.owner_id = (SELECT id FROM accounts_user WHERE username = %s)", [view.user]))
    if view.like:
        parts.append((_LIKE, [view.like]))
    if view.text:
        parts.append(_search(view.text))
    if not parts:
        return None
    return " AND ".join(f"({text})" for text, _ in parts), [value for _, values in parts for value in values]


_LIKE = """(l.owner_id, l.kind, l.name, l.priority) =
  (SELECT o.owner_id, o.kind, o.name, o.priority FROM jobs_job o WHERE o.id = %s)"""


def _search(text: str) -> Condition:
    """By part of the name or of its owner's, by the beginning of the job's id, by the experiment's number."""
    plain = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    owner = "l.owner_id IN (SELECT id FROM accounts_user WHERE username ILIKE %s)"
    return (
        f"l.name ILIKE %s OR {owner} OR l.id::text LIKE %s OR l.entity_id = %s",
        [f"%{plain}%", f"%{plain}%", f"{plain.lower()}%", text],
    )
