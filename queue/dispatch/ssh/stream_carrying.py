"""Bytes between a channel of an SSH connection and a socket that another thread's loop reads and writes."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import asyncssh

from dispatch.ssh.contact_errors import Unreachable, WayRefused

Ends = tuple["asyncssh.SSHReader[bytes]", "asyncssh.SSHWriter[bytes]"]

_BLOCK_BYTES = 65536


def pair() -> tuple[socket.socket, socket.socket]:
    """Two sockets that are connected to each other, for asyncio."""
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    return ends


def refusal(endpoint: str, port: int, error: asyncssh.ChannelOpenError) -> Unreachable:
    """The sentence of an sshd that did not open the way to a port."""
    if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
        return WayRefused(
            f"{endpoint} does not forward connections to its own ports: its sshd needs AllowTcpForwarding yes or local."
        )
    return Unreachable(f"Nothing answers on port {port} of {endpoint}: {error.reason}.")


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
    while block := await reader.read(_BLOCK_BYTES):
        await loop.sock_sendall(ours, block)
    ours.shutdown(socket.SHUT_WR)


async def _in(ours: socket.socket, writer: asyncssh.SSHWriter[bytes]) -> None:
    loop = asyncio.get_running_loop()
    while block := await loop.sock_recv(ours, _BLOCK_BYTES):
        writer.write(block)
        await writer.drain()
    writer.write_eof()
