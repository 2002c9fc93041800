"""Many hosts, asked side by side in threads: one that is slow holds up nobody but itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import connection

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


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
