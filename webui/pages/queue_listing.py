"""Which jobs a view of a queue lists, and how many there are of each kind: one statement, however long the queue.

A job stands in its pool's queue while it wants or holds something there. Its place counts from 0 in the order
(priority, position, id) of a priority pool, and in the order of the last pass elsewhere. Jobs that stand next to each
other and differ in nothing but their number fold into one line once there are FOLD_FROM of them.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from hosts.models import ResourcePool
from webui.pages import queue_plan, queue_view
from webui.pages.queue_view import PER_PAGE, View

#: so many alike are one line
FOLD_FROM = 10
#: lines of a person's own jobs where the page opens
MINE_LINES = 20
#: lines of each other group there
OTHERS_LINES = 8

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


_QUEUE = """
WITH live AS (
  SELECT job_id, sum(slots)::int AS needed, count(*)::int AS tasks, max(slots) AS largest
  FROM jobs_task WHERE state IN ('WAITING', 'RUNNING') GROUP BY job_id
), holding AS (
  SELECT t.job_id, sum(a.slots)::int AS held, bool_and(a.on_sufferance) AS backfilled,
         bool_or(a.stop_kind <> '') AS stopping
  FROM jobs_allocation a JOIN jobs_task t ON t.id = a.task_id WHERE a.state <> 'TERMINATED' GROUP BY t.job_id
), never AS (
  SELECT DISTINCT job_id FROM jobs_task WHERE id = ANY(%(never)s)
), lined AS MATERIALIZED (
  SELECT j.id, j.owner_id, coalesce(holding.held, 0) AS held, greatest(live.needed, holding.held, 0) AS needed,
         CASE WHEN holding.job_id IS NULL THEN 'queued' WHEN holding.backfilled THEN 'backfilled' ELSE 'scheduled' END
           AS state,
         coalesce(holding.stopping, false) AS stopping, never.job_id IS NOT NULL AND holding.job_id IS NULL AS never,
         hash_record_extended((j.owner_id, j.kind, j.name, j.priority, j.weight, live.needed, live.tasks, live.largest,
                               holding.job_id IS NULL, holding.backfilled, never.job_id IS NULL), 0) AS likeness,
         row_number() OVER (ORDER BY {order}) - 1 AS place
  FROM jobs_job j LEFT JOIN live ON live.job_id = j.id LEFT JOIN holding ON holding.job_id = j.id
  LEFT JOIN never ON never.job_id = j.id {planned}
  WHERE j.pool_id = %(pool)s AND j.state <> 'ENDED'
    AND (holding.job_id IS NOT NULL OR j.state = 'ACTIVE' AND live.job_id IS NOT NULL)
), owners AS (
  SELECT owner_id, count(*) AS "all", count(*) FILTER (WHERE state = 'queued') AS queued,
         count(*) FILTER (WHERE state <> 'queued') AS scheduled,
         count(*) FILTER (WHERE state = 'backfilled') AS backfilled,
         count(*) FILTER (WHERE never) AS "never-fits", count(*) FILTER (WHERE stopping) AS "being-stopped"
  FROM lined GROUP BY owner_id
)"""
#: the order of the last pass, for a pool that keeps none of its own
_PLANNED = """LEFT JOIN (
    SELECT each.id, each.n FROM hosts_resourcepool,
           jsonb_array_elements_text(coalesce(plan->'order', '[]')) WITH ORDINALITY AS each(id, n)
    WHERE hosts_resourcepool.id = %(pool)s
  ) AS planned ON planned.id = j.id::text"""
_LINES = """
, wanted AS (
  SELECT l.*, {group} AS part {columns} FROM lined l {join} WHERE {filter}
), spotted AS (
  SELECT id, place, part, held, needed, likeness, row_number() OVER (ORDER BY part, {sort}) AS spot FROM wanted
), marked AS (
  SELECT *, (likeness, part) IS DISTINCT FROM lag((likeness, part)) OVER (ORDER BY spot) AS first FROM spotted
), numbered AS (
  SELECT *, count(*) FILTER (WHERE first) OVER (ORDER BY spot) AS run FROM marked
), counted AS (
  SELECT *, count(*) OVER together AS alike, sum(held) OVER together AS all_held,
         sum(needed) OVER together AS all_needed
  FROM numbered WINDOW together AS (PARTITION BY run)
), shown AS MATERIALIZED (
  SELECT id, place, part, CASE WHEN folds THEN alike ELSE 1 END AS alike,
         CASE WHEN folds THEN all_held ELSE held END AS held, CASE WHEN folds THEN all_needed ELSE needed END AS needed,
         row_number() OVER (ORDER BY spot) - 1 AS line, row_number() OVER (PARTITION BY part ORDER BY spot) AS in_part
  FROM (SELECT *, alike >= %(fold)s AS folds FROM counted) AS each WHERE first OR NOT folds
)
SELECT (SELECT jsonb_agg(to_jsonb(owners)) FROM owners), (SELECT count(*) FROM shown), (SELECT sum(alike) FROM shown),
       shown.line, shown.id, shown.place, shown.alike, shown.held, shown.needed, shown.part
FROM (SELECT 1) AS always LEFT JOIN shown ON {slice} ORDER BY shown.line
"""
#: column -> the order that a click on its head asks for
_SORTS = {
    "state": "state {d}, place",
    "name": "lower(name) {d}, place",
    "slots": "needed {d}, place",
    "priority": "{rank} {d}, place",
    "user": "(SELECT lower(username) FROM accounts_user WHERE id = owner_id) {d}, place",
    "submitted": "submitted_at {d}, place",
}


def of(pool: ResourcePool, view: View, me: int) -> Listing:
    """The lines of a view's pages."""
    spans = " OR ".join(
        f"shown.line BETWEEN {(page - 1) * PER_PAGE} AND {page * PER_PAGE - 1}" for page in view.pages
    )
    return _fetch(pool, view, me, _filter(view, me), f"({spans})")


#: the head of those that wait, long enough for a few lines after folding
_NEXT_ONES = """l.state = 'queued' AND NOT l.never
  AND l.place < (SELECT min(head.place) + 1000 FROM lined head WHERE head.state = 'queued' AND NOT head.never)"""


def opening(pool: ResourcePool, me: int, departures: list[uuid.UUID], blockers: list[uuid.UUID]) -> Listing:
    """The lines that the page opens on: one's own jobs (group 0), departures in the given order (1), blockers (2).

    Where too few departures are known, those that wait next in the queue follow them.
    """
    next_ones = _NEXT_ONES if len(departures) < OTHERS_LINES else "false"
    group = (
        f"CASE WHEN l.owner_id = %s THEN 0 WHEN l.id = ANY(%s) OR {next_ones} THEN 1 ELSE 2 END",
        [me, departures],
    )
    some: Condition = (f"l.owner_id = %s OR l.id = ANY(%s) OR {next_ones}", [me, departures + blockers])
    sort: Condition = ("CASE WHEN part = 1 THEN array_position(%s, id) END, place", [departures])
    span = f"shown.in_part <= CASE WHEN shown.part = 0 THEN {MINE_LINES} ELSE {OTHERS_LINES} END"
    return _fetch(pool, View(), me, some, span, group, sort)


def line_of(pool: ResourcePool, job_id: uuid.UUID) -> Line | None:
    """The line of one job, None when it stands in no queue."""
    found = _fetch(pool, View(), 0, ("l.id = %s", [job_id]), "true")
    return found.lines[0] if found.lines else None


def _fetch(
    pool: ResourcePool,
    view: View,
    me: int,
    condition: Condition,
    span: str,
    group: Condition = ("0", []),
    sort: Condition | None = None,
) -> Listing:
    values: dict[str, Any] = {"pool": pool.pk, "never": queue_plan.of(pool).never}
    values["fold"] = 2**31 - 1 if view.like else FOLD_FROM
    reads_jobs = bool(view.text or view.like or view.sort != "place")
    statement = _queue(pool) + _LINES.format(
        group=_named(group, "group", values),
        filter=_named(condition, "filter", values),
        sort=_named(sort or _sort(pool, view), "sort", values),
        slice=span,
        join="JOIN jobs_job j ON j.id = l.id" if reads_jobs else "",
        columns=", j.name, j.priority, j.weight, j.submitted_at" if reads_jobs else "",
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        rows = cursor.fetchall()
    return _listing(rows, me)


def _queue(pool: ResourcePool) -> str:
    if pool.scheduler == ResourcePool.Scheduler.PRIORITY:
        return _QUEUE.format(order="j.priority, j.position, j.id", planned="")
    return _QUEUE.format(order="planned.n NULLS LAST, j.position, j.id", planned=_PLANNED)


def _named(condition: Condition, name: str, values: dict[str, Any]) -> str:
    """The condition with its `%s` as named parameters, which are put into `values`."""
    text, parameters = condition
    names = [f"{name}_{number}" for number, _ in enumerate(parameters)]
    values.update(zip(names, parameters, strict=True))
    return text % tuple(f"%({each})s" for each in names)


def _sort(pool: ResourcePool, view: View) -> Condition:
    rank = "priority" if pool.scheduler == ResourcePool.Scheduler.PRIORITY else "weight"
    way = "DESC" if view.descending else "ASC"
    if view.sort == "place":
        return f"place {way}", []
    return _SORTS[view.sort].format(d=way, rank=rank), []


def _filter(view: View, me: int) -> Condition:
    """The SQL condition of a view's filters, over lines `l` and, for some, their jobs `j`."""
    parts: list[Condition] = [("true", [])]
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
    return " AND ".join(f"({text})" for text, _ in parts), [value for _, values in parts for value in values]


_LIKE = """(j.owner_id, j.kind, j.name, j.priority) =
  (SELECT o.owner_id, o.kind, o.name, o.priority FROM jobs_job o WHERE o.id = %s)"""


def _search(text: str) -> Condition:
    """By part of the name or of its owner's, by the beginning of the job's id, by the experiment's number."""
    plain = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    owner = "l.owner_id IN (SELECT id FROM accounts_user WHERE username ILIKE %s)"
    return (
        f"j.name ILIKE %s OR {owner} OR j.id::text LIKE %s OR j.entity_id = %s",
        [f"%{plain}%", f"%{plain}%", f"{plain.lower()}%", text],
    )


def _listing(rows: list[tuple[Any, ...]], me: int) -> Listing:
    owners: list[dict[str, int]] = json.loads(rows[0][0] or "[]")
    mine = next((each for each in owners if each["owner_id"] == me), {})
    counts = {name: sum(each[name] for each in owners) for name in _COUNTED}
    counts |= {queue_view.MINE: mine.get("all", 0), queue_view.MINE_WAITING: mine.get("queued", 0)}
    return Listing(
        lines=[
            Line(int(line), job_id, int(place), int(alike), int(held or 0), int(needed or 0), int(part or 0))
            for *_, line, job_id, place, alike, held, needed, part in rows
            if job_id is not None
        ],
        length=rows[0][1],
        jobs=int(rows[0][2] or 0),
        counts=counts,
        owners={each["owner_id"]: each["all"] for each in owners},
    )


_COUNTED = ("all", "queued", "scheduled", "backfilled", queue_view.NEVER, queue_view.STOPPING)
