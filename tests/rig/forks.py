"""Commands that are forks of a process which has imported what they need: a start of Python costs more than most do.

Each command is a fork of its own, with the folder, environment and streams that it was given.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from tests.rig import pace

ROOT = Path(__file__).resolve().parent.parent.parent
Ran = subprocess.CompletedProcess[str]
_MESSAGE_BYTES = 1024 * 1024


class Starter:
    """The process that forks, which is a module that calls `serve`, and the way to it.

    After a command that was given up in the middle, another process takes its place: the answers of this one would be
    those of the command before.
    """

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._module = module
        self._environment = environment
        self._start()

    def _start(self) -> None:
        self.way, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", self._module, str(theirs.fileno())]
        self.process = subprocess.Popen(command, cwd=ROOT, env=self._environment, pass_fds=[theirs.fileno()])
        theirs.close()

    def run(self, command: list[str], given: Mapping[str, Any], said: str, limit_seconds: float) -> Ran:
        """What became of a fork that was given this; `command` is how it is called in errors.

        subprocess.TimeoutExpired after `limit_seconds`, once it has been ended.
        """
        with (
            tempfile.TemporaryFile() as stdin,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            stdin.write(said.encode())
            stdin.seek(0)
            streams = [stdin.fileno(), out.fileno(), err.fileno()]
            code = self._exit_code(command, given, streams, limit_seconds)
            printed = []
            for stream in (out, err):
                stream.seek(0)
                printed.append(stream.read().decode())
        return Ran(command, code, *printed)

    def end(self) -> None:
        """End the process, which no command of can run any more."""
        self.way.close()
        try:
            self.process.wait(10 * pace.factor())
        except subprocess.TimeoutExpired:  # a command still runs
            self.process.kill()
            self.process.wait()

    def _exit_code(
        self, command: list[str], given: Mapping[str, Any], streams: list[int], limit_seconds: float
    ) -> int:
        try:
            socket.send_fds(self.way, [json.dumps(given).encode()], streams)
            pid = self._heard(60 * pace.factor())
            try:
                return self._heard(limit_seconds * pace.factor())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._heard(60)
                raise subprocess.TimeoutExpired(command, limit_seconds) from None
        except subprocess.TimeoutExpired:
            raise
        except BaseException:
            self.process.kill()
            self.end()
            self._start()
            raise

    def _heard(self, limit_seconds: float) -> int:
        self.way.settimeout(limit_seconds)
        answer = self.way.recv(_MESSAGE_BYTES)
        assert answer, f"the process that starts commands has ended: {self.process.wait()}"
        return int(answer)


def serve(descriptor: int, become: Callable[[dict[str, Any]], int]) -> None:
    """Fork for each message, and answer with the pid, then with the exit code as `subprocess` gives it."""
    way = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    while True:
        message, streams, _, _ = socket.recv_fds(way, _MESSAGE_BYTES, 3)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            way.close()
            _end_as(become, json.loads(message), streams)
        for stream in streams:
            os.close(stream)
        way.send(str(pid).encode())
        way.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _end_as(become: Callable[[dict[str, Any]], int], given: dict[str, Any], streams: list[int]) -> NoReturn:
    """Be the command, and end as Python would end it."""
    for target, given_stream in enumerate(streams):
        os.dup2(given_stream, target)
        os.close(given_stream)
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    code: Any = 1
    try:
        code = become(given)
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        code = 0 if error.code is None else error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120  # as Python itself ends when it can't flush
    os._exit(code & 0xFF)
