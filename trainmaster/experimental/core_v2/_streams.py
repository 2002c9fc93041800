"""What this rank writes to stdout and stderr goes where it went, and into the run's spool too.

The descriptors themselves are led through pipes to a small process (runner/tee.py), so children's and C libraries'
output is there as well. It cannot hold up or end the training: where that process cannot be started nothing is changed,
and where it dies another takes its place.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import logging
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, List, NamedTuple, Optional

from trainmaster.paths import RunPaths
from trainmaster.runner import tee

logger = logging.getLogger("trainmaster.core")

_STREAMS = ((1, "stdout"), (2, "stderr"))
_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1024 * 1024
_DRAIN_SECONDS = 6.0
_REAP_SECONDS = 0.2


class _Led(NamedTuple):
    """A stream of this process: its descriptor, the pipe's other end, where it went before, and its spool file."""

    name: str
    number: int
    source: int
    original: int
    file: str


class _Copied:
    """A stream that is no file descriptor: what is written to it goes into the spool too."""

    def __init__(self, stream: Any, file: str) -> None:
        self.stream = stream
        self._file: Optional[int] = os.open(
            file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )

    def write(self, text: str) -> Any:
        if self._file is not None:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                os.write(self._file, text.encode("utf-8", "surrogateescape"))
        return self.stream.write(text)

    def leave(self) -> None:
        """Those who still have this object write to the stream alone."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class KeptStreams:
    """The streams of this process while its run lasts."""

    def __init__(self, paths: RunPaths, rank: int) -> None:
        self._led: List[_Led] = []
        self._copies: List[_Copied] = []
        self._control: Optional[socket.socket] = None
        self._tee: Optional["subprocess.Popen[bytes]"] = None
        self._lock = threading.Lock()
        self._lock_file = paths.tee_lock(rank)
        try:
            self._begin(paths, rank)
        except (OSError, ValueError) as error:
            logger.warning("The output of this rank is not kept in the log of its run: %s", error)

    def _begin(self, paths: RunPaths, rank: int) -> None:
        ends = {}
        for number, name in _STREAMS:
            original = os.dup(number)
            source, ends[number] = os.pipe()
            self._led.append(_Led(name, number, source, original, str(paths.rank_stream(rank, name))))
            with contextlib.suppress(OSError):  # where less is allowed, less it is
                fcntl.fcntl(source, _F_SETPIPE_SZ, _PIPE_BYTES)
        self._start()
        _flush()
        for number, end in ends.items():
            os.dup2(end, number)
            os.close(end)
        for led in self._led:
            self._lead_python(led)

    def _lead_python(self, led: _Led) -> None:
        """What Python prints: its lines are to be seen at once; where it goes elsewhere (a notebook), it is copied."""
        stream = getattr(sys, led.name)
        if _descriptor_of(stream) != led.number:
            if stream is not None:
                self._copies.append(_Copied(stream, led.file))
                setattr(sys, led.name, self._copies[-1])
        elif isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(ValueError, OSError):
                stream.reconfigure(line_buffering=True)

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        words: List[Any] = [sys.executable, "-I", "-S", Path(tee.__file__), self._lock_file, theirs.fileno()]
        inherited = [theirs.fileno()]
        for led in self._led:
            words += [led.source, led.original, led.file]
            inherited += [led.source, led.original]
        with theirs:
            self._tee = subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # never the pipes themselves: it ends when nobody else has them
                stderr=self._led[-1].original,
                pass_fds=inherited,
                start_new_session=True,
                cwd="/",
            )

    def tend(self) -> None:
        """To be called now and then: where the process has died, another goes on in its place.

        This one has the pipes' ends too, so nothing that was written is lost, and nobody's write fails meanwhile.
        """
        with self._lock:
            if self._tee is not None and self._tee.poll() is not None:
                self._close_control()
                self._start()

    def close(self) -> None:
        """Lead the streams back where they went, when all that was written has come into the spool."""
        with self._lock:
            if self._tee is None:
                return
            _flush()
            self._restore()
            self._drain()
            self._close_control()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._tee.wait(_REAP_SECONDS)
            self._tee.returncode = 0  # else it ends with the last child that has the pipes, unwaited for
            self._tee = None
            for led in self._led:
                os.close(led.source)
                os.close(led.original)

    def _restore(self) -> None:
        for copy in self._copies:
            copy.leave()
            for name in ("stdout", "stderr"):
                if getattr(sys, name) is copy:
                    setattr(sys, name, copy.stream)
        for led in self._led:
            os.dup2(led.original, led.number)

    def _drain(self) -> None:
        assert self._control is not None
        self._control.settimeout(_DRAIN_SECONDS)
        with contextlib.suppress(OSError):
            self._control.sendall(b"d")
            self._control.recv(1)

    def _close_control(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _descriptor_of(stream: Any) -> Optional[int]:
    try:
        return int(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return None
