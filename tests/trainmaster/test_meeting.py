"""The verb `meet`: both sides measure each other, and nobody else who listens or dials."""

import hashlib
import hmac
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.rig.ports import free_port
from trainmaster.host.errors import VerbError
from trainmaster.host.meeting import meet
from trainmaster.paths import Workdir

LOOPBACK = "127.0.0.1"
NOWHERE = Workdir(Path("/nonexistent"))


def request(me: str, peer: str, ports: tuple[int, int], seconds: float = 60, **more: Any) -> dict[str, Any]:
    here = {"me": me, "peer": peer, "port": ports[0], "peer_port": ports[1]}
    return {"nonce": "n", "addresses": [LOOPBACK], "seconds": seconds, **here, **more}


def test_both_sides_measure_the_way_to_the_other() -> None:
    ports = free_port(), free_port()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(meet, request("a", "b", ports), NOWHERE)
        second = pool.submit(meet, request("b", "a", ports[::-1]), NOWHERE)
        for answer in (first.result(), second.result()):
            (way,) = answer["reached"]
            assert way["ok"] and way["source"] == LOOPBACK
            assert way["round_trip_ms"] > 0 and way["mb_per_second"] > 0
            assert all(row["address"] != LOOPBACK for row in answer["interfaces"])


def test_without_the_nonce_nothing_is_reached_or_served() -> None:
    ports = free_port(), free_port()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(meet, request("a", "b", ports, 8), NOWHERE)
        second = pool.submit(meet, request("b", "a", ports[::-1], 8, nonce="another"), NOWHERE)
        for answer in (first.result(), second.result()):
            assert [(way["ok"], way["error"]) for way in answer["reached"]] == [
                (False, "another program is answering there")
            ]


def test_whoever_listens_there_without_the_proof_is_not_measured() -> None:
    with socket.create_server((LOOPBACK, 0)) as stranger:
        heard: list[bytes] = []

        def greet() -> None:
            connection, _ = stranger.accept()
            with connection:
                heard.append(connection.recv(4096))
                connection.sendall(b'{"proof": "00"}\n')

        thread = threading.Thread(target=greet)
        thread.start()
        asked = request("a", "b", (free_port(), stranger.getsockname()[1]), 4)
        (way,) = meet(asked, NOWHERE)["reached"]
        thread.join(60)
    assert (way["ok"], way["error"]) == (False, "another program is answering there")
    assert set(json.loads(heard[0])) == {"random", "proof"}, "the nonce stays at home"


@pytest.mark.survive(17)
def test_a_port_that_is_taken_and_a_peer_that_is_away_are_told() -> None:
    with socket.create_server(("0.0.0.0", 0)) as other, pytest.raises(VerbError) as refused:
        meet(request("a", "b", (other.getsockname()[1], free_port())), NOWHERE)
    assert refused.value.code == "taken"
    (way,) = meet(request("a", "b", (free_port(), free_port()), 3), NOWHERE)["reached"]
    assert (way["ok"], way["error"]) == (False, "connection refused")


def test_a_peer_that_falls_silent_is_waited_for_no_longer_than_the_meeting_lasts() -> None:
    """At each of its addresses it proves itself, and then echoes nothing."""
    with socket.create_server(("0.0.0.0", 0)) as silent:
        kept: list[socket.socket] = []

        def prove() -> None:
            for _ in range(3):
                connection, _ = silent.accept()
                kept.append(connection)
                hello = json.loads(connection.makefile("rb").readline())
                said = f"listen|b|{hello['random']}".encode()
                proof = hmac.new(b"n", said, hashlib.sha256).hexdigest()
                connection.sendall(json.dumps({"proof": proof}).encode() + b"\n")

        thread = threading.Thread(target=prove)
        thread.start()
        addresses = [f"127.0.0.{n}" for n in (1, 2, 3)]
        asked = request("a", "b", (free_port(), silent.getsockname()[1]), 5, addresses=addresses)
        reached = meet(asked, NOWHERE)["reached"]
        thread.join(60)
    for connection in kept:
        connection.close()
    assert [way["error"] for way in reached] == [
        "interrupted while measuring: timed out",
        "interrupted while measuring: the time limit was reached",
        "interrupted while measuring: the time limit was reached",
    ]
