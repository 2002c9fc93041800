"""One process that has imported the server, and whose forks are the server's parts.

Web and worker need the same thousand modules, which take seconds to load and are most of the memory of each. A
fork has them at once, and shares them. Forks end with this process, as it ends with `up`. It does nothing but fork, and
tell the supervisor which fork has ended.

`python -m embedded.forkserver` is the process, whose input is its way to the supervisor; `ForkServer` is the other end.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import setproctitle

from embedded import processes

COMMAND = [sys.executable, "-m", "embedded.forkserver"]
#: what the parts import, besides the applications of Django's settings
MODULES = (
    "celery.apps.worker",
    "kombu.transport.redis",
    "uvicorn.lifespan.off",
    "uvicorn.loops.uvloop",
    "webui.connections",
    "webui.application",
)
FORK_LIMIT_SECONDS = 15.0
#: how long the report of an end may take after the end itself
REPORT_LIMIT_SECONDS = 5.0
_MESSAGE_BYTES = 1024 * 1024
_DESCRIPTORS_MAX = 64


class Unavailable(Exception):
    """The fork server has ended, or does not answer."""


class Fork:
    """A process that the fork server has started; of `subprocess.Popen` it has what the supervisor uses."""

    def __init__(self, server: ForkServer, pid: int, handle: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._handle = handle  # a pidfd: the number alone may be another process's by now

    def poll(self) -> int | None:
        """The exit code as `subprocess` has it, or None while it runs."""
        self._server.hear()
        if self.returncode is None and select.select([self._handle], [], [], 0)[0]:
            limit = time.monotonic() + REPORT_LIMIT_SECONDS
            while self.returncode is None and (left := limit - time.monotonic()) > 0:
                self._server.hear(left)
            if self.returncode is None:  # the fork server is frozen, or too slow to report how it ended
                self.ended(-signal.SIGKILL)
        return self.returncode

    def wait(self, limit_seconds: float | None = None) -> int:
        """Wait for its end; subprocess.TimeoutExpired after the limit."""
        if self.returncode is None:
            select.select([self._handle], [], [], limit_seconds)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", limit_seconds or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def ended(self, code: int) -> None:
        """Take the code that was reported."""
        self.returncode = code
        os.close(self._handle)
        self._handle = -1


class ForkServer:
    """The supervisor's end of the fork server, whose process may be replaced."""

    def __init__(self) -> None:
        self._way: socket.socket | None = None
        self._ready = False
        self._forks: dict[int, Fork] = {}

    def open_way(self) -> socket.socket:
        """The input of a new process; to be closed here once the process has it."""
        self.close()
        self._way, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return theirs

    def ready(self) -> bool:
        """Whether it has imported everything, and forks."""
        self.hear()
        return self._ready

    def fork(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        title: str,
        streams: Sequence[int],
        kept: Sequence[int] = (),
    ) -> Fork:
        """`python -m module arguments` as a fork in a session of its own; Unavailable if there is none.

        `streams`: what it gets as 0, 1 and 2. `kept`: descriptors of ours that it finds under the same numbers.
        `title`: what `ps` shows.
        """
        if not self.ready() or self._way is None:
            raise Unavailable("The fork server is not ready.")
        asked = {"module": module, "arguments": list(arguments), "title": title, "kept": list(kept)}
        try:
            socket.send_fds(self._way, [json.dumps(asked).encode()], [*streams, *kept])
            limit = time.monotonic() + FORK_LIMIT_SECONDS
            while (said := self._said(limit - time.monotonic())) is not None:
                if "forked" in said:
                    return self._forks[said["forked"]]
        except OSError as error:
            self.close()
            raise Unavailable(f"The fork server has ended: {error}") from error
        raise Unavailable(f"The fork server did not answer within {FORK_LIMIT_SECONDS:.0f} s.")

    def hear(self, limit_seconds: float = 0.0) -> None:
        """Take the messages that have come; wait for a first one at most so long."""
        try:
            while self._said(limit_seconds) is not None:
                limit_seconds = 0.0
        except OSError:
            self.close()

    def close(self) -> None:
        """It has ended, and its forks with it."""
        if self._way is not None:
            self._way.close()
        self._way, self._ready = None, False
        for fork in self._forks.values():
            if fork.returncode is None:
                fork.ended(-signal.SIGKILL)
        self._forks.clear()

    def _said(self, limit_seconds: float) -> dict[str, Any] | None:
        """One message, or None if none came in time. OSError: it has ended."""
        if self._way is None or not select.select([self._way], [], [], max(0.0, limit_seconds))[0]:
            return None
        message, handles, _, _ = socket.recv_fds(self._way, _MESSAGE_BYTES, 1)
        if not message:
            raise ConnectionResetError("it has closed its end")
        said: dict[str, Any] = json.loads(message)
        if "forked" in said:
            self._forks[said["forked"]] = Fork(self, said["forked"], *handles)
        elif "ended" in said:
            fork = self._forks.pop(said["ended"])
            if fork.returncode is None:
                fork.ended(said["code"])
        else:
            self._ready = True
        return said


def main() -> None:
    way = socket.socket(fileno=os.dup(0))
    os.environ["SPT_NOENV"] = "1"  # titles must not overwrite the environment that /proc shows
    supervisor = os.getppid()
    _load()
    if (asked := _forked(way, supervisor)) is not None:
        sys.argv[1:] = asked["arguments"]
        runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)


def _load() -> None:
    """Import all that parts import. The collector leaves it alone from now on, or forks would soon share little."""
    gc.disable()
    import django

    django.setup()
    for name in MODULES:
        importlib.import_module(name)
    from webui.celery import app

    app.loader.import_default_modules()
    if threading.active_count() > 1:
        raise RuntimeError(
            f"Importing the server has started threads, which forks lack: {threading.enumerate()}"
        )
    gc.collect()
    gc.freeze()


def _forked(way: socket.socket, supervisor: int) -> dict[str, Any] | None:
    """Fork for each message. Returns in a fork, with what it was asked to be, and None after the last message."""
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    server = os.getpid()
    way.send(json.dumps({"ready": True}).encode())
    while True:
        readable = select.select([way.fileno(), woken], [], [])[0]
        if woken in readable:
            os.read(woken, 4096)
            for ended in _reaped():
                way.send(json.dumps(ended).encode())
                os.kill(supervisor, signal.SIGCHLD)  # which waits for ends of its own children
        if way.fileno() not in readable:
            continue
        message, descriptors, _, _ = socket.recv_fds(way, _MESSAGE_BYTES, _DESCRIPTORS_MAX)
        if not message:
            return None
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            processes.die_with_parent(server, signal.SIGKILL)
            for number in (woken, wakes, way.detach()):
                os.close(number)
            asked: dict[str, Any] = json.loads(message)
            _place(descriptors, [0, 1, 2, *asked["kept"]])
            setproctitle.setproctitle(f"trainmaster {asked['title']}")
            gc.enable()
            return asked
        for number in descriptors:
            os.close(number)
        handle = os.pidfd_open(pid)  # here, where it is not reaped before
        socket.send_fds(way, [json.dumps({"forked": pid}).encode()], [handle])
        os.close(handle)


def _reaped() -> list[dict[str, int]]:
    found = []
    with contextlib.suppress(ChildProcessError):  # there are no others
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append({"ended": ended[0], "code": os.waitstatus_to_exitcode(ended[1])})
    return found


def _place(descriptors: list[int], numbers: list[int]) -> None:
    """Give the descriptors these numbers."""
    above = max(*numbers, *descriptors) + 1
    for descriptor in descriptors:  # out of the way, for one's number may be wanted for another
        os.dup2(descriptor, above + descriptor)
        os.close(descriptor)
    for descriptor, number in zip(descriptors, numbers, strict=True):
        os.dup2(above + descriptor, number)
        os.close(above + descriptor)


if __name__ == "__main__":
    main()
