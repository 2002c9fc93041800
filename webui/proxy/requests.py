"""Carries an HTTP request to a task's program and its answer back, both streamed, each side waiting for the other."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import suppress
from typing import Any

import httpcore
from starlette.types import Message, Receive, Send

from dispatch.ssh.doors import Backend, Door
from webui.proxy.headers import Headers

#: to one task; further requests wait this long for one to be free
CONNECTIONS_MAX, WAIT_SECONDS = 32, 30.0
_IDLE_SECONDS = 20.0
_TASKS_MAX = 256


class Unanswered(Exception):
    """The program did not answer; the message is a sentence."""


#: the connections to each task that are kept for the next request, those used lately last
_pools: OrderedDict[Door, httpcore.AsyncConnectionPool] = OrderedDict()
_closing: set[asyncio.Future[None]] = set()


def _pool(door: Door) -> httpcore.AsyncConnectionPool:
    pool = _pools.get(door)
    if pool is None:
        pool = _pools[door] = httpcore.AsyncConnectionPool(
            max_connections=CONNECTIONS_MAX,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=Backend(door),
        )
        asyncio.get_running_loop().call_later(_IDLE_SECONDS, _tidy, door, pool)
    _pools.move_to_end(door)
    while len(_pools) > _TASKS_MAX:
        _pools.popitem(last=False)
    return pool


def _tidy(door: Door, pool: httpcore.AsyncConnectionPool) -> None:
    """Close what nobody uses any more: httpcore looks at its idle connections only when it is asked for one."""
    if not all(each.has_expired() for each in pool.connections):
        asyncio.get_running_loop().call_later(_IDLE_SECONDS, _tidy, door, pool)
        return
    if _pools.get(door) is pool:
        del _pools[door]
    _closing.add(closing := asyncio.ensure_future(pool.aclose()))
    closing.add_done_callback(_closing.discard)


class Exchange:
    """One request and its answer."""

    def __init__(self, door: Door, method: str, target: bytes, headers: Headers, receive: Receive) -> None:
        self._door, self._method, self._target = door, method, target
        self._headers = headers
        self._receive = receive
        self._sent = asyncio.Event()

    async def run(self, send: Send, rewritten: Any, ending: Coroutine[Any, Any, None]) -> None:
        """Carry it to its end, or until the browser leaves, or what `ending` raises. `rewritten` makes the answer's
        headers of the program's."""
        carrying = asyncio.ensure_future(self._carry(send, rewritten))
        leaving = asyncio.ensure_future(self._left())
        watching = asyncio.ensure_future(ending)
        try:
            await asyncio.wait({carrying, leaving, watching}, return_when=asyncio.FIRST_COMPLETED)
            if carrying.done() and not carrying.cancelled():  # it is when the browser left amid its body
                carrying.result()
            elif watching.done():
                watching.result()
        finally:
            for task in (carrying, leaving, watching):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task

    async def _carry(self, send: Send, rewritten: Any) -> None:
        lengths = [value for name, value in self._headers if name.lower() == b"content-length"]
        has_body = bool(lengths and lengths[0] != b"0") or (
            not lengths and self._method in {"POST", "PUT", "PATCH"}
        )
        headers = list(self._headers)
        if has_body and not lengths:
            headers.append((b"transfer-encoding", b"chunked"))
        content = self._body() if has_body else None
        if not has_body:
            self._sent.set()
        url = httpcore.URL(scheme=b"http", host=b"task", port=80, target=self._target)
        timeouts = {"connect": WAIT_SECONDS, "pool": WAIT_SECONDS, "read": None, "write": None}
        try:
            async with _pool(self._door).stream(
                self._method, url, headers=headers, content=content, extensions={"timeout": timeouts}
            ) as answer:
                self._sent.set()
                await send(_start(answer.status, rewritten(answer.headers)))
                async for block in _blocks(answer):
                    await send({"type": "http.response.body", "body": block, "more_body": True})
        except (httpcore.ConnectError, httpcore.PoolTimeout) as error:
            raise Unanswered(str(error) or "Too many concurrent requests to this task.") from error
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise Unanswered(
                f"The task's program closed the connection: {error or type(error).__name__}."
            ) from error
        await send({"type": "http.response.body", "body": b""})

    async def _body(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise asyncio.CancelledError
            if block := message.get("body"):
                yield block
            if not message.get("more_body"):
                self._sent.set()
                return

    async def _left(self) -> None:
        """Until the browser hangs up, which is heard once its body is read."""
        await self._sent.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def _blocks(answer: httpcore.Response) -> AsyncIterator[bytes]:
    async for block in answer.aiter_stream():
        if block:
            yield block


def _start(status: int, headers: Iterable[tuple[bytes, bytes]]) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}
