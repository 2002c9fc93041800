"""HTTP through the door of a task: its connections as httpcore reads and writes them."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpcore

from dispatch.ssh import doors
from dispatch.ssh.doors import Door


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
            return Stream(await doors.connect(self._door))
        except doors.RemoteError as error:
            raise httpcore.ConnectError(str(error)) from error

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
