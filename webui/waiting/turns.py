"""Turns of users: a web process works on a few requests of one user at a time, and further ones wait in line.

Otherwise a script with fifty connections would keep everybody else waiting for as long as its requests take.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from django.conf import settings

_taken: ContextVar[Turn | None] = ContextVar("turn", default=None)


class Turn:
    """A request's place in its user's line. `give_back` may be called any number of times."""

    def __init__(self, line: asyncio.Semaphore) -> None:
        self._line: asyncio.Semaphore | None = line

    def give_back(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.release()


class Turns:
    """The lines of all users of one process. A line is forgotten when no request is in it."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[asyncio.Semaphore, int]] = {}

    async def take(self, user: str) -> Turn:
        """Wait for a turn. Raises TimeoutError after TURN_SECONDS."""
        line, waiting = self._lines.get(user) or (asyncio.Semaphore(settings.REQUESTS_AT_ONCE_PER_USER), 0)
        self._lines[user] = line, waiting + 1
        if line.locked():
            await self._wait(user, line)
        else:
            await line.acquire()  # at once
        turn = Turn(line)
        _taken.set(turn)
        return turn

    async def _wait(self, user: str, line: asyncio.Semaphore) -> None:
        try:
            async with asyncio.timeout(settings.TURN_SECONDS):
                await line.acquire()
        except BaseException:
            self.leave(user)
            raise

    def leave(self, user: str) -> None:
        """Say that a request that took a turn is over."""
        line, waiting = self._lines[user]
        if waiting > 1:
            self._lines[user] = line, waiting - 1
        else:
            del self._lines[user]


def give_back() -> None:
    """Give back the turn of the request at hand, which is about to wait."""
    turn = _taken.get()
    if turn is not None:
        turn.give_back()
