"""Who is let in at the door of a service."""

import asyncio

import pytest

from trainmaster.serving import door as doors
from trainmaster.serving.door import ANSWER_BYTES, CHALLENGE_BYTES, Door, Ends, entry, hello, to_port

SECRET, KEY = "s" * 32, "a.1.0"


async def opened() -> "tuple[Door, list[bytes]]":
    """A door, and what came through it."""
    came: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await reader.read(100))
        writer.write(b"welcome")
        writer.close()

    service = await asyncio.start_server(serve, "127.0.0.1", 0)
    door = Door(SECRET, KEY, to_port(service.sockets[0].getsockname()[1]))
    await door.open(0)
    return door, came


async def dialled(door: Door, line: bytes) -> "tuple[Ends, bytes]":
    """(the connection, what the door says to the first line)"""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(line)
    try:
        said = await asyncio.wait_for(reader.readexactly(ANSWER_BYTES + CHALLENGE_BYTES), 10)
    except (asyncio.IncompleteReadError, OSError):
        said = b""
    return (reader, writer), said


async def test_lines_that_were_read_on_the_way_let_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    door, came = await opened()
    line, proof = hello(SECRET, KEY)
    (reader, writer), said = await dialled(door, line)
    assert said[:ANSWER_BYTES] == proof
    second = entry(SECRET, KEY, door.port, said[ANSWER_BYTES + 1 : -1].decode())
    writer.write(second + b"hello")
    assert await reader.read(100) == b"welcome" and came == [b"hello"]

    assert (await dialled(door, line))[1] == b"", "this line was used"
    door._used.clear()  # as after many more
    (reader, writer), said = await dialled(door, line)
    assert said[:ANSWER_BYTES] == proof
    writer.write(second + b"hello again")
    assert await reader.read(100) == b""
    assert b"hello again" not in came

    line, _ = hello(SECRET, KEY)
    (reader, writer), said = await dialled(door, line)
    writer.write(entry(SECRET, KEY, door.port + 1, said[ANSWER_BYTES + 1 : -1].decode()))
    assert await reader.read(100) == b"", "it is for another door"


async def test_who_proves_nothing_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "_MOST_UNPROVED", 3)
    monkeypatch.setattr(doors, "_MOST_USED", 2)
    door, _ = await opened()
    idle = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(5)]
    for reader, _ in idle[:2]:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(reader.readexactly(1), 10)
    for _ in range(4):
        _, said = await dialled(door, hello(SECRET, KEY)[0])
        assert said
    assert len(door._unproved) <= 3 and len(door._used) == 2
