"""A WebSocket as a stream of bytes: what the CLI's tunnels speak. Runs where users are, never on hosts."""

from __future__ import annotations

import socket
import threading
from typing import Iterator, Optional

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Message,
    Ping,
    RejectConnection,
    Request,
)
from wsproto.utilities import ProtocolError

from trainmaster.http import Answered, ServerClient, Unreachable

_BLOCK_BYTES = 65536


class WebSocket:
    """Made by `connect`; one thread may read while another writes."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._sending = threading.Lock()  # the reading thread answers pings, never inside the other's frame

    def open(self, request: Request) -> Optional[Event]:
        """Ask for the WebSocket; the server's answer, None if it hangs up. Raises OSError, ProtocolError."""
        self._send(request)
        return next(self._events(), None)

    def send(self, data: bytes) -> None:
        """Send one message. OSError when the other side is gone."""
        try:
            self._send(BytesMessage(data))
        except ProtocolError as error:
            raise ConnectionResetError("the server has closed the WebSocket") from error

    def messages(self) -> Iterator[bytes]:
        """What the server sends, until it closes or hangs up. Raises OSError, ProtocolError."""
        for event in self._events():
            if isinstance(event, Message):
                yield bytes(event.data)
            elif isinstance(event, Ping):
                self._send(event.response())
            elif isinstance(event, CloseConnection):
                return

    def close(self) -> None:
        """Say goodbye and hang up."""
        try:
            self._send(CloseConnection(code=1000))
            self._socket.shutdown(socket.SHUT_RDWR)
        except (OSError, ProtocolError):
            pass

    def _send(self, event: Event) -> None:
        with self._sending:
            self._socket.sendall(self._protocol.send(event))

    def _events(self) -> Iterator[Event]:
        yield from self._protocol.events()  # what came together with the answer
        has_more = True
        while has_more:
            data = self._socket.recv(_BLOCK_BYTES)
            has_more = bool(data)
            self._protocol.receive_data(data or None)
            yield from self._protocol.events()


def connect(client: ServerClient, path: str) -> WebSocket:
    """Open a WebSocket at this path of the server. Raises Unreachable, Answered."""
    login = [(b"Authorization", f"Bearer {client.token}".encode())] if client.token else []
    connected = client.take_socket()
    opened = WebSocket(connected)
    try:
        answer = opened.open(Request(host=client.authority, target=path, extra_headers=login))
    except OSError as error:
        raise Unreachable(f"{client.url} cannot be reached: {error}.") from error
    except ProtocolError as error:
        raise Unreachable(f"{client.url} is not a WebSocket server.") from error
    if isinstance(answer, RejectConnection):
        raise Answered(answer.status_code, None, "the server did not open a tunnel to this task")
    if not isinstance(answer, AcceptConnection):
        raise Unreachable(f"{client.url} cannot be reached: it closed the connection.")
    connected.settimeout(None)
    return opened
