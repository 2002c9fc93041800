"""The door of a task's service: a port of the host's loopback that opens for the server alone.

On a node of a Slurm cluster, which the server reaches by its login node, it is a port of all the node's addresses. Any
account of the host, or of the cluster, can dial it, and may read what others say to it. So nobody is let in who does
not prove the run's secret for a word that the door has made for this connection; what lies behind is a socket or a
program that only the run's own account can reach.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import re
import secrets
import socket
from collections import OrderedDict
from typing import Awaitable, Callable, Optional, Tuple

Ends = Tuple[asyncio.StreamReader, asyncio.StreamWriter]
#: opens a new connection to the service; OSError where it does not take one
Opener = Callable[[], Awaitable[Ends]]

#: where a door listens, and where it is dialled, each if nothing else is said
LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"
_HANDSHAKE_SECONDS = 10.0
_BLOCK_BYTES = 65536
#: connections that have not proved themselves; beyond it the oldest is dropped
_MOST_UNPROVED = 256
#: first lines that are known again; an older one opens a connection to the service, which gets nothing
_MOST_USED = 4096


class Door:
    """Lets the server in. `port` is known once it is `opened`."""

    def __init__(self, secret: str, run_key: str, opener: Opener) -> None:
        self._secret, self._key, self._opener = secret, run_key, opener
        self.port = 0
        self._unproved: "OrderedDict[asyncio.StreamWriter, None]" = OrderedDict()
        self._used: "OrderedDict[str, None]" = OrderedDict()

    async def open(self, wanted: int, address: str = LOOPBACK) -> None:
        """Listen on the wanted port, or on any free one where another program has it."""
        for port in (wanted, 0):
            try:
                server = await asyncio.start_server(self._let_in, address, port)
            except OSError:
                if port == 0:
                    raise
                continue
            self.port = server.sockets[0].getsockname()[1]
            return

    async def _let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._unproved[writer] = None
        if len(self._unproved) > _MOST_UNPROVED:
            self._unproved.popitem(last=False)[0].transport.abort()
        inner: Optional[Ends] = None
        try:
            line = await asyncio.wait_for(reader.readexactly(HELLO_BYTES), _HANDSHAKE_SECONDS)
            nonce = nonce_of(self._secret, self._key, line)
            if nonce is None or not self._is_new(nonce):
                return
            inner = await self._opener()
            challenge = secrets.token_hex(16)
            writer.write(answer(self._secret, self._key, nonce) + f" {challenge}\n".encode())
            said = await asyncio.wait_for(reader.readexactly(ENTRY_BYTES), _HANDSHAKE_SECONDS)
            if not hmac.compare_digest(said, entry(self._secret, self._key, self.port, challenge)):
                return
            self._unproved.pop(writer, None)
            await join((reader, writer), inner)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            return
        finally:
            self._unproved.pop(writer, None)
            if inner is not None:
                close(inner[1])
            close(writer)

    def _is_new(self, nonce: str) -> bool:
        if nonce in self._used:
            return False
        self._used[nonce] = None
        if len(self._used) > _MOST_USED:
            self._used.popitem(last=False)
        return True


async def join(one: Ends, other: Ends) -> None:
    """Carry bytes both ways until both sides have said all; each side waits while the other is slow."""
    ways = [
        asyncio.ensure_future(_carry(one[0], other[1])),
        asyncio.ensure_future(_carry(other[0], one[1])),
    ]
    try:
        await asyncio.gather(*ways)
    except (OSError, asyncio.IncompleteReadError):
        pass  # one side is gone, and so the other
    finally:
        for way in ways:
            way.cancel()
        close(one[1])
        close(other[1])


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        block = await reader.read(_BLOCK_BYTES)
        if not block:
            break
        writer.write(block)
        await writer.drain()
    if writer.can_write_eof():
        with contextlib.suppress(OSError):
            writer.write_eof()


def close(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()


def to_port(port: int) -> Opener:
    """Leads to a program that listens on a port of the loopback."""

    async def opener() -> Ends:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        connected = writer.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return reader, writer

    return opener


# --- how a door and the server know each other: both prove the run's secret (docs/protocol.md, "Doors") -------

#: of the server's first line, newline included; of the door's proof, and of the word that follows it; of the server's
#: second line, newline included
HELLO_BYTES = 32 + 1 + 64 + 1
ANSWER_BYTES = 64
CHALLENGE_BYTES = 1 + 32 + 1
ENTRY_BYTES = 64 + 1
_HELLO = re.compile(r"([0-9a-f]{32}) ([0-9a-f]{64})\n")


def hello(secret: str, run_key: str) -> "tuple[bytes, bytes]":
    """(first line of who dials, the proof that the door must give)."""
    nonce = secrets.token_hex(16)
    line = f"{nonce} {_proof(secret, 'dial', run_key, nonce)}\n"
    return line.encode(), answer(secret, run_key, nonce)


def nonce_of(secret: str, run_key: str, line: bytes) -> Optional[str]:
    """The nonce of a first line whose proof holds, else None."""
    found = _HELLO.fullmatch(line.decode("latin-1"))
    if found is None or not hmac.compare_digest(found[2], _proof(secret, "dial", run_key, found[1])):
        return None
    return found[1]


def answer(secret: str, run_key: str, nonce: str) -> bytes:
    return _proof(secret, "listen", run_key, nonce).encode()


def entry(secret: str, run_key: str, port: int, challenge: str) -> bytes:
    """The second line of who dials the door of this port. It is good for the connection with this word alone."""
    return f"{_proof(secret, 'enter', run_key, f'{port}|{challenge}')}\n".encode()


def _proof(secret: str, side: str, run_key: str, nonce: str) -> str:
    return hmac.new(secret.encode(), f"door|{side}|{run_key}|{nonce}".encode(), hashlib.sha256).hexdigest()
