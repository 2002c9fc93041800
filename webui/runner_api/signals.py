"""Looks once a second at the orders of all allocations that are polled here, in one query.

Wake-ups make long polls answer at once; a lost one costs a second, and a thousand polls still one query.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import Error

from jobs.models import Allocation
from webui.waiting.threads import reading
from webui.waiting.wakeups import LOOK_AGAIN_SECONDS, wakeups

log = logging.getLogger(__name__)

State = tuple[str, str]  # state and what kind of stop was asked for
_GONE: State = ("", "")


class Changes:
    def __init__(self) -> None:
        self._watched: Counter[str] = Counter()
        self._seen: dict[str, State] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, allocation_id: str) -> Iterator[None]:
        """As long as this lasts, changes of the allocation are announced in this process."""
        self._watched[allocation_id] += 1
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look_while_watched(), name="signals")
        try:
            yield
        finally:
            self._watched[allocation_id] -= 1
            if not self._watched[allocation_id]:
                del self._watched[allocation_id]

    async def _look_while_watched(self) -> None:
        while self._watched:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            try:
                now = await reading(_states, list(self._watched))
            except Error as error:
                log.info("cannot check for orders: %s", error)
                continue
            for allocation_id in self._watched:
                if self._seen.get(allocation_id) != now.get(allocation_id, _GONE):
                    wakeups().wake(f"allocation:{allocation_id}")
            self._seen = {name: now.get(name, _GONE) for name in self._watched}


def _states(allocation_ids: list[str]) -> dict[str, State]:
    rows = Allocation.objects.filter(pk__in=allocation_ids).values_list("pk", "state", "stop_kind")
    return {pk: (state, stop_kind) for pk, state, stop_kind in rows}


_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Changes] = weakref.WeakKeyDictionary()


def changes() -> Changes:
    return _by_loop.setdefault(asyncio.get_running_loop(), Changes())
