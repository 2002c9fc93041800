"""The yardstick of the live log: an ASGI application that fans one Redis stream out to sockets, and nothing else.

One reader task takes up to 500 entries a read, a line each, and sends them to every socket as one frame: the count,
a newline, the lines. `REDIS_URL` names the Redis, `STREAM` the key.
"""

from __future__ import annotations

import asyncio
import os

import redis.asyncio as redis
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

ENTRIES_PER_READ = 500

_sockets: set[WebSocket] = set()
_readers: list[asyncio.Task[None]] = []


async def _read() -> None:
    client = redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)
    key, last = os.environ["STREAM"], "0"
    while True:
        for _, entries in await client.xread({key: last}, count=ENTRIES_PER_READ, block=1000):
            last = entries[-1][0]
            frame = f"{len(entries)}\n" + "\n".join(fields["line"] for _, fields in entries)
            await asyncio.gather(*(_send(each, frame) for each in list(_sockets)))


async def _send(socket: WebSocket, frame: str) -> None:
    try:
        await socket.send_text(frame)
    except (RuntimeError, OSError, WebSocketDisconnect):
        _sockets.discard(socket)


async def _serve(socket: WebSocket) -> None:
    await socket.accept()
    _sockets.add(socket)
    if not _readers:
        _readers.append(asyncio.create_task(_read()))
    try:
        while True:
            await socket.receive_text()
    except WebSocketDisconnect:
        _sockets.discard(socket)


application = Starlette(routes=[WebSocketRoute("/", _serve)])
