"""An open channel to the process that does verbs on a host (trainmaster/host/serving.py): no verb waits for a Python.

Any number of verbs may be under way on one channel. It lives in the asyncio thread of `connections`, ends with
its link, and costs the host one sleeping process.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

import asyncssh

from dispatch.ssh.contact_errors import RemoteError, Unreachable
from trainmaster import bounded_json

#: Larger bodies go by a command of their own: they would hold up all others on the channel.
MOST_BYTES = 1024 * 1024
_LINE_BYTES = 64 * 1024 * 1024
#: Channels of one link: hosts with one address and several workdirs, or an old bundle beside the new one.
_MOST_CHANNELS = 4
#: A channel that did not open, broke, or gave way is not opened again before this time; commands do meanwhile.
_AGAIN_SECONDS = 5.0
#: A process that has not said by then that it serves is given up, or all later verbs would wait for it too.
OPENING_SECONDS = 15.0


class NotServed(RemoteError):
    """No process that serves verbs can be had there; a command of its own for each verb may still work."""


class Writer(Protocol):
    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    async def drain(self) -> None: ...


class Reader(Protocol):
    async def readline(self) -> bytes: ...


#: opens (where the process reads, where it writes)
Opener = Callable[[], Awaitable[tuple[Writer, Reader]]]


class VerbChannel:
    """Made by `open_channel`; broken for good once `closed`.

    One that let a caller wait in vain is `doubted`: it may be frozen. It takes no new calls and closes with its last.
    """

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last = 0
        self.closed = False
        self.doubted = False
        self._reading = asyncio.ensure_future(self._read())

    @property
    def idle(self) -> bool:
        """Is nothing under way on it?"""
        return not self._waiting

    async def call(self, verb: str, stdin: bytes) -> dict[str, Any]:
        """The answer of the verb. Raises Unreachable (delivered) when the channel breaks before it comes."""
        if self.closed:
            raise Unreachable("The process that serves verbs on the host has ended.", delivered=False)
        self._last += 1
        number = self._last
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        header = json.dumps({"id": number, "verb": verb, "bytes": len(stdin)}).encode()
        try:
            self._writer.write(header + b"\n" + stdin)
            await self._writer.drain()
            return await answer
        except (asyncssh.Error, OSError) as error:
            self.close()
            raise Unreachable(
                f"The channel broke before the answer came: {error}.", delivered=True
            ) from error
        except asyncio.CancelledError:  # the caller's time is over
            self.doubted = True
            raise
        finally:
            self._waiting.pop(number, None)
            if self.doubted and self.idle:
                self.close()

    async def _read(self) -> None:
        try:
            while line := await self._reader.readline():
                said = bounded_json.loads(line)
                waiting = self._waiting.get(said["id"])
                if waiting and not waiting.done():
                    waiting.set_result(said["answer"])
        except (asyncssh.Error, OSError, ValueError, KeyError):
            pass  # as good as the end of the stream
        finally:
            self.closed = True
            for waiting in self._waiting.values():
                if not waiting.done():
                    sentence = "The process that serves verbs on the host ended before it answered."
                    waiting.set_exception(Unreachable(sentence, delivered=True))

    def close(self) -> None:
        self.closed = True
        self._reading.cancel()
        with suppress(asyncssh.Error, OSError):
            self._writer.close()


async def open_channel(opener: Opener) -> VerbChannel:
    """A channel whose process has said that it serves. Raises NotServed."""
    try:
        async with asyncio.timeout(OPENING_SECONDS):
            return await _opened(opener)
    except (asyncssh.Error, OSError) as error:
        why = str(error) or f"no answer for {OPENING_SECONDS:g} s"
        raise NotServed(f"No process that serves verbs could be started: {why}.") from error


async def _opened(opener: Opener) -> VerbChannel:
    writer, reader = await opener()
    try:
        line = await reader.readline()
        if not line.startswith(b'{"serving"'):
            raise NotServed("The program that was started on the host does not serve verbs.")
    except BaseException:
        with suppress(asyncssh.Error, OSError):
            writer.close()
        raise
    return VerbChannel(writer, reader)


class Channels:
    """The channels of one link, one for each command that serves verbs."""

    def __init__(self, opener: Callable[[str], Opener]) -> None:
        self._opener = opener
        self._opened: dict[str, asyncio.Task[VerbChannel]] = {}  # the oldest first
        self._not_before: dict[str, float] = {}

    async def get(self, command: str) -> VerbChannel:
        """The open channel, or one that is opened now; callers at the same time share it. Raises NotServed."""
        opening = self._opened.get(command)
        if opening is None or _is_over(opening):
            if time.monotonic() < self._not_before.get(command, 0.0):
                raise NotServed("The last try was a moment ago.")
            self._not_before[command] = time.monotonic() + _AGAIN_SECONDS
            self._opened.pop(command, None)
            self.close_idle(_MOST_CHANNELS - 1)
            opening = self._opened[command] = asyncio.ensure_future(open_channel(self._opener(command)))
            opening.add_done_callback(_seen)
        return await asyncio.shield(opening)

    def close_idle(self, but: int = 0) -> bool:
        """Close channels on which nothing is under way, until at most `but` are open. True: at least one was closed."""
        closed = False
        for command, opening in list(self._opened.items()):
            if len(self._opened) <= but:
                break
            if opening.done() and (_is_over(opening) or opening.result().idle):
                del self._opened[command]
                if not _is_over(opening):
                    opening.result().close()
                    self._not_before[command] = time.monotonic() + _AGAIN_SECONDS
                    closed = True
        return closed


def _is_over(opening: asyncio.Task[VerbChannel]) -> bool:
    failed = opening.done() and (opening.cancelled() or opening.exception() is not None)
    return failed or (opening.done() and (opening.result().closed or opening.result().doubted))


def _seen(opening: asyncio.Task[VerbChannel]) -> None:
    if not opening.cancelled():
        opening.exception()  # every caller may have left; mark it as seen


def over_ssh(connection: asyncssh.SSHClientConnection, command: str) -> Opener:
    """Opens `command` as a session of the connection."""

    async def opener() -> tuple[Writer, Reader]:
        process = await connection.create_process(command, encoding=None, stderr=asyncssh.DEVNULL)
        return process.stdin, process.stdout

    return opener


def on_this_machine(command: str, environment: dict[str, str]) -> Opener:
    """Opens `command` by /bin/sh as a child of this process, in a session of its own."""

    async def opener() -> tuple[Writer, Reader]:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", command,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True, env=environment, cwd="/", limit=_LINE_BYTES,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        return process.stdin, process.stdout

    return opener
