"""The command line run by a process that has imported it already: a start of Python costs as much as most commands.

Each command is a fork of its own, with the arguments, environment, folder and streams that it was given. What starts
Python itself (the first line of a program, its exit by a signal) is tested by commands that are started as ever.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from tests.rig import pace

ROOT = Path(__file__).resolve().parent.parent.parent
Ran = subprocess.CompletedProcess[str]
_MESSAGE_BYTES = 1024 * 1024


def run(
    words: list[str], environment: Mapping[str, str], *, said: str = "", limit_seconds: float = 120
) -> Ran:
    """`trainmaster WORDS`, in the folder of the checkout: its exit code and what it printed.

    subprocess.TimeoutExpired after `limit_seconds`, once it has been ended.
    """
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        stdin.write(said.encode())
        stdin.seek(0)
        given = {"words": words, "environment": dict(environment)}
        code = _starter().run(given, [stdin.fileno(), out.fileno(), err.fileno()], limit_seconds)
        printed = []
        for stream in (out, err):
            stream.seek(0)
            printed.append(stream.read().decode())
    return Ran(["trainmaster", *words], code, *printed)


class _Starter:
    """The process that forks, and the way to it."""

    def __init__(self) -> None:
        self.way, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.rig.warm_cli", str(theirs.fileno())]
        # of the environment in which pytest runs it keeps what Python itself needs
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=[theirs.fileno()])
        theirs.close()

    def run(self, given: Mapping[str, Any], streams: list[int], limit_seconds: float) -> int:
        socket.send_fds(self.way, [json.dumps(given).encode()], streams)
        pid = self._heard(60 * pace.factor())
        try:
            return self._heard(limit_seconds * pace.factor())
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._heard(60)
            raise subprocess.TimeoutExpired(["trainmaster", *given["words"]], limit_seconds) from None

    def _heard(self, limit_seconds: float) -> int:
        self.way.settimeout(limit_seconds)
        answer = self.way.recv(_MESSAGE_BYTES)
        assert answer, f"the process that starts commands has ended: {self.process.wait()}"
        return int(answer)


@functools.cache
def _starter() -> _Starter:
    """One for all tests of this process; it ends when they do, since its way is closed then."""
    return _Starter()


def _serve(way: socket.socket) -> None:
    """Fork for each message, and answer with the pid, then with the exit code as `subprocess` gives it."""
    import trainmaster.cli.main  # noqa: F401  # here once, for all that are forked

    signal.signal(signal.SIGINT, signal.default_int_handler)
    while True:
        message, streams, _, _ = socket.recv_fds(way, _MESSAGE_BYTES, 3)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            way.close()
            _become(json.loads(message), streams)
        for stream in streams:
            os.close(stream)
        way.send(str(pid).encode())
        way.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _become(given: dict[str, Any], streams: list[int]) -> NoReturn:
    """Be the command."""
    from trainmaster.cli.main import main

    for target, given_stream in enumerate(streams):
        os.dup2(given_stream, target)
        os.close(given_stream)
    os.environ.clear()
    os.environ.update(given["environment"])
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.argv = [str(ROOT / "trainmaster" / "cli" / "main.py"), *given["words"]]
    code: Any = 1
    try:
        code = main()
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


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
