"""`meet`: two hosts dial each other at the same time, at every address, and measure what they reach.

Both hosts get the verb with the same nonce, which travels by SSH only: each proves to the other that it has it, so
nothing else that may listen or dial there is measured. Everything is bounded by the request's `seconds`.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import secrets
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Dict, List, Optional, Tuple

from trainmaster.host.errors import VerbError
from trainmaster.host.interfaces import interfaces
from trainmaster.paths import Workdir

_CONNECT_SECONDS = 3.0
_SOCKET_SECONDS = 5.0
_RETRY_SECONDS = 0.1
_PINGS = 5
_BULK_SECONDS = 0.3
_BULK_BYTES = 256 * 1024 * 1024
_PIECE = bytes(1024 * 1024)
_LINE_BYTES = 512
_AT_ONCE = 32
#: what the dialling side says after the handshake: echo this; count what follows; I have measured everything
_PING, _BULK, _DONE = b"p", b"b", b"d"


def meet(request: Dict[str, Any], workdir: Workdir) -> Dict[str, Any]:
    """{"interfaces": [...]} alone without a `peer` in the request, else also {"reached": [...]}.

    Request: {"nonce", "me", "peer", "port", "peer_port", "addresses": [text], "seconds"}. Each address of the peer
    answers as {"address", "ok", "error", "source", "round_trip_ms", "mb_per_second"}; `source` is our own address on
    the way. Raises VerbError `taken` where another program has our port.
    """
    answer: Dict[str, Any] = {"interfaces": interfaces()}
    if request.get("peer"):
        answer["reached"] = Meeting(request).hold()
    return answer


class Meeting:
    """One side of it."""

    def __init__(self, request: Dict[str, Any]) -> None:
        self._nonce = str(request["nonce"]).encode()
        self._me, self._peer = str(request["me"]), str(request["peer"])
        self._port, self._peer_port = int(request["port"]), int(request["peer_port"])
        self._addresses = [str(address) for address in request["addresses"]]
        self._deadline = time.monotonic() + float(request["seconds"])
        self._peer_is_up = threading.Event()
        self._peer_is_done = threading.Event()

    def hold(self) -> List[Dict[str, Any]]:
        """Dial while listening; then listen until the peer has measured too, or until the time is up."""
        listening = [self._listen(socket.AF_INET, "0.0.0.0"), *self._listen_ipv6()]
        try:
            for each in listening:
                threading.Thread(target=self._accept, args=(each,), daemon=True).start()
            reached = self._dial_all()
            self._peer_is_done.wait(max(0.0, self._deadline - time.monotonic()))
        finally:
            for each in listening:
                each.close()
        return reached

    def _at_most(self, seconds: float) -> float:
        """So long, or as long as the meeting still goes on. Raises ValueError once it is over."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise ValueError("the time limit was reached")
        return min(seconds, left)

    # --- the side that is dialled ---------------------------------------------------------------------------

    def _listen(self, family: int, address: str) -> socket.socket:
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind((address, self._port))
            listening.listen(_AT_ONCE)
        except OSError as error:
            listening.close()
            if error.errno == errno.EADDRINUSE:
                raise VerbError("taken", f"Another program is listening on port {self._port}.") from error
            raise
        return listening

    def _listen_ipv6(self) -> List[socket.socket]:
        try:
            return [self._listen(socket.AF_INET6, "::")]
        except OSError:  # a kernel without IPv6
            return []

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:  # closed: the meeting is over
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                _prepare(connection)
                stream = connection.makefile("rb")
                hello = json.loads(_line(stream))
                random = str(hello["random"])
                if not hmac.compare_digest(str(hello["proof"]), self._proof("dial", self._peer, random)):
                    return
                connection.sendall(_message({"proof": self._proof("listen", self._me, random)}))
                self._do(connection, stream)
            except (OSError, ValueError, KeyError, TypeError):
                return  # whoever it was did not speak as the peer does

    def _do(self, connection: socket.socket, stream: IO[bytes]) -> None:
        while True:
            said = stream.read(1)
            if said == _PING:
                connection.sendall(_PING)
            elif said == _BULK:
                connection.sendall(_message({"bytes": _count(stream)}))
            else:
                if said == _DONE:
                    self._peer_is_done.set()
                return

    # --- the side that dials --------------------------------------------------------------------------------

    def _dial_all(self) -> List[Dict[str, Any]]:
        """Connect and ping at all addresses at once, then measure the throughput one after the other."""
        if not self._addresses:
            return []
        with ThreadPoolExecutor(min(_AT_ONCE, len(self._addresses))) as pool:
            dialled = list(pool.map(self._dial, self._addresses))
        for row, connection in dialled:
            if connection is not None:
                self._measure(row, connection)
        self._say_done([row["address"] for row, _ in dialled if row["ok"]])
        return [row for row, _ in dialled]

    def _dial(self, address: str) -> Tuple[Dict[str, Any], Optional[socket.socket]]:
        row: Dict[str, Any] = {"address": address, "ok": False, "error": None, "source": None}
        row.update(round_trip_ms=None, mb_per_second=None)
        try:
            connection = self._connect(address)
        except (OSError, ValueError) as error:
            row["error"] = _reason(error)
            return row, None
        row.update(ok=True, source=connection.getsockname()[0])
        return row, connection

    def _connect(self, address: str) -> socket.socket:
        """A connection to the peer. Refusals are tried again while the peer may not listen yet."""
        while True:
            was_up = self._peer_is_up.is_set()
            try:
                connection = socket.create_connection(
                    (address, self._peer_port), self._at_most(_CONNECT_SECONDS)
                )
            except ConnectionRefusedError:
                if was_up or time.monotonic() + _CONNECT_SECONDS > self._deadline:
                    raise
                self._peer_is_up.wait(_RETRY_SECONDS)
                continue
            try:
                self._shake_hands(connection)
            except (OSError, ValueError):
                connection.close()
                raise
            self._peer_is_up.set()
            return connection

    def _shake_hands(self, connection: socket.socket) -> None:
        _prepare(connection)
        connection.settimeout(self._at_most(_SOCKET_SECONDS))
        random = secrets.token_hex(16)
        connection.sendall(_message({"random": random, "proof": self._proof("dial", self._me, random)}))
        try:
            proof = str(json.loads(_line(connection.makefile("rb")))["proof"])
        except (ValueError, KeyError, TypeError):
            proof = ""
        if not hmac.compare_digest(proof, self._proof("listen", self._peer, random)):
            raise ValueError("another program is answering there")

    def _measure(self, row: Dict[str, Any], connection: socket.socket) -> None:
        with connection:
            try:
                connection.settimeout(self._at_most(_SOCKET_SECONDS))
                row["round_trip_ms"] = round(1000 * min(_ping(connection) for _ in range(_PINGS)), 3)
                row["mb_per_second"] = round(_throughput(connection) / 1e6, 1)
            except (OSError, ValueError) as error:
                row.update(ok=False, error=f"interrupted while measuring: {_reason(error)}")

    def _say_done(self, addresses: List[str]) -> None:
        for address in addresses:
            try:
                with self._connect(address) as connection:
                    connection.sendall(_DONE)
                return
            except (OSError, ValueError):
                continue

    def _proof(self, role: str, who: str, random: str) -> str:
        return hmac.new(self._nonce, f"{role}|{who}|{random}".encode(), hashlib.sha256).hexdigest()


def _prepare(connection: socket.socket) -> None:
    connection.settimeout(_SOCKET_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _message(content: Dict[str, Any]) -> bytes:
    return json.dumps(content).encode() + b"\n"


def _line(stream: IO[bytes]) -> bytes:
    line = stream.readline(_LINE_BYTES)
    if not line.endswith(b"\n"):
        raise ValueError("the connection was interrupted")
    return line


def _count(stream: IO[bytes]) -> int:
    total = 0
    while True:
        piece = stream.read(len(_PIECE))
        if not piece:
            return total
        total += len(piece)


def _ping(connection: socket.socket) -> float:
    """Seconds from a byte to its echo."""
    began = time.perf_counter()
    connection.sendall(_PING)
    if connection.recv(1) != _PING:
        raise ValueError("no echo was received")
    return time.perf_counter() - began


def _throughput(connection: socket.socket) -> float:
    """Bytes per second until the peer has counted them all."""
    began = time.perf_counter()
    connection.sendall(_BULK)
    sent = 0
    while sent < _BULK_BYTES and time.perf_counter() - began < _BULK_SECONDS:
        connection.sendall(_PIECE)
        sent += len(_PIECE)
    connection.shutdown(socket.SHUT_WR)
    counted = int(json.loads(_line(connection.makefile("rb")))["bytes"])
    if counted != sent:
        raise ValueError(f"{counted} of {sent} bytes arrived")
    return sent / (time.perf_counter() - began)


def _reason(error: Exception) -> str:
    if isinstance(error, socket.timeout):  # an alias of TimeoutError from 3.10 on
        return "timed out"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
