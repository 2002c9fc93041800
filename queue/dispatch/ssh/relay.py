"""A process on a host that lets the machines of its network use a tunnel: trainmaster/host/relaying.py.

It is started over the tunnel's own connection and ends with it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import cast

import asyncssh

from dispatch.ssh.contact_errors import ForwardRefused
from dispatch.ssh.verb_channel import over_ssh
from trainmaster import bounded_json


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
    stdin.write(json.dumps({"address": wanted.address, "port": port}).encode() + b"\n")
    try:
        answer = bounded_json.loads(await stdout.readline())
        if "relaying" in answer:
            return Running(stdin, stdout)
        sentence = str(answer["message"])
    except (ValueError, KeyError, TypeError):
        sentence = "The process that is to pass connections on did not start."
    stdin.close()
    raise ForwardRefused(sentence)
