"""Programs that answer at the server's address and are not the server. They keep what they were sent."""

from __future__ import annotations

import time
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple

from tests.trainmaster.stream_server import Handler, StreamServer

_HTML = b"<html><body>Please log in.</body></html>"


class Heard(NamedTuple):
    """One request: when (monotonic seconds), its request line, all of its headers as text, its body's length."""

    at: float
    line: str
    headers: str
    body_bytes: int


class Stranger(StreamServer):
    """Answers everything alike on `port`: this status, these headers, this body."""

    def __init__(
        self,
        port: int,
        status: int,
        headers: dict[str, str] | None = None,
        body: bytes = _HTML,
        listens_on: str = "127.0.0.1",
    ) -> None:
        self.heard: list[Heard] = []
        self.status, self.headers, self.body = status, headers or {"Content-Type": "text/html"}, body
        super().__init__(port, listens_on)

    def handler(self) -> type[BaseHTTPRequestHandler]:
        return _Stranger

    def has_answered_for(self, seconds: float) -> bool:
        """Whether it has answered several requests, over at least so long."""
        return len(self.heard) > 3 and self.heard[-1].at - self.heard[0].at >= seconds


class _Stranger(Handler):
    def do_GET(self) -> None:
        stranger = self.stream_server
        assert isinstance(stranger, Stranger)
        length = int(self.headers.get("Content-Length", 0))
        self.rfile.read(length)
        stranger.heard.append(Heard(time.monotonic(), self.requestline, str(self.headers), length))
        self.send_response(stranger.status)
        for name, value in {**stranger.headers, "Content-Length": str(len(stranger.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(stranger.body)

    do_POST = do_PUT = do_GET


class OtherCluster(Stranger):
    """An empty Trainmaster server: it keeps the whole protocol, with another key, and knows no token."""

    proof_key = "another server's"
    cluster_id = "c2"

    def __init__(self, port: int) -> None:
        super().__init__(port, 401)
        self.refuse_with = 401

    def handler(self) -> type[BaseHTTPRequestHandler]:
        return _OtherCluster


class _OtherCluster(Handler):
    def parse_request(self) -> bool:
        stranger = self.stream_server
        assert isinstance(stranger, OtherCluster)
        if not super().parse_request():
            return False
        length = int(self.headers.get("Content-Length", 0))
        stranger.heard.append(Heard(time.monotonic(), self.requestline, str(self.headers), length))
        return True
