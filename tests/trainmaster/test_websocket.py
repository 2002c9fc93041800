"""The client's side of a WebSocket: frames stay whole, whoever sends at the same time, and a cut is an error."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from trainmaster.websocket import WebSocket

PING = bytes([0x89, 4]) + b"ping"


def frames(received: bytes) -> list[tuple[int, int]]:
    """(kind, size) of each masked frame."""
    found, at = [], 0
    while at < len(received):
        kind, size = received[at] & 15, received[at + 1] & 127
        at += 2
        if size > 125:
            form = ">H" if size == 126 else ">Q"
            (size,) = struct.unpack_from(form, received, at)
            at += struct.calcsize(form)
        at += 4 + size
        found.append((kind, size))
    return found


def test_a_pong_never_stands_amid_a_frame_that_is_being_sent() -> None:
    ours, its = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    client = WebSocket(ours, b"")
    its.sendall(PING * 20 + bytes([0x82, 1]) + b"x")

    def send() -> None:
        for _ in range(20):
            client.send(bytes(100_000))

    heard: list[bytes] = []
    threads = [threading.Thread(target=send), threading.Thread(target=lambda: heard.append(client.receive()))]
    for thread in threads:
        thread.start()

    def hang_up() -> None:
        for thread in threads:
            thread.join()
        ours.shutdown(socket.SHUT_WR)

    threading.Thread(target=hang_up).start()
    received = b"".join(iter(lambda: its.recv(65536), b""))
    assert sorted(frames(received)) == [(2, 100_000)] * 20 + [(10, 4)] * 20
    assert heard == [b"x"]


@pytest.mark.parametrize("cut", [bytes([0x82, 126, 1]), bytes([0x82, 5]) + b"ab"])
def test_a_server_that_hangs_up_amid_a_frame_is_gone(cut: bytes) -> None:
    ours, its = socket.socketpair()
    with its:
        its.sendall(cut)
    with pytest.raises(ConnectionResetError):
        WebSocket(ours, b"").receive()
