"""A WebSocket as a stream of bytes, on the standard library: what the CLI's tunnels speak (RFC 6455, client's side)."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import struct
import threading
from typing import Optional

from trainmaster.http import Answered, ServerClient, Unreachable

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
_HEAD_BYTES = 65536


class WebSocket:
    """Made by `connect`; one thread may read while another writes."""

    def __init__(self, connected: socket.socket, rest: bytes) -> None:
        self._socket = connected
        self._file = connected.makefile("rb")
        self._rest = rest
        self._sending = (
            threading.Lock()
        )  # a pong of the thread that reads must not stand amid the other's frame

    def send(self, data: bytes, kind: int = _BINARY) -> None:
        """One frame. OSError when the other side is gone."""
        size = len(data)
        head = bytes([0x80 | kind])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 65536:
            head += bytes([0x80 | 126]) + struct.pack(">H", size)
        else:
            head += bytes([0x80 | 127]) + struct.pack(">Q", size)
        mask = os.urandom(4)
        frame = head + mask + _masked(data, mask)
        with self._sending:
            self._socket.sendall(frame)

    def receive(self) -> bytes:
        """What the next frame carries; empty at the end. OSError when the other side is gone."""
        while True:
            head = self._read(2)
            if len(head) < 2:
                return b""
            kind, size = head[0] & 15, head[1] & 127
            if size > 125:
                form = ">H" if size == 126 else ">Q"
                (size,) = struct.unpack(form, self._whole(struct.calcsize(form)))
            data = self._whole(size)
            if kind == _PING:
                self.send(data, _PONG)
            elif kind == _CLOSE:
                return b""
            elif data and kind != _PONG:
                return data

    def close(self) -> None:
        """Say goodbye and hang up."""
        try:
            self.send(struct.pack(">H", 1000), _CLOSE)
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _whole(self, size: int) -> bytes:
        data = self._read(size)
        if len(data) < size:
            raise ConnectionResetError("the server hung up amid a frame")
        return data

    def _read(self, size: int) -> bytes:
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken + self._file.read(size - len(taken)) if len(taken) < size else taken


def connect(client: ServerClient, path: str) -> WebSocket:
    """Open a WebSocket at this path of the server. Raises Unreachable, Answered."""
    key = base64.b64encode(os.urandom(16)).decode()
    connected = client.take_socket()
    lines = [
        f"GET {path} HTTP/1.1", f"Host: {client.authority}", "Upgrade: websocket", "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13",
    ]  # fmt: skip
    if client.token:
        lines.append(f"Authorization: Bearer {client.token}")
    try:
        connected.sendall("\r\n".join([*lines, "", ""]).encode())
        head, rest = _head(connected)
    except OSError as error:
        raise Unreachable(f"{client.url} cannot be reached: {error}.") from error
    status = _status(head)
    expected = base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()
    if status != 101:
        raise Answered(status or 502, None, "the server opens no tunnel to this task")
    if expected.lower() not in head.decode("latin-1").lower():
        raise Unreachable(f"What answers at {client.url} is no WebSocket server.")
    connected.settimeout(None)
    return WebSocket(connected, rest)


def _head(connected: socket.socket) -> "tuple[bytes, bytes]":
    """The answer up to its blank line, and what has come behind it."""
    found = b""
    while b"\r\n\r\n" not in found and len(found) < _HEAD_BYTES:
        block = connected.recv(4096)
        if not block:
            break
        found += block
    head, _, rest = found.partition(b"\r\n\r\n")
    return head, rest


def _status(head: bytes) -> Optional[int]:
    words = head.split(b" ", 2)
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else None


def _masked(data: bytes, mask: bytes) -> bytes:
    size = len(data)
    if not size:
        return b""
    whole = (mask * (size // 4 + 1))[:size]
    number = int.from_bytes(data, "little") ^ int.from_bytes(whole, "little")
    return number.to_bytes(size, "little")
