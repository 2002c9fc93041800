"""The relay of a tunnel: how it is started, and what it lets nodes do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from typing import Any, cast

import pytest

from dispatch.ssh import relay
from dispatch.ssh.contact_errors import ForwardRefused
from tests.rig.web import ROOT
from trainmaster.host import relaying


class Said:
    """What a relay, or the login shell before it, prints."""

    def __init__(self, *lines: bytes) -> None:
        self.lines = list(lines)
        self.written = b""
        self.closed = False

    async def readline(self) -> bytes:
        if self.lines and self.lines[0] == b"hangs":
            await asyncio.sleep(60)
        return self.lines.pop(0) if self.lines else b""

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("lines", "error", "closed"),
    [
        ([b"a banner\n", b"[1]\n", b'{"relaying": 9}\n'], None, False),
        ([b"a banner\n", b'{"error": "relay", "message": "Port 9 is taken."}\n'], "Port 9 is taken", True),
        ([b"a banner\n"], "did not start", True),
        ([b"a banner\n", b"hangs"], "^$", True),
    ],
)
def test_a_relay_answers_behind_a_banner_and_ends_if_it_does_not(
    monkeypatch: pytest.MonkeyPatch, lines: list[bytes], error: str | None, closed: bool
) -> None:
    said = Said(*lines)

    async def opener() -> tuple[Said, Said]:
        return said, said

    async def start() -> None:
        async with asyncio.timeout(0.2):
            await relay.start(cast("Any", None), relay.Relay("10.0.0.1", "relay"), 9)

    monkeypatch.setattr(relay, "over_ssh", lambda *_: opener)
    with (
        pytest.raises((ForwardRefused, TimeoutError), match=error)
        if error is not None
        else contextlib.nullcontext()
    ):
        asyncio.run(start())
    assert said.closed == closed and json.loads(said.written)["port"] == 9


def test_a_relay_may_open_as_many_files_as_the_machine_lets_it() -> None:
    code = "from trainmaster.host import relaying; print(relaying._most_connections())"
    for hard, most in ((1064, 500), (60, 1), (65536, 4000)):
        shell = f'ulimit -Sn 50; ulimit -Hn {hard} || exit 7; exec "$0" -c "$1"'
        done = subprocess.run(
            ["sh", "-c", shell, sys.executable, code], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 7 or int(done.stdout) == most, done.stderr


def test_a_relay_lets_nobody_take_all_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaying, "_SILENT_SECONDS", 0.3)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(100))
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        carrier = relaying.Relay("10.0.0.1", server.sockets[0].getsockname()[1])
        carrier._most = 4
        passing = await asyncio.start_server(carrier._carry, "127.0.0.1", 0)
        port = passing.sockets[0].getsockname()[1]
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        third, _ = await asyncio.open_connection("127.0.0.1", port)
        assert await third.read() == b"", "an address may have half of them"
        for reader, _ in silent:
            assert await reader.read() == b"", "who says nothing has to go"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello")
        assert await reader.read() == b"hello"
        passing.close()
        server.close()

    asyncio.run(asyncio.wait_for(run(), 20))
