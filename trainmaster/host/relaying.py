"""`relay`: lets the nodes of a cluster use a tunnel that ends on the loopback of this machine, their login node.

sshd opens the port of a tunnel on loopback alone, unless its GatewayPorts says otherwise, which is an administrator's
to change. So this process listens on the same port at an address that the nodes reach, and carries each connection to
loopback. It is asked by one JSON line on stdin, {"address", "port"}; it answers with one line, and ends with stdin, as
the tunnel does with the same SSH connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import json
import os
import resource
import socket
import sys
from typing import Any, Dict, List

_LOOPBACK = "127.0.0.1"
_PIECE_BYTES = 64 * 1024
_CONNECT_SECONDS = 10.0
#: at the same time, from all nodes together; each has two sockets
_MOST_CONNECTIONS = 4000
#: the part of them that one address may have: nodes may all have the same one, behind a router
_PART_OF_ONE = 0.5
_OTHER_FILES = 64
#: in which whoever connects has to begin to speak
_SILENT_SECONDS = 30.0
#: a node that was switched off is noticed after about three minutes
_KEEPALIVE_SECONDS = 60


class Relay:
    """From when it listens until stdin ends."""

    def __init__(self, address: str, port: int) -> None:
        self._address = address
        self._port = port
        self._carrying: Dict[str, int] = {}
        self._most = _most_connections()

    async def run(self) -> None:
        """Raises _Refused, with a sentence."""
        loop = asyncio.get_running_loop()
        listener = _listener(self._address, self._port)
        server = await asyncio.start_server(self._carry, sock=listener)
        _say({"relaying": self._port})
        ended = asyncio.Event()
        loop.add_reader(0, lambda: None if os.read(0, _PIECE_BYTES) else ended.set())
        try:
            await ended.wait()
        finally:
            server.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = str((writer.get_extra_info("peername") or ("",))[0])
        here = self._carrying.get(peer, 0)
        if sum(self._carrying.values()) >= self._most or here >= self._most * _PART_OF_ONE:
            writer.close()
            return
        self._carrying[peer] = here + 1
        try:
            _keep_alive(writer)
            first = await asyncio.wait_for(reader.read(_PIECE_BYTES), _SILENT_SECONDS)
            if not first:
                return
            opening = asyncio.open_connection(_LOOPBACK, self._port)
            theirs, ours = await asyncio.wait_for(opening, _CONNECT_SECONDS)
            ours.write(first)
            try:
                await _both_ways(_pass_on(reader, ours), _pass_on(theirs, writer))
            finally:
                ours.close()
        except (OSError, asyncio.TimeoutError):
            pass  # the tunnel is away for a moment; whoever asked tries again
        finally:
            self._carrying[peer] -= 1
            if not self._carrying[peer]:
                del self._carrying[peer]
            writer.close()


def _most_connections() -> int:
    """How many connections this process may have open, once it has raised its limit of open files."""
    wanted = 2 * _MOST_CONNECTIONS + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    allowed = wanted if soft == resource.RLIM_INFINITY else min(wanted, soft)
    return max(1, (allowed - _OTHER_FILES) // 2)


class _Refused(Exception):
    """Why it cannot listen there."""


async def _both_ways(*ways: Any) -> None:
    """Until both sides have said all, or one is gone."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        piece = await reader.read(_PIECE_BYTES)
        if not piece:
            break
        writer.write(piece)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), _KEEPALIVE_SECONDS)


def _listener(address: str, port: int) -> socket.socket:
    """A socket that listens there. Raises _Refused."""
    try:
        family, _, _, _, target = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise _Refused(f"The login node does not know {address!r}: {error.strerror or error}.") from error
    number = ipaddress.ip_address(str(target[0]).partition("%")[0])
    if number.is_loopback or number.is_unspecified:
        raise _Refused(
            f"{address!r} is {number} on the login node, where no node can reach it. "
            "Give its IP address in the network of the cluster."
        )
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(target)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise _Refused(f"{address!r} ({number}) is not an address of the login node.") from error
        raise _Refused(f"Port {port} of {address!r} on the login node: {error.strerror}.") from error
    return listener


def _say(line: Dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def relay() -> int:
    """Exit code: 0 after the end of stdin, 1 where it cannot listen."""
    request: Dict[str, Any] = json.loads(_line())
    try:
        asyncio.run(Relay(str(request["address"]), int(request["port"])).run())
    except _Refused as error:
        _say({"error": "relay", "message": str(error)})
        return 1
    return 0


def _line() -> bytes:
    """The first line of stdin, and not more: the rest is waited for by the loop."""
    read: List[bytes] = []
    while not read or read[-1] not in (b"\n", b""):
        read.append(os.read(0, 1))
    return b"".join(read)
