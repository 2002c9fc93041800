"""An open channel to the process that does verbs on a host (trainmaster/host/serving.py): no verb waits for a Python.

Any number of verbs may be under way on one channel. It lives in the asyncio thread of `connections`, ends with
its link, and costs the host one sleeping process.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

import asyncssh

from dispatch.contact_errors import RemoteError, Unreachable

#: Larger bodies go by a command of their own: they would hold up all others on the channel.
MOST_BYTES = 1024 * 1024
_LINE_BYTES = 64 * 1024 * 1024


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
    """Made by `open_channel`; broken for good once `closed`."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last = 0
        self.closed = False
        self._reading = asyncio.ensure_future(self._read())

    async def call(self, verb: str, stdin: bytes) -> dict[str, Any]:
        """The answer of the verb. Raises Unreachable (delivered) when the channel breaks before it comes."""
        self._last += 1
        number = self._last
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
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
        finally:
            self._waiting.pop(number, None)

    async def _read(self) -> None:
        try:
            while line := await self._reader.readline():
                said = json.loads(line)
                waiting = self._waiting.get(said["id"])
                if waiting and not waiting.done():
                    waiting.set_result(said["answer"])
        except (asyncssh.Error, OSError, ValueError, KeyError):
            pass  # as good as the end of the stream
        finally:
            self.closed = True
            for waiting in self._waiting.values():
                if not waiting.done():
                    sentence = "The process that does the verbs there ended before it had answered."
                    waiting.set_exception(Unreachable(sentence, delivered=True))

    def close(self) -> None:
        self.closed = True
        self._reading.cancel()
        with suppress(asyncssh.Error, OSError):
            self._writer.close()


async def open_channel(opener: Opener) -> VerbChannel:
    """A channel whose process has said that it serves. Raises NotServed."""
    try:
        writer, reader = await opener()
        line = await reader.readline()
    except (asyncssh.Error, OSError) as error:
        raise NotServed(f"No process that serves verbs could be started: {error}.") from error
    if not line.startswith(b'{"serving"'):
        with suppress(asyncssh.Error, OSError):
            writer.close()
        raise NotServed("What was started there does not serve verbs.")
    return VerbChannel(writer, reader)


def over_ssh(connection: asyncssh.SSHClientConnection, command: str) -> Opener:
    """Opens `command` as a session of the connection."""

    async def opener() -> tuple[Writer, Reader]:
        process = await connection.create_process(command, encoding=None, stderr=asyncssh.DEVNULL)
        return process.stdin, process.stdout  # type: ignore[return-value]  # bytes, for encoding is None

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
