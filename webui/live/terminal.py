"""`/ws/tasks/<task id>/terminal`: a login to a shell, with its bytes in both directions.

Binary frames carry what is typed, and what the shell prints. Each side says {"taken": bytes} of what came from the
other, and sends at most WINDOW_BYTES beyond that: a flood or a long paste waits where it comes from. The client also
says {"columns", "rows"}, first and whenever its size changes. A close frame has the reason as a sentence.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress

from django.db import Error

from accounts.refusals import Code, Refusal
from accounts.rights import Right
from dispatch.ssh import terminal
from dispatch.ssh.doors import Door, RemoteError
from jobs.models import Job
from shown import tasks
from trainmaster import bounded_json
from webui.live.sockets import Closed, Socket
from webui.proxy import access
from webui.proxy.access import NoLonger, ProxyAnswer, Visit, Visitor
from webui.proxy.sockets import NOTE_SECONDS, first_of
from webui.waiting.threads import reading

WINDOW_BYTES = 128 * 1024
SIZE_MAX = 1000
#: close codes: the login has ended by itself; more was typed than was taken; the shell cannot be reached
ENDED, TOO_MUCH, UNREACHABLE = 1000, 1009, 4502


class Terminal(Socket):
    """One open terminal."""

    rights = {"GET": Right.EDIT}  # of the shell's owner and admins, as `webui.proxy.access` says

    async def connect(self) -> None:
        self._typed = bytearray()
        self._size = (80, 24)
        self._untaken = 0  # of what the shell has printed
        self._heard, self._taken = asyncio.Event(), asyncio.Event()
        self._noted = time.monotonic()
        await super().connect()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        await super().receive(text_data)
        if bytes_data and self._server is not None:
            self._typed += bytes_data
            self._heard.set()
            if len(self._typed) > WINDOW_BYTES:
                await self.close(TOO_MUCH)

    def hear(self, text: str) -> None:
        try:
            said = bounded_json.loads(text)
        except ValueError:
            return
        match said:
            case {"taken": int(count)}:
                self._untaken = max(0, self._untaken - count)
                self._taken.set()
            case {"columns": int(columns), "rows": int(rows)}:
                if 0 < columns <= SIZE_MAX and 0 < rows <= SIZE_MAX:
                    self._size = (columns, rows)
                    self._heard.set()

    async def serve(self) -> None:
        visitor = Visitor(self.scope["url_route"]["kwargs"]["task_id"], self._headers, apart=False)
        door, shell_id, account = await reading(_way, visitor)
        try:
            size = self._size
            async with terminal.opened(door, shell_id, account, size) as opened:
                await first_of(
                    self._inward(opened, size, visitor),
                    self._outward(opened, visitor),
                    access.until_it_may_not(visitor),
                )
        except RemoteError as error:
            raise Closed(UNREACHABLE, str(error)) from error
        except NoLonger as error:
            raise _closed(error.visit) from error
        raise Closed(ENDED, "You are logged out of the shell.")

    async def _inward(self, opened: terminal.Terminal, size: tuple[int, int], visitor: Visitor) -> None:
        count = 0
        while True:
            await self.send(json.dumps({"taken": count}))  # at first: it is open
            await self._heard.wait()
            self._heard.clear()
            if size != self._size:
                size = self._size
                opened.resize(*size)
            typed, self._typed = bytes(self._typed), bytearray()
            if count := len(typed):
                await self._note(visitor)
                await opened.write(typed)

    async def _outward(self, opened: terminal.Terminal, visitor: Visitor) -> None:
        while block := await opened.read():
            await self._note(visitor)
            self._untaken += len(block)
            await self.send(bytes_data=block)
            while self._untaken > WINDOW_BYTES:
                self._taken.clear()
                await self._taken.wait()

    async def _note(self, visitor: Visitor) -> None:
        """It is in use, for the idle timeout."""
        if time.monotonic() - self._noted > NOTE_SECONDS:
            self._noted = time.monotonic()
            with suppress(Error):  # the next one is recorded
                await reading(access.visit, visitor)


def _way(visitor: Visitor) -> tuple[Door, str, str]:
    """The door, id and account of the shell. Reads and writes the database. Raises Closed, Refusal."""
    visit = access.visit(visitor)
    if visit.answer != ProxyAnswer.OPEN or visit.door is None:
        raise _closed(visit)
    command = tasks.with_parts().get(pk=visit.task_id)
    if command.kind != Job.Kind.SHELL:
        raise Refusal("Only shells have a terminal.", Code.NOT_FOUND)
    return visit.door, visit.task_id, tasks.login_account(command)


def _closed(visit: Visit) -> Closed:
    status, sentence = access.SENTENCES[visit.answer]
    return Closed(4000 + status, sentence)
