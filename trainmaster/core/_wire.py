"""Authenticated frames between two ranks.

Both sides prove that they know the gang's secret by answering the other's fresh nonce, and derive one key per
direction from both nonces. Every frame carries an HMAC-SHA256 over its running number, its length and its
bytes, so
none can be forged, repeated, dropped or moved to another connection. Nothing is unpickled before its HMAC
was right. The frames are not encrypted.

    chief → worker   b"TMC1" nonce(32)
    worker → chief   rank(4) size(4) nonce(32) mac(32)
    chief → worker   mac(32)
    then, each way   length(8) mac(32) payload
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket
import struct
import threading
import weakref
from typing import Tuple

_HELLO = b"TMC1"
_NONCE_BYTES = 32
_MAC_BYTES = 32
_WORKER_HELLO = struct.Struct("!II32s32s")
_LENGTH = struct.Struct("!Q")
_CHUNK_BYTES = 1 << 20

# A peer whose process ends is noticed at once (its kernel closes the connection); these bound the rest, a
# host that
# vanishes or a cut link: 10 + 6 x 5 seconds.
KEEPALIVE_IDLE_SECONDS = 10
KEEPALIVE_INTERVAL_SECONDS = 5
KEEPALIVE_COUNT = 6
UNACKNOWLEDGED_SECONDS = 40


class NotAPeer(Exception):
    """The other side did not prove the gang's secret, or a frame was not authentic."""


class Closed(Exception):
    """The other side's end of the connection is gone; the message says how."""


def watch(sock: socket.socket) -> None:
    """Let the kernel notice a silent peer within about 40 seconds."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", KEEPALIVE_COUNT),
        ("TCP_USER_TIMEOUT", UNACKNOWLEDGED_SECONDS * 1000),
        ("TCP_NODELAY", 1),
    )
    for name, value in options:
        if hasattr(socket, name):  # macOS lacks some
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Wire:
    """One authenticated connection; `send` may be called by several threads, `receive` by one."""

    def __init__(self, sock: socket.socket, send_key: bytes, receive_key: bytes) -> None:
        self._sock = sock
        self._send_key = send_key
        self._receive_key = receive_key
        self._sent = 0
        self._received = 0
        self._lock = threading.Lock()
        _open.add(self)

    def send(self, payload: bytes, wait_seconds: float = -1) -> None:
        """Send one frame. Closed when the peer is gone, or another send takes `wait_seconds` (if >= 0)."""
        if not self._lock.acquire(timeout=wait_seconds):
            raise Closed("another message is still in transit")
        try:
            head = _LENGTH.pack(len(payload))
            mac = _mac(self._send_key, _LENGTH.pack(self._sent), head, payload)
            self._sent += 1
            _send(self._sock, head + mac + payload)
        finally:
            self._lock.release()

    def receive(self) -> bytes:
        """The next frame's payload. Closed when the peer is gone, NotAPeer when it is not authentic."""
        head = _read(self._sock, _LENGTH.size + _MAC_BYTES)
        (length,) = _LENGTH.unpack_from(head)
        payload = _read(self._sock, length)
        expected = _mac(self._receive_key, _LENGTH.pack(self._received), head[: _LENGTH.size], payload)
        if not hmac.compare_digest(expected, head[_LENGTH.size :]):
            raise NotAPeer("a message was not authentic")
        self._received += 1
        return payload

    def shutdown(self) -> None:
        """No more frames from us; the peer sees the end after what was sent."""
        with contextlib.suppress(OSError):  # it was gone already
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that is reading
        self._sock.close()


_open: weakref.WeakSet[Wire] = weakref.WeakSet()


def _forget_in_child() -> None:
    """A forked data loader must not hold a rank's connections open when the rank dies: its peers would wait."""
    for wire in list(_open):
        wire._sock.close()  # our copy of it, without a word to the peer


os.register_at_fork(after_in_child=_forget_in_child)


def accept_worker(sock: socket.socket, secret: bytes) -> Tuple[Wire, int, int]:
    """The chief's side of the handshake: (wire, the worker's rank, its idea of the size)."""
    nonce = os.urandom(_NONCE_BYTES)
    _send(sock, _HELLO + nonce)
    rank, size, other, proof = _WORKER_HELLO.unpack(_read(sock, _WORKER_HELLO.size))
    about = struct.pack("!II", rank, size) + nonce + other
    if not hmac.compare_digest(_mac(secret, b"worker", about), proof):
        raise NotAPeer("it does not know the gang's secret")
    _send(sock, _mac(secret, b"chief", about))
    return Wire(sock, _mac(secret, b"to worker", about), _mac(secret, b"to chief", about)), rank, size


def greet_chief(sock: socket.socket, secret: bytes, rank: int, size: int) -> Wire:
    """A worker's side of the handshake."""
    hello = _read(sock, len(_HELLO) + _NONCE_BYTES)
    if hello[: len(_HELLO)] != _HELLO:
        raise NotAPeer("another program is listening there")
    own = os.urandom(_NONCE_BYTES)
    about = struct.pack("!II", rank, size) + hello[len(_HELLO) :] + own
    _send(sock, _WORKER_HELLO.pack(rank, size, own, _mac(secret, b"worker", about)))
    try:
        proof = _read(sock, _MAC_BYTES)
    except Closed as error:
        raise NotAPeer(
            "the chief refused our proof: the gang's secret is not the same on both sides"
        ) from error
    if not hmac.compare_digest(_mac(secret, b"chief", about), proof):
        raise NotAPeer("the chief does not know the gang's secret")
    return Wire(sock, _mac(secret, b"to chief", about), _mac(secret, b"to worker", about))


def _mac(key: bytes, *parts: bytes) -> bytes:
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        mac.update(part)
    return mac.digest()


def _send(sock: socket.socket, data: bytes) -> None:
    try:
        sock.sendall(data)
    except OSError as error:
        raise Closed(_how(error)) from error


def _read(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    try:
        while len(data) < count:
            part = sock.recv(min(count - len(data), _CHUNK_BYTES))
            if not part:
                raise Closed("its connection ended")
            data += part
    except OSError as error:
        raise Closed(_how(error)) from error
    return bytes(data)


def _how(error: OSError) -> str:
    if isinstance(error, socket.timeout):
        return "it did not answer in time"
    return f"its connection broke ({error.strerror or error})"
