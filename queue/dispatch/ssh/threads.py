"""Threads: many hosts asked side by side, so that a slow one holds up nobody but itself, and what all threads share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from django.db import connection

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Made = TypeVar("Made")


def ask_all(ask: Callable[[Asked], Answer], whom: Sequence[Asked], at_once: int) -> list[Answer]:
    """What each of them answers, so many asked at a time. What one raises is raised when those under way are done."""

    def asked(one: Asked) -> Answer:
        try:
            return ask(one)
        finally:
            connection.close()  # this thread ends with the round

    if not whom:
        return []
    with ThreadPoolExecutor(min(at_once, len(whom))) as pool:
        return list(pool.map(asked, whom))


class PerProcess(Generic[Made]):
    """What a process makes once, at first use. A forked child makes its own: threads and sockets are the parent's."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._making = threading.Lock()
        self._made: Made | None = None

    def get(self) -> Made:
        with self._making:
            if self._made is None:
                self._made = self._make()
            return self._made
