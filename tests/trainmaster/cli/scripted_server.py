"""A real HTTP server on loopback that behaves as it is told: away, slow to return, broken in mid-answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        path = self.path.split("?")[0]
        self.server.seen.append((self.command, self.path, self.body))
        script = self.server.scripts.get((self.command, path), [])
        step = (
            script.pop(0)
            if len(script) > 1
            else script[0]
            if script
            else status(404, {"message": f"no {path}"})
        )
        step(self)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


class ScriptedServer(ThreadingHTTPServer):
    """`scripts[(method, path)]` are its answers in turn; the last one stays."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.scripts: dict[tuple[str, str], list[Answer]] = {}
        self.seen: list[tuple[str, str, bytes]] = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def on(self, method: str, path: str, *answers: Answer) -> None:
        self.scripts[method, path] = list(answers)


def status(code: int, body: Any, **headers: str) -> Answer:
    def answer(handler: Handler) -> None:
        content = json.dumps(body).encode()
        handler.send_response(code)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def ok(body: Any) -> Answer:
    return status(200, body)


def lines(*records: Any, complete: bool = True, until: threading.Event | None = None) -> Answer:
    """A chunked NDJSON stream; one that is not `complete` breaks off, one with `until` stays open till then."""

    def answer(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for record in records:
            text = json.dumps(record).encode() + b"\n"
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
        handler.wfile.flush()
        if until is not None:
            until.wait(30)
        if complete:
            handler.wfile.write(b"0\r\n\r\n")
        handler.close_connection = True

    return answer


def hang_up(handler: Handler) -> None:
    """No answer: the connection is closed once the request has been read."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)
