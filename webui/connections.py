"""Limits on client connections that uvicorn does not have, for HTTP and for WebSockets.

Start uvicorn with these two classes as its `--http` and `--ws`. They limit how large the head of a request may be, how
long a request may take to arrive, how long a client may leave an answer unread, and how much of the process the frames
of WebSockets may use. All of this happens before any login is checked, so it holds for strangers too.
"""

from __future__ import annotations

import asyncio
import json
import time
import weakref
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from webui import limits

#: Connections are looked through this often.
LOOK_SECONDS = min(5.0, limits.REQUEST_HEAD_SECONDS / 4, limits.ANSWER_UNREAD_SECONDS / 4)
#: WebSocket data is parsed in slices of this size, which hold at most about 700 frames.
SLICE_BYTES = 4096
#: After parsing for this long, a socket waits this many times as long before its next slice is parsed.
HEAVY_SECONDS, REST = 0.002, 4.0
#: A refused or closed connection is cut after this time, even if the client has not read the last bytes.
LINGER_SECONDS = 5.0
#: what a header needs in addition to its name and value
_HEADER_BYTES = 4


class Http(HttpToolsProtocol):
    """One HTTP connection. A request that is too large or too slow gets a sentence, and the connection is closed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        #: whether the rest of a head or of a body is awaited
        self._awaits_head, self._awaits_body = True, False
        self._since = time.monotonic()
        #: bytes of the head and trailers, of the body, and of what the parser has not reported yet
        self._head_bytes = self._body_bytes = self._unparsed_bytes = 0
        self._unread_since: float | None = None
        self._is_refused = False
        _watched(self.loop).add(self)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if (
            not self._awaits_head
            and not self._awaits_body
            and (not self.cycle or self.cycle.response_complete)
        ):
            # empty lines between two requests would keep the connection open and never begin a request
            self._awaits_head, self._since, self._head_bytes = True, time.monotonic(), 0
        self._unparsed_bytes += len(data)
        super().data_received(data)
        # the parser reports a header only when it is complete, and copies what it has with each part that arrives
        if self._unparsed_bytes > limits.REQUEST_HEAD_BYTES and (self._awaits_head or self._awaits_body):
            self._refuse_head()

    def on_message_begin(self) -> None:
        self._awaits_head, self._awaits_body, self._since = True, False, time.monotonic()
        self._head_bytes = self._body_bytes = self._unparsed_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._awaits_head, self._awaits_body, self._since = False, True, time.monotonic()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._awaits_body, self._unparsed_bytes = False, 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._head_bytes > limits.REQUEST_HEAD_BYTES:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def pause_writing(self) -> None:
        self._unread_since = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    def look(self, now: float) -> None:
        """Refuse a request that is late, and cut a connection whose client has stopped reading."""
        if self._unread_since is not None:
            if now - self._unread_since > limits.ANSWER_UNREAD_SECONDS:
                self.transport.abort()
        elif self.flow.read_paused:  # the application reads slowly; the client is not late
            self._since += LOOK_SECONDS
        elif self._awaits_head:
            if now - self._since > limits.REQUEST_HEAD_SECONDS:
                self._refuse_late(limits.REQUEST_HEAD_SECONDS)
        elif self._awaits_body:
            allowed = limits.REQUEST_BODY_SECONDS + self._body_bytes / limits.REQUEST_LEAST_BYTES_PER_SECOND
            if now - self._since > allowed:
                self._refuse_late(allowed)

    def _count(self, size: int) -> None:
        self._unparsed_bytes = 0
        self._head_bytes += size + _HEADER_BYTES
        if self._head_bytes > limits.REQUEST_HEAD_BYTES:
            raise ValueError(
                "the head of the request is too large"
            )  # stops the parser, and send_400_response follows

    def _refuse_head(self) -> None:
        most = limits.REQUEST_HEAD_BYTES
        self._refuse(431, f"The URL and headers of the request are longer than {most:,} bytes.")

    def _refuse_late(self, seconds: float) -> None:
        if self._awaits_head and not self._head_bytes:  # there is no request to answer
            self.transport.close()
        else:
            self._refuse(408, f"The request did not arrive within {seconds:.0f} s; send it again.")

    def _refuse(self, status: int, sentence: str) -> None:
        """Send the sentence, unless an answer has begun, and close the connection.

        What still arrives is discarded for a while, because a client may read only after it has sent everything.
        """
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        cycle = self.cycle
        is_silent = (
            not cycle.response_started
            if cycle and self._awaits_body
            else not cycle or cycle.response_complete
        )
        if cycle:
            cycle.disconnected = True
            cycle.message_event.set()
        if is_silent and not self.pipeline:
            content = json.dumps({"message": sentence}).encode()
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(STATUS_LINE[status] + head % len(content) + content)
            if self.transport.can_write_eof():
                self.transport.write_eof()
        self.pipeline.clear()
        self.flow.resume_reading()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)


_open: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.WeakSet[Http]] = (
    weakref.WeakKeyDictionary()
)


def _watched(loop: asyncio.AbstractEventLoop) -> weakref.WeakSet[Http]:
    """Return the open connections of a loop, which are checked regularly from the first call on."""
    if loop not in _open:
        _open[loop] = weakref.WeakSet()
        loop.call_later(LOOK_SECONDS, _look, loop)
    return _open[loop]


def _look(loop: asyncio.AbstractEventLoop) -> None:
    now = time.monotonic()
    for each in list(_open[loop]):
        if each not in each.connections:  # closed, or it has become a WebSocket
            _open[loop].discard(each)
        elif not each.transport.is_closing():
            each.look(now)
    loop.call_later(LOOK_SECONDS, _look, loop)


class WebSocket(WebSocketsSansIOProtocol):
    """One WebSocket. It parses in slices, and rests after expensive ones and while the client does not read.

    Parsing is work in the event loop, which a client could otherwise fill with short frames and pings. All sockets
    that rest share 1 / (REST + 1) of the event loop.
    """

    #: how many sockets of this process rest now
    _resting = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._held = bytearray()
        self._rest: asyncio.TimerHandle | None = None
        self._is_held_up = False
        #: seconds spent on its recent frames, and when that was updated
        self._cost, self._counted_at = 0.0, 0.0
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._held.clear()
        if self._rest is not None:
            self._rest.cancel()
            self._end_rest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._held += data
        self._take()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._take()

    async def receive(self) -> Any:
        message = await super().receive()
        self._take()
        return message

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.close_sent:  # further frames are discarded, so waiting for the application would last forever
            self._take()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.loop.call_later(
            LINGER_SECONDS, self.transport.abort
        )  # closing waits until the client has read everything

    def _take(self) -> None:
        while self._held and not self.transport.is_closing() and not self._must_wait():
            piece = bytes(self._held[:SLICE_BYTES])
            del self._held[:SLICE_BYTES]
            begin = time.perf_counter()
            super().data_received(piece)
            self._spend(begin, time.perf_counter())
        if self.transport.is_closing():
            self._held.clear()
        elif self._held:  # again and again, because uvicorn's receive resumes reading after each message
            self._is_held_up = True
            self.transport.pause_reading()
        elif not self._held and self._is_held_up:
            self._is_held_up = False
            if not self.read_paused:
                self.transport.resume_reading()

    def _must_wait(self) -> bool:
        return self._rest is not None or self.read_paused or not self.writable.is_set()

    def _spend(self, begin: float, end: float) -> None:
        self._cost = max(0.0, self._cost - (begin - self._counted_at) / REST) + end - begin
        self._counted_at = end
        if self._cost > HEAVY_SECONDS and not self.transport.is_closing():
            WebSocket._resting += 1
            self._rest = self.loop.call_later(REST * self._cost * WebSocket._resting, self._go_on)

    def _go_on(self) -> None:
        self._end_rest()
        self._take()

    def _end_rest(self) -> None:
        self._rest = None
        WebSocket._resting -= 1
