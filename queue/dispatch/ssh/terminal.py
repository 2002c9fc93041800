"""A terminal in a shell: an interactive login to its sshd, through the same door as every other way to it.

The sshd is the task's own process and may send anything. So it is spoken to without compression or forwarding, a slow
reader costs it its window, and its bytes come in small blocks with a pause after each: even a flood of empty packets
leaves the process time for all others.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import asyncssh
from django.conf import settings

from commands import shell_keys
from dispatch.ssh import doors
from dispatch.ssh.contact_errors import Unreachable
from dispatch.ssh.doors import Door
from dispatch.ssh.ssh_session import pair

#: what the shell may have printed that nobody has read yet
_WINDOW_BYTES = 128 * 1024
_READ_BYTES = 32 * 1024
#: of what comes from the sshd, encrypted: 16 KiB each 10 ms
_BLOCK_BYTES = 16 * 1024
_SECONDS_PER_BYTE = 0.01 / _BLOCK_BYTES


class Terminal:
    """An open login. Its methods raise asyncssh.Error or OSError once the connection is lost."""

    def __init__(self, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self._process = process

    async def read(self) -> bytes:
        """Return what the shell has printed; empty once the login has ended."""
        return await self._process.stdout.read(_READ_BYTES)

    async def write(self, typed: bytes) -> None:
        """Wait while the shell takes no more."""
        self._process.stdin.write(typed)
        await self._process.stdin.drain()

    def resize(self, columns: int, rows: int) -> None:
        self._process.change_terminal_size(columns, rows)


@asynccontextmanager
async def opened(
    door: Door, shell_id: object, account: str, size: tuple[int, int]
) -> AsyncIterator[Terminal]:
    """Log in to the shell behind the door, with a terminal of so many columns and rows. Raises RemoteError, also for a
    connection that is lost later."""
    connected = await doors.connect(door)
    ours, its = pair()
    ways = [
        asyncio.ensure_future(_carry(connected, ours, _SECONDS_PER_BYTE)),
        asyncio.ensure_future(_carry(ours, connected, 0)),
    ]
    connection = None
    try:
        connection = await _log_in(its, shell_id, account)
        yield Terminal(
            await connection.create_process(
                term_type="xterm-256color", term_size=size, encoding=None, window=_WINDOW_BYTES
            )
        )
    except (asyncssh.Error, OSError) as error:
        raise Unreachable(
            f"The connection to the shell was lost: {error or type(error).__name__}."
        ) from error
    finally:
        if connection is not None:
            connection.abort()  # without waiting for an sshd that may not listen
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        ours.close()
        connected.close()


async def _log_in(its: socket.socket, shell_id: object, account: str) -> asyncssh.SSHClientConnection:
    host_key = asyncssh.import_public_key(shell_keys.of_host(shell_id).public)
    return await asyncssh.connect(
        str(shell_id),  # what an error calls it: nothing is dialed
        sock=its,
        config=None,
        username=account,
        client_keys=[asyncssh.import_private_key(shell_keys.of_user(shell_id).private)],
        agent_path=None,
        preferred_auth=["publickey"],
        known_hosts=([host_key], [], []),
        server_host_key_algs=["ssh-ed25519"],
        compression_algs=None,
        keepalive_interval=settings.SSH_KEEPALIVE_SECONDS,
        login_timeout=settings.SSH_CONNECT_TIMEOUT_SECONDS,
    )


async def _carry(source: socket.socket, target: socket.socket, seconds_per_byte: float) -> None:
    """Until the source ends or either side is gone, which the other then hears."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while block := await loop.sock_recv(source, _BLOCK_BYTES):
            await loop.sock_sendall(target, block)
            await asyncio.sleep(seconds_per_byte * len(block))
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
