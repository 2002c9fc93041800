"""One look for all: what each watched task's log has come to, read once per process and task, not per viewer."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import Error

from jobs.models import Task
from jobs.states import TaskState
from logs import read, store
from logs.models import RankSeen
from webui.live.threads import reading
from webui.live.wakeups import LOOK_AGAIN_SECONDS, wakeups

#: A flood announces each of its batches; looking more often than this only heats the processor.
LOOK_SECONDS_MIN = 0.02
RANKS_SECONDS = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rank:
    """A rank that has written; -1 stands for lines outside any rank. `last_time` is its host's clock."""

    rank: int
    host: str
    lines: int
    last_time: float


class Tail:
    """The end of one task's log. `looked_at` is None until the first good look, `exists` False without a task."""

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        self.exists = True
        self.newest = 0
        self.ended = False
        self.ranks: list[Rank] = []
        self.looked_at: float | None = None
        self._ranks_at = 0.0
        self._nudges: set[asyncio.Event] = set()

    def join(self, nudge: asyncio.Event) -> None:
        self._nudges.add(nudge)

    def leave(self, nudge: asyncio.Event) -> bool:
        """True when nobody follows any more."""
        self._nudges.discard(nudge)
        return not self._nudges

    async def follow(self) -> None:
        """Look at each wake-up and once a second, for as long as the task of this coroutine lives."""
        with wakeups().watch(f"log:{self.task_id}", f"task:{self.task_id}") as watch:
            while True:
                try:
                    await self._look()
                except (
                    Error
                ) as error:  # viewers see the age of what they have grow; the next look may succeed
                    log.info("the log of %s is not looked at: %s", self.task_id, error)
                await asyncio.sleep(LOOK_SECONDS_MIN)
                await watch.wait(LOOK_AGAIN_SECONDS)

    async def _look(self) -> None:
        now = time.monotonic()
        with_ranks = now - self._ranks_at >= RANKS_SECONDS
        found = await reading(_look, self.task_id, with_ranks=with_ranks, ended_before=self.ended)
        before = (self.exists, self.newest, self.ended, self.looked_at is None)
        if found is None:
            self.exists = False
        else:
            self.newest, self.ended, ranks = found
            if with_ranks:
                self.ranks, self._ranks_at = ranks, now
        self.looked_at = now
        if before != (self.exists, self.newest, self.ended, False):
            for nudge in self._nudges:
                nudge.set()


def _look(task_id: str, *, with_ranks: bool, ended_before: bool) -> tuple[int, bool, list[Rank]] | None:
    state = Task.objects.filter(pk=task_id).values_list("state", flat=True).first()
    if state is None:
        return None
    ended = state == TaskState.ENDED
    if ended and not ended_before:
        store.merge_events(task_id)  # so that the last line says how it ended
    ranks = _ranks(task_id) if with_ranks else []
    return read.last_number(task_id), ended, ranks


def _ranks(task_id: str) -> list[Rank]:
    rows = RankSeen.objects.filter(task_id=task_id).values_list("rank", "host", "lines", "last_time")
    newest: dict[int, Rank] = {}
    for rank, host, lines, last_time in rows:  # a rank that moved between hosts is one chip
        known = newest.get(rank)
        if known is None:
            newest[rank] = Rank(rank, host, lines, last_time)
        else:
            later = host if last_time > known.last_time else known.host
            newest[rank] = Rank(rank, later, lines + known.lines, max(last_time, known.last_time))
    return [newest[rank] for rank in sorted(newest)]


class Tails:
    def __init__(self) -> None:
        self._tails: dict[str, tuple[Tail, asyncio.Task[None]]] = {}

    @contextmanager
    def following(self, task_id: str, nudge: asyncio.Event) -> Iterator[Tail]:
        """The task's tail; `nudge` is set whenever it has grown, and at its first look."""
        if task_id not in self._tails or self._tails[task_id][1].done():
            tail = Tail(task_id)
            self._tails[task_id] = (tail, asyncio.get_running_loop().create_task(tail.follow()))
        tail, follower = self._tails[task_id]
        tail.join(nudge)
        try:
            yield tail
        finally:
            if tail.leave(nudge):
                follower.cancel()
                if self._tails.get(task_id, (None,))[0] is tail:
                    del self._tails[task_id]


_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Tails] = weakref.WeakKeyDictionary()


def tails() -> Tails:
    return _by_loop.setdefault(asyncio.get_running_loop(), Tails())
