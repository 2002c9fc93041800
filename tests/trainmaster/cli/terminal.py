"""Runs a command on a terminal of its own and answers its questions."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Mapping, Sequence

from tests.rig import pace

LIMIT_SECONDS = 60.0


class Terminal:
    """`said` is everything that the command has written to the terminal."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        self.said = ""
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=dict(environment), start_new_session=True
        )
        os.close(slave)

    def expect(self, text: str) -> None:
        """Read until `text` has been said since the last answer; AssertionError after a while."""
        end = time.monotonic() + LIMIT_SECONDS * pace.factor()
        while text not in self.said:
            assert time.monotonic() < end, f"{text!r} did not come:\n{self.said}"
            assert self._read(), f"the command ended before {text!r}:\n{self.said}"

    def answer(self, question: str, reply: str) -> None:
        self.expect(question)
        os.write(self._master, reply.encode() + b"\n")

    def wait(self) -> int:
        """Read to the end; the exit code."""
        end = time.monotonic() + LIMIT_SECONDS * pace.factor()
        while self._read():
            assert time.monotonic() < end, f"the command did not end:\n{self.said}"
        code = self.process.wait(60)
        os.close(self._master)
        return code

    def _read(self) -> bool:
        poll = select.poll()  # select() takes no descriptor above 1023, and a test session has many
        poll.register(self._master, select.POLLIN)
        if not poll.poll(200):
            return True
        try:
            piece = os.read(self._master, 65536)
        except OSError:  # Linux says EIO when the last process has closed its side
            return False
        self.said += piece.decode(errors="replace").replace("\r\n", "\n")
        return bool(piece)
