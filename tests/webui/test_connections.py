"""Requests that are too large or too slow, and sockets that flood, against a real web process."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from accounts.models import LoginToken
from embedded.redis import Redis
from tests.rig import pace
from tests.rig.web import Web, running_web
from tests.rig.world import make_user

pytestmark = pytest.mark.django_db(transaction=True)

MEGABYTE = 1024 * 1024
#: what the kernel holds of a connection on loopback, with a reserve
BUFFERED_BYTES = 30 * MEGABYTE


@pytest.fixture(scope="module")
def hurried(
    django_db_setup: None, redis_server: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Web]:
    """A web process with short limits."""
    short = {
        "TRAINMASTER_REQUEST_HEAD_SECONDS": "1",
        "TRAINMASTER_REQUEST_BODY_SECONDS": "1",
        "TRAINMASTER_ANSWER_UNREAD_SECONDS": "1",
    }
    with running_web(tmp_path_factory.mktemp("hurried"), **short) as web:
        yield web


def connected(web: Web, start: bytes = b"") -> socket.socket:
    address = urlsplit(web.url)
    assert address.hostname and address.port
    client = socket.create_connection((address.hostname, address.port), timeout=30)
    client.sendall(start)
    return client


def answered(client: socket.socket) -> tuple[int, str]:
    """The status and the sentence of what comes until the server hangs up."""
    content = b""
    while part := client.recv(65536):
        content += part
    head, _, body = content.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["message"]


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 20 * MEGABYTE,
        b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X-A: a\r\n" * 10_000,
        b"GET /health?" + b"a" * MEGABYTE,
        b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-A: " + b"a" * MEGABYTE,
    ],
    ids=["one header", "many headers", "URL", "trailer"],
)
def test_a_large_head_is_refused_before_it_is_complete(hurried: Web, head: bytes) -> None:
    begun = time.monotonic()
    with connected(hurried, head) as client:
        assert answered(client) == (431, "The URL and headers of the request are longer than 65,536 bytes.")
    assert time.monotonic() - begun < 2 * pace.factor()


def test_a_head_of_nearly_the_limit_is_taken(hurried: Web) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    with connected(hurried, head + b"X-A: " + b"a" * 60_000 + b"\r\n\r\n") as client:
        assert client.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "start",
    [
        b"GET /health HTTP/1.1\r\nX-A: ",
        b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n",
    ],
    ids=["head", "body"],
)
def test_a_request_that_trickles_is_refused(hurried: Web, start: bytes) -> None:
    with connected(hurried, start) as client:
        client.settimeout(0.3)
        for _ in range(60):
            client.sendall(b" ")
            try:
                client.recv(1, socket.MSG_PEEK)
                break
            except TimeoutError:
                continue
        assert answered(client) == (408, "The request did not arrive within 1 s; send it again.")


def test_nobody_waits_for_the_body_of_an_unknown_runner(hurried: Web) -> None:
    head = b"POST /runner/v1/streams/x.1/0/heartbeat HTTP/1.1\r\nAuthorization: Bearer x\r\nContent-Length: 600\r\n\r\n"
    with connected(hurried, head) as client:
        assert client.recv(65536).split()[1] == b"401"
        client.settimeout(0.3)
        closed = False
        for _ in range(60):
            try:
                client.sendall(b" ")
                closed = client.recv(65536) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True
            if closed:
                break
        assert closed


def test_a_connection_without_a_request_is_closed(hurried: Web) -> None:
    with (
        connected(hurried) as silent,
        connected(hurried, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") as idle,
    ):
        assert silent.recv(1) == b""
        assert idle.recv(65536).startswith(b"HTTP/1.1 200")
        idle.sendall(b"\r\n")  # not the beginning of a request, but the end of its quiet time
        while idle.recv(65536):
            pass


def test_a_client_that_leaves_its_answer_unread_is_cut(hurried: Web) -> None:
    def still_open() -> int:
        return len(list(Path(f"/proc/{hurried.pid}/fd").iterdir()))

    before = still_open()
    ask = b"GET /static/plotly/plotly-basic.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(hurried, ask * 20):
        assert pace.wait_until(lambda: still_open() > before, 10)
        assert pace.wait_until(lambda: still_open() <= before, 20)


@pytest.mark.parametrize("kind", [b"\x89", b"\x81"], ids=["pings", "texts"])
def test_a_socket_that_floods_and_reads_nothing_waits_while_others_are_answered(
    hurried: Web, kind: bytes
) -> None:
    token = LoginToken.issue(make_user())
    ask = (
        "GET /ws/pages?topics=hosts HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    )
    frames = (kind + bytes([0x80 | 125]) + bytes(4) + b"p" * 125) * 2000
    sent, is_over = 0, threading.Event()

    def flood() -> None:
        nonlocal sent
        while not is_over.is_set():
            with suppress(TimeoutError):
                sent += client.send(frames)

    with connected(hurried, ask.encode()) as client:
        assert client.recv(1) == b"H"
        client.settimeout(0.05)
        flooding = threading.Thread(target=flood)
        flooding.start()
        begun = time.monotonic()
        try:
            for _ in range(5):
                with connected(hurried, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") as other:
                    other.settimeout(5 * pace.factor())
                    assert other.recv(100).startswith(b"HTTP/1.1 200")
        finally:
            is_over.set()
            flooding.join()
    assert sent < BUFFERED_BYTES and time.monotonic() - begun < 5 * pace.factor()
