"""The client's side of a WebSocket: frames stay whole whoever sends, and each answer has a sentence."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Pong, Request

from trainmaster.http import Answered, ServerClient, Unreachable
from trainmaster.websocket import connect


@contextmanager
def server(answers: Callable[[socket.socket], None]) -> Iterator[ServerClient]:
    """A server of one connection, and a client of it."""

    def serve() -> None:
        with listener.accept()[0] as connection:
            answers(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield ServerClient(f"http://127.0.0.1:{listener.getsockname()[1]}", "secret")
        thread.join(30)
        assert not thread.is_alive()


def accepted(connection: socket.socket) -> WSConnection:
    """The server's side of a WebSocket that it has accepted."""
    protocol = WSConnection(ConnectionType.SERVER)
    protocol.receive_data(connection.recv(65536))
    (request,) = protocol.events()
    assert isinstance(request, Request) and request.target == "/proxy/abc/"
    assert (b"authorization", b"Bearer secret") in request.extra_headers
    connection.sendall(protocol.send(AcceptConnection()))
    return protocol


def test_a_pong_never_stands_amid_a_frame_that_is_being_sent() -> None:
    heard: list[object] = []

    def serve(connection: socket.socket) -> None:
        protocol = accepted(connection)
        for _ in range(20):
            connection.sendall(protocol.send(Ping(payload=b"ping")))
        connection.sendall(protocol.send(BytesMessage(b"x")))
        sizes, pongs = 0, 0
        while sizes < 20 * 100_000 or pongs < 20:
            protocol.receive_data(connection.recv(65536))
            for event in protocol.events():
                assert isinstance(event, (BytesMessage, Pong)), event
                sizes += len(event.data) if isinstance(event, BytesMessage) else 0
                pongs += isinstance(event, Pong)
        connection.sendall(protocol.send(CloseConnection(code=1000)))

    with server(serve) as client:
        tunnel = connect(client, "/proxy/abc/")
        threads = [
            threading.Thread(target=lambda: [tunnel.send(bytes(100_000)) for _ in range(20)]),
            threading.Thread(target=lambda: heard.extend(tunnel.messages())),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        with pytest.raises(ConnectionResetError, match="has closed"):
            tunnel.send(b"more")
        tunnel.close()
    assert heard == [b"x"]


@pytest.mark.parametrize(
    ("cut", "arrived"), [(b"", b""), (bytes([0x82, 126, 1]), b""), (bytes([0x82, 5]) + b"ab", b"ab")]
)
def test_a_server_that_hangs_up_amid_a_frame_ends_the_messages(cut: bytes, arrived: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        protocol = accepted(connection)
        connection.sendall(protocol.send(BytesMessage(b"whole")) + cut)

    with server(serve) as client:
        assert b"".join(connect(client, "/proxy/abc/").messages()) == b"whole" + arrived


def test_an_answer_that_opens_nothing_is_told() -> None:
    def answering(answer: bytes) -> Callable[[socket.socket], None]:
        def serve(connection: socket.socket) -> None:
            connection.recv(65536)
            connection.sendall(answer)

        return serve

    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"
    with server(answering(refusal)) as client, pytest.raises(Answered) as refused:
        connect(client, "/proxy/abc/")
    assert refused.value.status == 403
    for answer in (b"", b"SSH-2.0-OpenSSH_9.2\r\n"):
        with server(answering(answer)) as client, pytest.raises(Unreachable, match="not a WebSocket server"):
            connect(client, "/proxy/abc/")
