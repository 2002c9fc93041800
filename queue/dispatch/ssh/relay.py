"""A process on a host that lets the machines of its network use a tunnel: trainmaster/host/relaying.py.

It is started over the tunnel's own connection and ends with it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import asyncssh

from dispatch.ssh.contact_errors import ForwardRefused
from dispatch.ssh.verb_channel import over_ssh
from trainmaster import bounded_json

#: that a login shell may print before
_MOST_LINES = 1000
_NOT_STARTED = "The process that is to pass connections on did not start."


@dataclass(frozen=True)
class Relay:
    """`address`: of the host, where others of its network reach it. `command`: starts the process."""

    address: str
    command: str


class Running:
    """A relay that listens."""

    def __init__(self, stdin: asyncssh.SSHWriter[bytes], stdout: asyncssh.SSHReader[bytes]) -> None:
        self._stdin = stdin
        self._stdout = stdout

    @property
    def alive(self) -> bool:
        return not (self._stdout.at_eof() or self._stdin.is_closing())

    def close(self) -> None:
        self._stdin.close()


async def start(connection: asyncssh.SSHClientConnection, wanted: Relay, port: int) -> Running:
    """Returns once it listens. Raises ForwardRefused with its sentence, asyncssh.Error, OSError."""
    stdin, stdout = cast(
        "tuple[asyncssh.SSHWriter[bytes], asyncssh.SSHReader[bytes]]",
        await over_ssh(connection, wanted.command)(),
    )
    try:
        stdin.write(json.dumps({"address": wanted.address, "port": port}).encode() + b"\n")
        answer = await _answer(stdout)
        if "relaying" not in answer:
            raise ForwardRefused(str(answer.get("message") or _NOT_STARTED))
    except BaseException:  # with its stdin it ends, also if nobody waits for it any more
        with suppress(asyncssh.Error, OSError):
            stdin.close()
        raise
    return Running(stdin, stdout)


async def _answer(stdout: asyncssh.SSHReader[bytes]) -> dict[str, Any]:
    """Its own line, behind what the login shell may print. Empty if it ends without one."""
    for _ in range(_MOST_LINES):
        if not (line := await stdout.readline()):
            break
        with suppress(ValueError):
            found = bounded_json.loads(line)
            if isinstance(found, dict) and found.keys() & {"relaying", "error"}:
                return found
    return {}
