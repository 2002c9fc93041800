"""A receiver of webhooks on loopback: keeps what came, and answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Posted(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """`status` and `headers` are what the next requests are answered with; `silent`: not at all while it is set."""

    def __init__(self) -> None:
        self.got: list[Posted] = []
        self.status = 200
        self.answers: dict[str, str] = {}
        self.answering = threading.Event()
        self.answering.set()
        self.url = ""


@contextmanager
def running_receiver() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.answering.wait(60)
            receiver.got.append(Posted(self.path, dict(self.headers), body))
            self.send_response(receiver.status)
            for name, value in receiver.answers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"done")

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_port}/hooks/long-key-of-it"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.answering.set()
        server.shutdown()
        server.server_close()
        thread.join()
