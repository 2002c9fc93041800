"""A job in Slurm tells that it has begun: which answers end that."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from trainmaster.runner import telling


class Answers(BaseHTTPRequestHandler):
    """By the first part of the path: a status, or the body of a good answer."""

    def do_POST(self) -> None:
        said = self.path.split("/")[1]
        status, body = (int(said), b"{}") if said.isdigit() else (200, b'{"seen": %s}' % said.encode())
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


@pytest.mark.parametrize(
    ("answers", "ends"),
    [
        (["true"], True),
        (["404", "true"], True),
        (["404", "false"], False),
        (["503", "true"], True),
        (["503", "404"], False),
        (["401", "404"], True),
        (["404", "nothing"], False),
    ],
)
def test_an_address_that_refuses_ends_nothing_while_another_may_be_the_server(
    address: str, answers: "list[str]", ends: bool
) -> None:
    urls = ["http://127.0.0.1:9" if each == "nothing" else f"{address}/{each}" for each in answers]
    assert telling._is_seen({"urls": urls, "token": "t", "cert_sha256": None}, "a.1") is ends
