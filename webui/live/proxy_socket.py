"""Carries a WebSocket to a task: frames to a program that speaks it, bytes to one that is reached as a tunnel (SSH)."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from django.db import Error
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.typing import Subprotocol

from dispatch import doors
from webui.live import proxy_access
from webui.live.login import is_own_origin
from webui.live.proxy_access import Answer, Visit
from webui.live.proxy_headers import request_headers
from webui.live.threads import reading

log = logging.getLogger(__name__)

_BLOCK_BYTES = 65536
_MESSAGE_BYTES = 64 * 1024 * 1024
_OPEN_SECONDS = 30.0
#: an open socket on which something passes is noted as use, and its login is looked at again, so often
_NOTE_SECONDS = 30.0

Pump = Coroutine[Any, Any, None]


class Tunnelled:
    """One WebSocket of a browser or client, and the connection to the task behind it."""

    def __init__(
        self, service_id: str, base: str, rest: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._id, self._base, self._rest = service_id, base, rest
        self._scope, self._receive, self._send = scope, receive, send
        self._headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        self._noted = time.monotonic()

    async def run(self, own_cookies: frozenset[str]) -> None:
        """From the handshake to the end."""
        await self._receive()  # websocket.connect
        if not is_own_origin(self._headers):
            await self._refuse()
            return
        visit = await self._visit()
        if visit.answer != Answer.OPEN or visit.door is None:
            await self._refuse()
            return
        try:
            connected = await doors.connect(visit.door)
        except doors.RemoteError as error:
            log.info("task %s is not reached: %s", self._id, error)
            await self._refuse()
            return
        if visit.tunnel:
            await self._as_bytes(connected)
        else:
            await self._as_frames(connected, visit, own_cookies)

    async def _refuse(self) -> None:
        await self._send({"type": "websocket.close", "code": 1008})

    async def _as_bytes(self, connected: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await self._send({"type": "websocket.accept"})

        async def inward() -> None:
            while (message := await self._receive())["type"] == "websocket.receive":
                await self._note()
                data = message.get("bytes") or (message.get("text") or "").encode()
                await loop.sock_sendall(connected, data)

        async def outward() -> None:
            while block := await loop.sock_recv(connected, _BLOCK_BYTES):
                await self._note()
                await self._send({"type": "websocket.send", "bytes": block})

        try:
            await _first_of(inward(), outward())
        finally:
            connected.close()
        await self._close(1000, "")

    async def _as_frames(self, connected: socket.socket, visit: Visit, own_cookies: frozenset[str]) -> None:
        try:
            upstream = await self._dial(connected, visit, own_cookies)
        except BaseException as error:
            connected.close()
            # ValueError: a redirection, which has nowhere to lead to
            if not isinstance(error, (WebSocketException, OSError, EOFError, ValueError)):
                raise
            log.info("a WebSocket to task %s is refused: %s", self._id, error)
            await self._refuse()
            return
        await self._send({"type": "websocket.accept", "subprotocol": upstream.subprotocol})

        async def inward() -> None:
            while (message := await self._receive())["type"] == "websocket.receive":
                await self._note()
                text = message.get("text")
                await upstream.send(text if text is not None else message["bytes"])
            await upstream.close(message.get("code") or 1000)

        async def outward() -> None:
            async for frame in upstream:
                await self._note()
                key = "text" if isinstance(frame, str) else "bytes"
                await self._send({"type": "websocket.send", key: frame})

        try:
            await _first_of(inward(), outward())
        finally:
            await upstream.close()
        await self._close(upstream.close_code or 1000, upstream.close_reason or "")

    async def _dial(
        self, connected: socket.socket, visit: Visit, own_cookies: frozenset[str]
    ) -> ClientConnection:
        target = ("/" if visit.stripped else self._base) + self._rest
        host = self._headers.get("host", "task")
        scheme = "https" if self._scope["scheme"] == "wss" else "http"
        more = request_headers(self._scope["headers"], own_cookies, scheme)
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in more
            if name.lower() not in {b"host", b"origin", b"user-agent", b"content-length"}
        ]
        opener: Callable[..., Awaitable[ClientConnection]] = (
            unix_connect if connected.family == socket.AF_UNIX else connect
        )
        return await opener(
            uri=f"ws://{host}{target}",
            sock=connected,
            origin=self._headers.get("origin"),
            subprotocols=[Subprotocol(name) for name in self._scope.get("subprotocols") or []] or None,
            additional_headers=headers,
            user_agent_header=self._headers.get("user-agent"),
            compression=None,
            max_size=_MESSAGE_BYTES,
            ping_interval=None,  # the browser's side has its own
            open_timeout=_OPEN_SECONDS,
        )

    async def _close(self, code: int, reason: str) -> None:
        told = code if code == 1000 or 3000 <= code < 5000 else 1011
        with suppress(Exception):  # the browser may have left first
            await self._send({"type": "websocket.close", "code": told, "reason": reason})

    async def _note(self) -> None:
        """It is in use. Raises ConnectionAbortedError once whoever opened it may use the task no more."""
        if time.monotonic() - self._noted <= _NOTE_SECONDS:
            return
        self._noted = time.monotonic()
        try:
            visit = await self._visit()
        except Error as error:
            log.info("the login of a socket to task %s is not checked: %s", self._id, error)
            return
        if visit.answer in {Answer.NOT_LOGGED_IN, Answer.FORBIDDEN}:
            raise ConnectionAbortedError(f"{visit.answer} any more")

    async def _visit(self) -> Visit:
        tunnel = "origin" not in self._headers
        return await reading(proxy_access.visit, self._id, self._headers, tunnel=tunnel)


async def _first_of(*pumps: Pump) -> None:
    """Until one of them ends; a side that is gone is an end like any other."""
    tasks = [asyncio.ensure_future(pump) for pump in pumps]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if (error := task.exception()) and not isinstance(error, (OSError, ConnectionClosed)):
                raise error
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
