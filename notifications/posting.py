"""One POST to a receiver: to the address that was judged, within a time limit, without following anything."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from django.conf import settings

from accounts.refusals import Refusal
from notifications.addresses import parts_of, resolve

ANSWER_BYTES = 400


@dataclass(frozen=True)
class PostAnswer:
    """`status` 0: nobody answered. `words`: the beginning of what came, or why nothing did."""

    status: int
    words: str
    #: another attempt could do better
    passing: bool = False

    @property
    def good(self) -> bool:
        return 200 <= self.status < 300


def post(url: str, body: bytes, headers: Mapping[str, str], *, trusted: bool) -> PostAnswer:
    """Never raises for what a receiver does; a refusal of ours is an answer with status 0, too."""
    try:
        parts = parts_of(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        address = resolve(parts.hostname or "", port, trusted=trusted)
    except Refusal as refusal:
        return PostAnswer(0, str(refusal))
    connection = _Pinned(parts.hostname or "", port, address, tls=parts.scheme == "https")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    # a receiver that answers a byte at a time would hold a thread for hours: the whole has one limit
    deadline = threading.Timer(settings.NOTIFY_TIMEOUT_SECONDS, connection.cut)
    deadline.daemon = True
    deadline.start()
    try:
        connection.request("POST", path, body, {"User-Agent": "Trainmaster", **headers})
        response = connection.getresponse()
        words = response.read(ANSWER_BYTES).decode(errors="replace")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return PostAnswer(0, connection.failure(error), passing=True)
    finally:
        deadline.cancel()
        connection.close()
    return _judged(response.status, response.reason, " ".join(words.split()))


def _judged(status: int, reason: str, words: str) -> PostAnswer:
    said = f"{status} {reason}".strip() + (f": {words}" if words else "")
    if 300 <= status < 400:
        return PostAnswer(status, f"{said}. Redirects are not followed; enter the target address instead.")
    return PostAnswer(status, said, passing=status >= 500 or status in {408, 425, 429})


class _Pinned(http.client.HTTPConnection):
    """Dials one address, and asks for the certificate of the name."""

    def __init__(self, host: str, port: int, address: str, *, tls: bool) -> None:
        super().__init__(host, port, timeout=settings.NOTIFY_TIMEOUT_SECONDS)
        self.address = address
        self.tls = tls
        self.late = False
        if tls and port == 443:
            self.default_port = 443  # or the Host header would name it

    def connect(self) -> None:
        raw = socket.create_connection((self.address, self.port), settings.NOTIFY_TIMEOUT_SECONDS)
        self.sock = raw
        if self.tls:
            context = ssl.create_default_context()
            wrapped = context.wrap_socket(raw, server_hostname=self.host, do_handshake_on_connect=False)
            self.sock = wrapped  # so that `cut` reaches it
            wrapped.do_handshake()

    def cut(self) -> None:
        self.late = True
        with suppress(OSError, AttributeError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def failure(self, error: Exception) -> str:
        if self.late or isinstance(error, TimeoutError):
            return f"No answer within {settings.NOTIFY_TIMEOUT_SECONDS:g} s."
        return f"No answer: {error or type(error).__name__}."
