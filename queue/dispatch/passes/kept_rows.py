"""The rows of a pool that a process keeps from one pass to the next, so that it reads those that have changed.

What is kept is never believed by itself: each survey names the versions of all rows of its one snapshot
(`dispatch.passes.pool_rows`), and a row is taken from here only under the version that the database has named. So it
does not matter which process made the last pass, or whether that was rolled back. A version that is not here, nor
among the new rows, has all rows read. All are read every SURVEY_CHECK_SECONDS too, and compared with what is kept: a
difference is an error, and this process keeps nothing of that pool any more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from django.conf import settings

from dispatch.passes import pool_rows
from dispatch.passes.pool_rows import PoolRows, Read, Row
from scheduling.world import Request

log = logging.getLogger(__name__)

Table = dict[str, Row]


@dataclass(frozen=True, slots=True)
class Made:
    """A request, and the rows of which it was made."""

    task: Row
    job: Row
    request: Request


@dataclass
class Kept:
    """What a process keeps of a pool. `checked_at`: when all was read last, by the process's monotonic clock.

    `requests`: what `survey` made of tasks, by task id; that holds while the `surroundings` are equal, which is all
    that it made them of besides the rows of the task and its job.
    """

    pool_id: int
    server: str
    since: str
    checked_at: float
    tables: tuple[Table, Table, Table]
    surroundings: tuple[object, ...] = ()
    requests: dict[str, Made] = field(default_factory=dict)
    #: what was kept before all was read, to be compared
    former: Kept | None = None

    def check_requests(self) -> None:
        """Compare requests with those kept before of equal rows, if all was read; `tell` a difference."""
        former, self.former = self.former, None
        if former is None or former.surroundings != self.surroundings:
            return
        pairs = ((made, self.requests.get(task_id)) for task_id, made in former.requests.items())
        tell(
            self.pool_id,
            {
                old.request.task_id: (old.request, new.request)
                for old, new in pairs
                if new is not None and old.task == new.task and old.job == new.job
            },
        )


_kept: dict[int, Kept] = {}
#: pools of which something was kept wrongly
_distrusted: set[int] = set()


def read(pool_id: int) -> tuple[PoolRows, Kept]:
    """The rows of a pool as they are now, and what this process keeps of it."""
    kept = _kept.get(pool_id)
    if kept is not None and time.monotonic() - kept.checked_at <= settings.SURVEY_CHECK_SECONDS:
        found = pool_rows.read(pool_id, kept.since)
        tables = _joined(kept, found)
        if tables is not None:
            kept.since, kept.tables = found.since, tables
            return _rows(tables, found), kept
    found = pool_rows.read(pool_id)
    slots, jobs, tasks = found.kept
    now = Kept(pool_id, found.server, found.since, time.monotonic(), (slots.new, jobs.new, tasks.new))
    if kept is not None and kept.server == found.server:
        kept.former, now.former = None, kept
        for old, new in zip(kept.tables, now.tables, strict=True):
            tell(pool_id, {version: (row, new[version]) for version, row in old.items() if version in new})
    if pool_id not in _distrusted:
        _kept[pool_id] = now
    return _rows(now.tables, found), now


def read_all(pool_id: int) -> PoolRows:
    """The rows of a pool as they are now; nothing is kept."""
    found = pool_rows.read(pool_id)
    slots, jobs, tasks = found.kept
    return _rows((slots.new, jobs.new, tasks.new), found)


def tell(pool_id: int, pairs: Mapping[str, tuple[object, object]]) -> None:
    """Compare what was kept with what was read; a difference is told, and nothing is kept of this pool from now on."""
    wrong = [key for key, (kept, read) in pairs.items() if kept != read]
    if wrong:
        _distrusted.add(pool_id)
        _kept.pop(pool_id, None)
        log.error(
            "A kept survey of pool %s was wrong about %s of %s rows, first about %s: kept %s, read %s. "
            "This process now reads every row in each pass.",
            pool_id, len(wrong), len(pairs), wrong[0], *pairs[wrong[0]],
        )  # fmt: skip


def _joined(kept: Kept, found: Read) -> tuple[Table, Table, Table] | None:
    """All rows by version; None where one is missing, or the database is not the one that was read before."""
    if found.server != kept.server:
        return None
    try:
        slots, jobs, tasks = (
            {
                version: table[version] if version in table else versions.new[version]
                for version in versions.all
            }
            for table, versions in zip(kept.tables, found.kept, strict=True)
        )
    except KeyError:
        return None
    return slots, jobs, tasks


def _rows(tables: tuple[Table, Table, Table], found: Read) -> PoolRows:
    slots, jobs, tasks = tables
    return PoolRows(slots.values(), jobs.values(), tasks.values(), *found.others)
