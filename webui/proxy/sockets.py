"""Carries a WebSocket to a task: frames to a program that speaks it, bytes to one that is reached as a tunnel (SSH)."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.db import Error
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.typing import Subprotocol

from dispatch.ssh import doors
from webui.live import login
from webui.proxy import access
from webui.proxy.access import NoLonger, ProxyAnswer, Visit, Visitor
from webui.proxy.headers import request_headers
from webui.waiting.threads import reading

log = logging.getLogger(__name__)

_BLOCK_BYTES = 65536
_MESSAGE_BYTES = 64 * 1024 * 1024
_OPEN_SECONDS = 30.0
#: an open socket on which something passes is noted as use so often
NOTE_SECONDS = 30.0
#: how a socket is closed whose login has ended (RFC 6455, 7.4.1: policy violation)
_ENDED = 1008

Pump = Coroutine[Any, Any, None]


class Tunnelled:
    """One WebSocket of a browser or client, and the connection to the task behind it."""

    def __init__(
        self, visitor: Visitor, base: str, rest: str, scheme: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """`scheme` is `https` where the browser's side is encrypted, whatever reaches this server."""
        self._visitor, self._base, self._rest, self._scheme = visitor, base, rest, scheme
        self._scope, self._receive, self._send = scope, receive, send
        self._headers = visitor.headers
        self._noted = time.monotonic()

    async def run(self, own_cookies: frozenset[str]) -> None:
        """From the handshake to the end."""
        await self._receive()  # websocket.connect
        # browsers have the origin of tasks for this, where there is one
        misled = bool(settings.PROXY_ORIGIN) and not self._visitor.apart and "origin" in self._headers
        if not login.is_own_origin(self._headers) or (misled and not login.has_token(self._headers)):
            await self._refuse()
            return
        try:
            visit = await self._visit()
        except Error as error:
            log.warning("the database is unavailable or busy: %s", error)
            await self._refuse()
            return
        if visit.answer != ProxyAnswer.OPEN or visit.door is None:
            await self._refuse()
            return
        try:
            connected = await doors.connect(visit.door)
        except doors.RemoteError as error:
            log.info("cannot reach task %s: %s", self._visitor.service_id, error)
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

        code, reason = 1000, ""
        try:
            await first_of(inward(), outward(), access.until_it_may_not(self._visitor))
        except NoLonger as error:
            code, reason = _ENDED, str(error)
        finally:
            connected.close()
        await self._close(code, reason)

    async def _as_frames(self, connected: socket.socket, visit: Visit, own_cookies: frozenset[str]) -> None:
        try:
            upstream = await self.dial(connected, visit, own_cookies)
        except BaseException as error:
            connected.close()
            # ValueError: a redirection, which has nowhere to lead to
            if not isinstance(error, (WebSocketException, OSError, EOFError, ValueError)):
                raise
            log.info("a WebSocket to task %s was refused: %s", self._visitor.service_id, error)
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
            await first_of(inward(), outward(), access.until_it_may_not(self._visitor))
        except NoLonger as error:
            await self._close(_ENDED, str(error))
        finally:
            await upstream.close()
        await self._close(upstream.close_code or 1000, upstream.close_reason or "")

    async def dial(
        self, connected: socket.socket, visit: Visit, own_cookies: frozenset[str]
    ) -> ClientConnection:
        """The program's own WebSocket, opened with what it is told of the browser's. Raises as `websockets` does."""
        target = ("/" if visit.stripped else self._base) + self._rest
        host = self._headers.get("host", "task")
        more = request_headers(self._scope["headers"], own_cookies, self._scheme)
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
        told = code if code in {1000, _ENDED} or 3000 <= code < 5000 else 1011
        with suppress(Exception):  # the browser may have left first
            await self._send({"type": "websocket.close", "code": told, "reason": reason})

    async def _note(self) -> None:
        """It is in use."""
        if time.monotonic() - self._noted <= NOTE_SECONDS:
            return
        self._noted = time.monotonic()
        try:
            await self._visit()
        except Error as error:
            log.info("cannot record the use of task %s: %s", self._visitor.service_id, error)

    async def _visit(self) -> Visit:
        return await reading(access.visit, self._visitor)


async def first_of(*pumps: Pump) -> None:
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
