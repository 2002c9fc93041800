"""One open SSH connection: how many sessions may run on it, the ports that it forwards, and what goes over it.

That is a command, of which both streams are always drained, or the bytes of a channel, carried to a socket that another
thread's loop reads and writes. `dispatch.ssh.connections` opens, shares and closes connections.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import asyncssh
from django.conf import settings

from dispatch.ssh.contact_errors import SshBusy, Unreachable, WayRefused
from dispatch.ssh.relay import Running
from dispatch.ssh.verb_channel import Channels, over_ssh

#: Only the end of each stream matters (the answer is the last line), so a flood costs bounded memory.
KEEP_STDOUT_BYTES = 64 * 1024 * 1024
KEEP_STDERR_BYTES = 64 * 1024
_PIECE_BYTES = 64 * 1024
LOOPBACK = "127.0.0.1"

Ends = tuple["asyncssh.SSHReader[bytes]", "asyncssh.SSHWriter[bytes]"]


@dataclass(frozen=True)
class CommandAnswer:
    """How a command ended. `code` is its exit status, 128 + n after signal n, as a shell gives it."""

    code: int
    stdout: bytes
    stderr: bytes


class SessionLimit:
    """How many sessions may be open on one connection; learns a lower bound when sshd refuses one."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open = 0
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.open < self.limit)
            self.open += 1

    async def __aexit__(self, *_: object) -> None:
        async with self._changed:
            self.open -= 1
            self._changed.notify()

    def refused(self) -> None:
        """sshd refused a session although `limit` allowed it (the refused one is closed by now)."""
        self.limit = max(1, min(self.limit, self.open))


class _Exec(asyncssh.SSHClientSession[bytes]):
    """Collects what the command writes; `done` is set when the channel is closed."""

    def __init__(self) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: set while more may be written
        self.room = asyncio.Event()
        self.room.set()

    def pause_writing(self) -> None:
        self.room.clear()

    def resume_writing(self) -> None:
        self.room.set()

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        stream, keep = self.stdout, KEEP_STDOUT_BYTES
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            stream, keep = self.stderr, KEEP_STDERR_BYTES
        stream += data
        if len(stream) > 2 * keep:
            del stream[:-keep]

    def eof_received(self) -> bool:
        return True  # stderr may go on

    def connection_lost(self, exc: Exception | None) -> None:
        self.room.set()
        if self.done.done():
            return
        if exc is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(exc)


async def execute(
    connection: asyncssh.SSHClientConnection,
    command: str,
    stdin: bytes,
    moved: Callable[[], None] = lambda: None,
) -> CommandAnswer:
    """Run `command` to its end; `moved` is called whenever the host has taken more of `stdin`.

    ChannelOpenError: it was not started. Other asyncssh.Error, OSError: the link broke, it may have run.
    """
    channel, made = await connection.create_session(_Exec, command, encoding=None)
    session = cast("_Exec", made)
    try:
        with suppress(BrokenPipeError):  # it ended without reading; its exit status says why
            for start in range(0, len(stdin), _PIECE_BYTES):
                channel.write(stdin[start : start + _PIECE_BYTES])
                await session.room.wait()
                moved()
            channel.write_eof()
        await session.done
    finally:
        if not session.done.done():
            session.done.cancel()
            channel.abort()
    return CommandAnswer(_exit_code(channel), bytes(session.stdout), bytes(session.stderr))


def _exit_code(channel: asyncssh.SSHClientChannel[bytes]) -> int:
    code = channel.get_returncode()
    if code is None:
        raise asyncssh.ConnectionLost("the session was closed without an exit status")
    return code if code >= 0 else 128 - code


class Link:
    """One open connection and how many sessions may run on it."""

    def __init__(self, connection: asyncssh.SSHClientConnection) -> None:
        self.connection = connection
        self.sessions = SessionLimit(settings.SSH_SESSIONS_PER_HOST)
        self.used_at = time.monotonic()
        self.forwards = 0
        self.channels = Channels(lambda command: over_ssh(connection, command))

    @property
    def alive(self) -> bool:
        return not self.connection.is_closed()


class Forward:
    """A port of a host that leads back to the server, for as long as its link lives.

    `address`: where it listens, on loopback unless a relay passes it on.
    """

    def __init__(
        self,
        link: Link,
        listener: asyncssh.SSHListener,
        address: str = LOOPBACK,
        relay: Running | None = None,
    ) -> None:
        self.address = address
        self._link = link
        self._listener = listener
        self._relay = relay

    @property
    def remote_port(self) -> int:
        return self._listener.get_port()

    @property
    def listens(self) -> bool:
        """Whether sshd may have the port open yet."""
        return self._link.alive

    @property
    def alive(self) -> bool:
        return self._link.alive and (self._relay is None or self._relay.alive)

    async def close(self) -> None:
        self._link.forwards -= 1
        if self._relay is not None:
            self._relay.close()
        self._listener.close()
        await self._listener.wait_closed()


def pair() -> tuple[socket.socket, socket.socket]:
    """Two sockets that are connected to each other, for asyncio."""
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    return ends


def refusal(endpoint: str, port: int, error: asyncssh.ChannelOpenError, address: str) -> Unreachable:
    """The sentence of an sshd that did not open the way to a port, of its host or of another address."""
    own = address == LOOPBACK
    if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
        return WayRefused(
            f"{endpoint} does not forward connections to {'its own ports' if own else address}: "
            "its sshd needs AllowTcpForwarding yes or local."
        )
    return Unreachable(f"Nothing answers on port {port} of {endpoint if own else address}: {error.reason}.")


def no_session(endpoint: str, error: asyncssh.ChannelOpenError) -> SshBusy:
    """The sentence of an sshd that did not open a session."""
    return SshBusy(f"{endpoint} refused another session ({error.reason}): its sshd has reached MaxSessions.")


async def carry(ends: Ends, ours: socket.socket) -> None:
    """Both ways until both sides have said all; each side waits while the other is slow."""
    reader, writer = ends
    ways = [asyncio.ensure_future(_out(reader, ours)), asyncio.ensure_future(_in(ours, writer))]
    try:
        await asyncio.gather(*ways)
    except (asyncssh.Error, OSError):
        pass  # one side is gone, and so the other
    finally:
        for way in ways:
            way.cancel()
        with suppress(asyncssh.Error, OSError):
            writer.close()
        ours.close()


async def _out(reader: asyncssh.SSHReader[bytes], ours: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while block := await reader.read(_PIECE_BYTES):
        await loop.sock_sendall(ours, block)
    ours.shutdown(socket.SHUT_WR)


async def _in(ours: socket.socket, writer: asyncssh.SSHWriter[bytes]) -> None:
    loop = asyncio.get_running_loop()
    while block := await loop.sock_recv(ours, _PIECE_BYTES):
        writer.write(block)
        await writer.drain()
    writer.write_eof()
