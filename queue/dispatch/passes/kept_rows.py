"""What a process keeps of a pool from one pass to the next, so that it reads and makes again what has changed.

What is kept is never believed by itself: each survey sums up the versions of all rows of its one snapshot by blocks
(`dispatch.passes.pool_rows`), and a block is taken from here only under the sum that the database has just named. So it
does not matter which process made the last pass, or whether that was rolled back. All rows are read every
SURVEY_CHECK_SECONDS too, and compared with what is kept: a difference is an error, and this process keeps nothing of
that pool any more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from django.conf import settings

from dispatch.passes import pool_rows
from dispatch.passes.pool_rows import BLOCKS, OF_TASK, TABLES, Blocks, PoolRows, Row
from scheduling.world import HostView, Request

log = logging.getLogger(__name__)


class Table:
    """The rows of one of TABLES by blocks. `changed`: the blocks that the last read has replaced, as they were."""

    def __init__(self) -> None:
        self.sums: list[int | None] = [None] * BLOCKS
        self.rows: list[list[Row]] = [[] for _ in range(BLOCKS)]
        self.changed: dict[int, list[Row]] = {}

    def replace(self, blocks: Blocks) -> None:
        """Take these blocks in place of those that are kept."""
        self.changed = {block: self.rows[block] for block in blocks}
        for block, (sum_, rows) in blocks.items():
            self.sums[block], self.rows[block] = sum_, rows

    def news(self, key: int) -> Iterator[str]:
        """The values of a column in the rows that are new, gone, or other than they were."""
        for block, former in self.changed.items():
            now = self.rows[block]
            yield from (row[key] for row in now if row not in former)
            yield from (row[key] for row in former if row not in now)

    def all(self) -> list[Row]:
        return list(chain.from_iterable(self.rows))


class OfHost(NamedTuple):
    """What was made of the row of a host, of so many zero-slot runs there, and of the slots and what holds them."""

    row: Row
    aux_held: int
    view: HostView


@dataclass
class Kept:
    """What a process keeps of a pool. `checked_at`: when all was read last, by the process's monotonic clock.

    `requests`: what `survey` made of tasks, by task id, and `again`: those that it makes in each pass. The others hold
    while the `surroundings` are equal, which is all that it made them of besides their rows. `hosts`: what it made of
    hosts, by their ids, while `around_hosts` is equal. `aux`: the members without slots.
    """

    pool_id: int
    server: str
    checked_at: float
    tables: tuple[Table, ...]
    surroundings: tuple[object, ...] = ()
    requests: dict[str, Request] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)
    aux: list[Row] = field(default_factory=list)
    around_hosts: tuple[object, ...] = ()
    hosts: dict[str, OfHost] = field(default_factory=dict)
    #: what was kept before all was read, to be compared
    former: Kept | None = None

    def changed_hosts(self) -> frozenset[str]:
        """Ids of the hosts of which slots, or what holds them, have changed with the last read."""
        _, _, slots, holds, _ = self.tables
        return frozenset(chain(slots.news(0), holds.news(0)))

    def check(self) -> None:
        """Compare what was made with what was kept before of equal rows, if all was read; `tell` a difference."""
        former, self.former = self.former, None
        if former is None:
            return
        pairs: dict[str, tuple[object, object]] = {}
        if former.around_hosts == self.around_hosts:
            before, now = _by_host(former.tables), _by_host(self.tables)
            for host_id, was in former.hosts.items():
                made = self.hosts.get(host_id)
                if made and made[:2] == was[:2] and before.get(host_id) == now.get(host_id):
                    pairs[host_id] = was.view, made.view
        if former.surroundings == self.surroundings:
            before, now = _by_task(former), _by_task(self)
            for task_id, request in former.requests.items():
                if before.get(task_id) == now.get(task_id, ()):
                    pairs[task_id] = request, self.requests[task_id]
        tell(self.pool_id, pairs)


def _by_host(tables: Sequence[Table]) -> dict[str, list[Row]]:
    """Slots and what holds them."""
    _, _, slots, holds, _ = tables
    found: dict[str, list[Row]] = {}
    for row in chain(slots.all(), holds.all()):
        found.setdefault(row[0], []).append(row)
    return found


def _by_task(kept: Kept) -> dict[str, list[Row]]:
    """All rows of tasks whose requests are kept."""
    _, runs, _, holds, _ = kept.tables
    found = {row[0]: [row] for row in _tasks(kept.tables) if row[0] not in kept.again}
    task_of = {}
    for row in runs.all():
        task_id, allocation_id = row[OF_TASK], row[OF_TASK + 1]
        if task_id in found:
            task_of[allocation_id] = task_id
            found[task_id].append(row)
    for row in (*holds.all(), *kept.aux):
        if row[1] in task_of:
            found[task_of[row[1]]].append(row)
    return found


_kept: dict[int, Kept] = {}
#: pools of which something was kept wrongly
_distrusted: set[int] = set()


def read(pool_id: int) -> tuple[PoolRows, Kept]:
    """The rows of a pool as they are now, and what this process keeps of it."""
    kept = _kept.pop(pool_id, None)  # it is kept again once all is made of it (`keep`)
    if kept is not None and time.monotonic() - kept.checked_at <= settings.SURVEY_CHECK_SECONDS:
        found = pool_rows.read(pool_id, [table.sums for table in kept.tables])
        if found.server == kept.server:
            for table, blocks in zip(kept.tables, found.blocks, strict=True):
                table.replace(blocks)
            return _rows(kept.tables, found.others), kept
    found = pool_rows.read(pool_id)
    now = Kept(pool_id, found.server, time.monotonic(), _tables(found.blocks))
    if kept is not None and kept.server == found.server:
        kept.former, now.former = None, kept
        for name, old, new in zip(TABLES, kept.tables, now.tables, strict=True):
            same = [
                block for block, sum_ in enumerate(old.sums) if sum_ is not None and sum_ == new.sums[block]
            ]
            tell(pool_id, {f"{name} {block}": _in_one_order(old, new, block) for block in same})
    return _rows(now.tables, found.others), now


def keep(kept: Kept) -> None:
    """The next survey begins with this, unless something in it has been found wrong."""
    kept.check()
    if kept.pool_id not in _distrusted:
        _kept[kept.pool_id] = kept


def read_all(pool_id: int) -> PoolRows:
    """The rows of a pool as they are now; nothing is kept."""
    found = pool_rows.read(pool_id)
    return _rows(_tables(found.blocks), found.others)


def tell(pool_id: int, pairs: Mapping[str, tuple[object, object]]) -> None:
    """Compare what was kept with what was read; a difference is told, and nothing is kept of this pool from now on."""
    wrong = [key for key, (kept, read) in pairs.items() if kept != read]
    if wrong:
        _distrusted.add(pool_id)
        log.error(
            "A kept survey of pool %s was wrong about %s of %s parts, first about %s: kept %s, read %s. "
            "This process now reads every row in each pass.",
            pool_id, len(wrong), len(pairs), wrong[0], *pairs[wrong[0]],
        )  # fmt: skip


def _in_one_order(old: Table, new: Table, block: int) -> tuple[list[Row], list[Row]]:
    one, other = old.rows[block], new.rows[block]
    return (one, other) if one == other else (sorted(one, key=repr), sorted(other, key=repr))


def _tables(blocks: Iterable[Blocks]) -> tuple[Table, ...]:
    tables = tuple(Table() for _ in TABLES)
    for table, found in zip(tables, blocks, strict=True):
        table.replace(found)
    return tables


def _tasks(tables: Sequence[Table]) -> list[Row]:
    """What waits, and what runs with its attempt."""
    waiting, runs, *_ = tables
    return [*waiting.all(), *(row for row in runs.all() if row[0] is not None)]


def _rows(tables: Sequence[Table], others: list[list[Any]]) -> PoolRows:
    _, runs, slots, holds, hosts = tables
    attempts = [row[OF_TASK:] for row in runs.all()]
    in_order = sorted(hosts.all(), key=itemgetter(1))
    return PoolRows(_tasks(tables), attempts, slots.all(), holds.all(), in_order, *others)
