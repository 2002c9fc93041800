"""The way from the server to what listens in a task: by SSH to its host, through the door that the task has opened.

HTTP goes through it as httpcore's connections.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import Any

import httpcore

from commands.models import Command
from dispatch.ssh import connections
from dispatch.ssh.contact_errors import RemoteError, Unreachable
from dispatch.ssh.dialling import Endpoint, endpoint_of
from hosts import slurm_nodes
from hosts.models import Host
from jobs.models import Member
from jobs.states import AllocationState
from trainmaster.serving.door import ANSWER_BYTES, CHALLENGE_BYTES, LOOPBACK, entry, hello

__all__ = ["Door", "RemoteError", "Unreachable", "connect", "door_of"]

_ANSWER_SECONDS = 15.0


@dataclass(frozen=True)
class Door:
    """Where a task's door is. `endpoint` is None on the host that is this very machine, and the login node of one that
    is reached by it; `address` is where it reaches the door.
    """

    host: str
    endpoint: Endpoint | None
    port: int
    run_key: str
    secret: str
    address: str = LOOPBACK


def door_of(command: Command) -> Door | None:
    """The door of a command with a service; None while it is not ready, or no more."""
    service = command.service
    if service.port is None:
        return None
    member = (
        Member.objects.filter(allocation__task_id=command.task_id)
        .exclude(allocation__state=AllocationState.TERMINATED)
        .select_related("host__pool", "allocation")
        .first()
    )
    if member is None:
        return None
    host = member.host
    try:
        endpoint, address = _way(host)
    except Host.DoesNotExist:  # the login node of its pool is gone
        return None
    return Door(host.name, endpoint, service.port, member.run_key, member.allocation.gang_secret, address)


def _way(host: Host) -> tuple[Endpoint | None, str]:
    """Whom to dial for a door of this host, and its address from there. Raises Host.DoesNotExist."""
    if host.transport == Host.Transport.LOCAL:
        return None, LOOPBACK
    if host.transport == Host.Transport.SLURM:
        return endpoint_of(slurm_nodes.login_of(host.pool)), host.peer_address("")
    return endpoint_of(host), LOOPBACK


async def connect(door: Door) -> socket.socket:
    """A connection to the service, from any asyncio loop; non-blocking. Raises RemoteError."""
    loop = asyncio.get_running_loop()
    if door.endpoint is None:
        connected = await _dial(door.port)
    else:
        connected = await connections.reach(door.endpoint, door.port, door.address)
    line, expected = hello(door.secret, door.run_key)
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await loop.sock_sendall(connected, line)
            if await _read(door, connected, ANSWER_BYTES) != expected:
                raise Unreachable(
                    f"Another program than the task's is listening on port {door.port} of {door.host}."
                )
            # a door of an older bundle ends its line here
            if await _read(door, connected, 1) != b"\n":
                challenge = (await _read(door, connected, CHALLENGE_BYTES - 1))[:-1].decode("latin-1")
                await loop.sock_sendall(connected, entry(door.secret, door.run_key, door.port, challenge))
    except BaseException as error:
        connected.close()
        if isinstance(error, (OSError, TimeoutError)):
            raise Unreachable(f"The task on {door.host} did not answer: {error or 'timed out'}.") from error
        raise
    return connected


async def _read(door: Door, connected: socket.socket, size: int) -> bytes:
    """So many bytes of what the door says. Raises Unreachable."""
    said = b""
    while len(said) < size:
        block = await asyncio.get_running_loop().sock_recv(connected, size - len(said))
        if not block:
            raise Unreachable(f"The program on {door.host} is not accepting connections.")
        said += block
    return said


async def _dial(port: int) -> socket.socket:
    """A port of this machine's own loopback."""
    connected = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connected.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connected, ("127.0.0.1", port))
    except OSError as error:
        connected.close()
        raise Unreachable(f"Nothing answers on port {port} of this machine: {error}.") from error
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


class Stream(httpcore.AsyncNetworkStream):
    """A connection to a task's program."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._closed = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.get_running_loop().sock_recv(self._socket, max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout from error
        except OSError as error:
            raise httpcore.ReadError from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return
        try:
            async with asyncio.timeout(timeout):
                await asyncio.get_running_loop().sock_sendall(self._socket, buffer)
        except TimeoutError as error:
            raise httpcore.WriteTimeout from error
        except OSError as error:
            raise httpcore.WriteError from error

    async def aclose(self) -> None:
        self._socket.close()
        self._closed = True

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # an idle connection that has something to say has ended
            return self._closed or _has_ended(self._socket)
        return None


def _has_ended(connected: socket.socket) -> bool:
    try:
        return connected.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) is not None
    except BlockingIOError:
        return False
    except OSError:
        return True


class Backend(httpcore.AsyncNetworkBackend):
    """Dials one task."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def connect_tcp(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        try:
            return Stream(await connect(self._door))
        except RemoteError as error:
            raise httpcore.ConnectError(str(error)) from error

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
